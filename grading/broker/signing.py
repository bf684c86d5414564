"""Signatures of machines' messages, made with a secret of the run and a key of the machine.

Both are made from the password of Redis' user `server`, which no machine has, so nothing must be stored and
nothing more be carried: a machine's key is made from its own password, which `grader redis acl` makes of a
random salt and the server's secret. Where all use Redis with one password, or none, that takes their place.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from grading.domain.errors import GraderError

SERVER = "server"
"""The name of the server's user in Redis."""
MACHINE = "machine."
Kind = Literal["result", "return", "ready"]
"""What a machine may tell the server: a result, a run it does not do, that it takes work."""
SALT_LETTERS = 16
NO_RUN = ""


class Forged(GraderError):
    """A machine's message does not prove where it comes from."""

    code = "forged"
    status = 403


@cache
def _stretched(password: str) -> bytes:
    """Slow on purpose: machines know what is made of it, and an operator may have chosen a short one."""
    return hashlib.scrypt(password.encode(), salt=b"grader: secrets of the server", n=2**14, r=8, p=1)


def _mac(key: bytes, *parts: str) -> str:
    """Each part with its length, so that no two lists of parts are the same text."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    content = b"".join(len(part).to_bytes(8, "big") + part for part in encoded)
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def _signature(password: str, machine: str, run_secret: str, kind: str, body: str) -> str:
    key = _mac(password.encode(), "key of a machine", machine, run_secret)
    return _mac(key.encode(), kind, body)


def _user(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return unquote(parts.username or ""), unquote(parts.password or "")


def machine_user(machine: str) -> str:
    """The name of a machine's user in Redis."""
    return f"{MACHINE}{machine}"


def own_user(redis_url: str) -> bool:
    """Whether a machine uses Redis as a user of its own."""
    return _user(redis_url)[0].startswith(MACHINE)


@dataclass(frozen=True)
class Signer:
    """A machine's side: signs what it sends. `password` is the one with which it uses Redis."""

    machine: str
    password: str

    def sign(self, kind: Kind, content: Mapping[str, Any], run_secret: str = NO_RUN) -> str:
        """A message for the machine's inbox."""
        body = json.dumps(content)
        mac = _signature(self.password, self.machine, run_secret, kind, body)
        return json.dumps({"kind": kind, "body": body, "salt": _salt(self.password), "mac": mac})


def _salt(password: str) -> str:
    salt, dot, _ = password.partition(".")
    return salt if dot and len(salt) == SALT_LETTERS else ""


def signer(redis_url: str, machine: str) -> Signer:
    """Of the machine that uses Redis by this address."""
    return Signer(machine, _user(redis_url)[1])


@dataclass(frozen=True)
class Keyring:
    """The server's side: makes secrets and passwords, and checks signatures."""

    password: str
    users: bool
    """Every machine is a user of its own in Redis, with a password that was made here."""

    def run_secret(self, run_id: str) -> str:
        """What only the server and who has the job of this run know."""
        return _mac(_stretched(self.password), "secret of a run", run_id)

    def machine_password(self, machine: str, salt: str | None = None) -> str:
        """A password for the machine's user in Redis: another one each time, without a salt."""
        salt = salt or secrets.token_hex(SALT_LETTERS // 2)
        return f"{salt}.{_mac(_stretched(self.password), 'password of a machine', machine, salt)}"

    def password_of(self, who: str) -> str:
        """A password for something else of this installation, always the same."""
        return _mac(_stretched(self.password), "password of another user", who)

    def read(self, machine: str, message: object) -> tuple[Kind, dict[str, Any]]:
        """What the machine said, if it is proven. Raises Forged."""
        kind, body, salt, mac = _fields(message)
        content = _content(body)
        run_id = content.get("run_id", NO_RUN)
        secret = self.run_secret(str(run_id)) if kind != "ready" else NO_RUN
        password = self.machine_password(machine, salt) if self.users else self.password
        if self.users and not salt:
            raise Forged("it is not signed with a key of the machine")
        if not hmac.compare_digest(_signature(password, machine, secret, kind, body), mac):
            raise Forged("its signature is not that of this machine for this run")
        return kind, content


def keyring(redis_url: str) -> Keyring:
    """Of the server that uses Redis by this address."""
    user, password = _user(redis_url)
    return Keyring(password, users=user == SERVER)


def _fields(message: object) -> tuple[Kind, str, str, str]:
    if not isinstance(message, Mapping):
        raise Forged("it has not the shape of a signed message")
    kind, *others = (message.get(name) for name in ("kind", "body", "salt", "mac"))
    body, salt, mac = others
    if not (isinstance(body, str) and isinstance(salt, str) and isinstance(mac, str) and mac.isascii()):
        raise Forged("it has not the shape of a signed message")
    if kind not in ("result", "return", "ready"):
        raise Forged("it is of an unknown kind")
    return kind, body, salt, mac


def _content(body: str) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise Forged("its content is not readable")
    return content
