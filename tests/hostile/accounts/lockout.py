"""Attack: wrong passwords that keep the owner of an account from signing in.

    ATTACK_PASSWORD=… python -m tests.hostile.accounts.lockout http://127.0.0.1:8080 --name NAME
    ATTACK_PASSWORD=… python -m tests.hostile.accounts.lockout http://127.0.0.1:8080 --name NAME \
        --from 127.0.0.2 --owner-from 127.0.0.3

ATTACK_PASSWORD is the right password of NAME, to see whether it still works. The owner signs in and out
once; then the attacker sends 30 wrong passwords (at most 200) for NAME, and as many for a name that does not
exist; then the owner signs in again, with the browser of before and with one that the server never saw.
`--from` is an address of this computer to attack from, and may be given several times; `--owner-from` the
owner's.

With one attacking address, and another of the owner, both browsers must be let in. With several, or with the
same address for both, the new browser may be told to wait, by `Retry-After`, for at most 60 seconds (120 at
the attacker's own address). Exit status 0: so it was, and both names were answered alike; 1: the owner was
kept out, or the answers tell whether a name exists; 2: the attack could not be tried.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from typing import Any

import requests
from requests.adapters import HTTPAdapter

WAIT_S = 10.0
MOST_TRIES = 200
WAITS_STRANGER_S, WAITS_ATTACKER_S = 60, 120
WRONG = "a wrong password"
NOBODY = "nobody-of-this-name"


class NotTried(Exception):
    """The server did not let the attack begin."""


class _From(HTTPAdapter):
    """Connections from one address of this computer."""

    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """With the address."""
        source = (self._address, 0) if self._address else None
        super().init_poolmanager(*args, **options, source_address=source)  # type: ignore[no-untyped-call]


class Browser:
    """A browser at some address."""

    def __init__(self, base: str, address: str = "") -> None:
        self.base, self.http = base.rstrip("/"), requests.Session()
        for scheme in ("http://", "https://"):
            self.http.mount(scheme, _From(address))

    def sign_in(self, name: str, password: str) -> requests.Response:
        """Give a name and a password."""
        return self._post("/sign-in", "/sign-in", name=name, password=password)

    def sign_out(self) -> None:
        """End the session."""
        self._post("/", "/sign-out")

    def _post(self, page: str, path: str, **form: str) -> requests.Response:
        shown = self.http.get(self.base + page, timeout=WAIT_S)
        token = re.search(r'name="csrf_token" value="([^"]+)"', shown.text)
        if token is None:
            raise NotTried(f"{page} has no form")
        data = {"csrf_token": token[1], **form}
        return self.http.post(self.base + path, data=data, timeout=WAIT_S, allow_redirects=False)


def guesses(base: str, name: str, tries: int, addresses: Iterable[str]) -> list[int]:
    """What wrong passwords are answered, sent from these addresses in turn."""
    browsers = [Browser(base, address) for address in addresses]
    return [one.sign_in(name, WRONG).status_code for one in islice(cycle(browsers), tries)]


def kept_out(answer: requests.Response, most_s: int) -> bool:
    """Whether the right password was refused for longer than `most_s`, or nobody knows how long."""
    if answer.status_code == requests.codes.see_other:
        return False
    wait = answer.headers.get("Retry-After", "")
    return answer.status_code != requests.codes.too_many or not wait.isdecimal() or int(wait) > most_s


def before_a_wait(codes: list[int]) -> list[int]:
    """The answers until the first one that says to wait: how many are permitted later, the clock decides."""
    return codes[: codes.index(429) + 1] if 429 in codes else codes


def attack(base: str, name: str, password: str, tries: int, attackers: list[str], owner: str) -> list[str]:
    """Try it; what it achieved, in words. Raises NotTried."""
    known = Browser(base, owner)
    first = known.sign_in(name, password)
    if first.status_code != requests.codes.see_other:
        raise NotTried(f"the right password was answered {first.status_code}")
    known.sign_out()
    answered = {one: guesses(base, one, tries, attackers) for one in (name, NOBODY)}
    for one, codes in answered.items():
        print(f"{tries} wrong passwords for '{one}': answered {' '.join(map(str, codes))}")
    again, new = known.sign_in(name, password), Browser(base, owner).sign_in(name, password)
    for kind, answer in (("known", again), ("new", new)):
        wait = answer.headers.get("Retry-After", "-")
        print(f"right password, {kind} browser: answered {answer.status_code}, Retry-After {wait}")
    same = owner in attackers
    most_s = 0 if len(attackers) == 1 and not same else WAITS_ATTACKER_S if same else WAITS_STRANGER_S
    found = {
        "the browser that was signed in before is kept out": kept_out(again, 0),
        "a new browser is kept out": kept_out(new, most_s),
        "the answers tell which name exists": before_a_wait(answered[name])
        != before_a_wait(answered[NOBODY]),
    }
    return [words for words, so in found.items() if so]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="address of the server")
    parser.add_argument("--name", required=True, help="sign-in name; the right password is ATTACK_PASSWORD")
    parser.add_argument("--tries", type=int, default=30, help="wrong passwords for each name")
    parser.add_argument("--from", dest="attackers", action="append", help="an address to attack from")
    parser.add_argument("--owner-from", default="", help="the owner's address")
    given = parser.parse_args(arguments)
    password = os.environ.get("ATTACK_PASSWORD", "")
    tries = max(1, min(given.tries, MOST_TRIES))
    try:
        found = attack(given.base, given.name, password, tries, given.attackers or [""], given.owner_from)
    except (NotTried, requests.RequestException) as error:
        print(f"not tried: {error}")
        return 2
    print("; ".join(found) if found else "the owner was let in")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
