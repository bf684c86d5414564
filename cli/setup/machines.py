"""Machines in config.toml, and the way to them: this server's key of SSH and their host keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tomlkit
from tomlkit.items import AoT, Table

from cli.setup.accounts import DEPLOY_ACCOUNT, DEPLOY_HOME
from cli.setup.host import Host, SetupError
from grading.config.settings import Machine

WRITTEN = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9-]*)=(?P<user>[A-Za-z_][A-Za-z0-9._-]*)@(?P<host>[^@\s]+?)(:(?P<port>\d+))?"
)
SLOTS = 4
STAGES: dict[str, dict[str, str]] = {
    "ollama": {"analysis": "qwen3-coder:30b", "feedback": "gemma3:27b"},
    "mlx": {
        "analysis": "mlx-community/Qwen3-Coder-30B-A3B-Instruct-4bit",
        "feedback": "mlx-community/gemma-3-27b-it-bf16",
    },
    "rules": {"analysis": "rules", "feedback": "rules"},
}
"""What a machine runs that config.toml does not know yet, by its engine."""
KEY = f"{DEPLOY_HOME}/.ssh/id_ed25519"
PUT_KEY = (
    "umask 077; mkdir -p .ssh; read -r key; "
    'grep -qxF "$key" .ssh/authorized_keys 2>/dev/null || echo "$key" >> .ssh/authorized_keys'
)
KNOWN_HOSTS = f"{DEPLOY_HOME}/.ssh/known_hosts"


@dataclass(frozen=True)
class Named:
    """A machine as the operator names it: NAME=USER@HOST[:PORT]."""

    name: str
    user: str
    host: str
    port: int = 22

    @classmethod
    def read(cls, text: str) -> Named:
        """Raises SetupError with how it is written."""
        match = WRITTEN.fullmatch(text.strip())
        if match is None:
            raise SetupError(
                f"'{text}' is not a machine. Write NAME=USER@HOST, such as lab-1=grader@10.0.0.11."
            )
        return cls(match["name"], match["user"], match["host"], int(match["port"] or 22))

    def __str__(self) -> str:
        port = "" if self.port == 22 else f":{self.port}"
        return f"{self.name}={self.user}@{self.host}{port}"


# --- config.toml ----------------------------------------------------------------------------------


def configured(text: str, named: Iterable[Named], engine: str, ca_file: str, *, first: bool) -> str:
    """config.toml with these machines and the authority of Redis; comments and all else stay.

    The first time, machines that nobody named and that have no [machines.ssh] are examples and go.
    """
    document = tomlkit.parse(text)
    redis = document.setdefault("redis", tomlkit.table())
    redis["ca_file"] = ca_file
    wanted = {one.name: one for one in named}
    tables = document.setdefault("machines", tomlkit.aot())
    for number in reversed(range(len(tables) if first and wanted else 0)):
        if tables[number]["name"] not in wanted and "ssh" not in tables[number]:
            del tables[number]
    for one in wanted.values():
        _place(tables, one, engine)
    return tomlkit.dumps(document)


def _place(tables: AoT, one: Named, engine: str) -> None:
    """The machine's entry, new or the one that is there, with the way to it."""
    found = next((table for table in tables if table["name"] == one.name), None)
    if found is None:
        found = _entry(one, engine)
        tables.append(found)
    if "ssh" not in found:
        found["ssh"] = tomlkit.table()
        found["ssh"].update({"host": one.host, "user": one.user})
        found["ssh"].add(tomlkit.nl())
    ssh = found["ssh"]
    ssh["host"], ssh["user"] = one.host, one.user
    if one.port != 22 or "port" in ssh:
        ssh["port"] = one.port


def _entry(one: Named, engine: str) -> Table:
    entry = tomlkit.table()
    entry["name"], entry["slots"] = one.name, SLOTS
    if engine == "ollama":
        entry["engines"] = {"ollama": {"url": "http://localhost:11434"}}
    stages: dict[str, Any] = {}
    for stage, model in STAGES[engine].items():
        placement = tomlkit.inline_table()
        placement.update({"engine": engine, "model": model})
        stages[stage] = placement
    entry["stages"] = stages
    return entry


# --- the way there --------------------------------------------------------------------------------


def make_key(host: Host) -> bool:
    """The key with which this server reaches its machines; False when there is one."""
    pair = (KEY, f"{KEY}.pub")
    if all(host.read(one) is not None for one in pair):
        return False
    for one in pair:
        host.remove(one)
        host.journal.add("file", one)
    comment = f"{DEPLOY_ACCOUNT.name}@{host.run('hostname').strip()}"
    host.run(
        *("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", KEY), user=DEPLOY_ACCOUNT.name
    )
    return True


def reached(host: Host, machine: Machine) -> bool:
    """Whether deploy gets in: the host key is known and the machine accepts this server's key."""
    return host.attempt(*_ssh(machine), "true", user=DEPLOY_ACCOUNT.name, folder=DEPLOY_HOME).returncode == 0


def introduce(host: Host, machine: Machine, user: str | None) -> None:
    """Put this server's key on a machine that the operator gets into without a question. Raises SetupError.

    The machine's host key is taken from those that the operator knows, never from who answers.
    """
    assert machine.ssh is not None
    place = machine.ssh.host if machine.ssh.port == 22 else f"[{machine.ssh.host}]:{machine.ssh.port}"
    lines = host.attempt("ssh-keygen", "-F", place, user=user).stdout.splitlines()
    known = [line for line in lines if line and not line.startswith("#")]
    if not known:
        raise SetupError(f"the host key of {place} is not known to {user or 'root'}")
    earlier = host.read(KNOWN_HOSTS) or ""
    more = "".join(f"{line}\n" for line in known if line not in earlier.splitlines())
    host.write(KNOWN_HOSTS, earlier + more, 0o600, DEPLOY_ACCOUNT.name, DEPLOY_ACCOUNT.name)
    key = host.read(f"{KEY}.pub") or ""
    host.run(*_ssh(machine), PUT_KEY, user=user, stdin=key)


def ask_for_password(machine: Machine, as_user: tuple[str, ...]) -> tuple[str, ...]:
    """The command that shows a machine's host key, asks for a password and puts this server's key there."""
    assert machine.ssh is not None
    port = () if machine.ssh.port == 22 else ("-p", str(machine.ssh.port))
    address = "@".join(filter(None, (machine.ssh.user, machine.ssh.host)))
    return (*as_user, "ssh-copy-id", "-i", f"{KEY}.pub", *port, address)


def _ssh(machine: Machine) -> tuple[str, ...]:
    assert machine.ssh is not None
    options = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=8")
    user = ("-l", machine.ssh.user) if machine.ssh.user else ()
    return ("ssh", *options, "-p", str(machine.ssh.port), *user, "--", machine.ssh.host)
