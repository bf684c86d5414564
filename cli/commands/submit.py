"""`grader submit`: submit files through the HTTP API and, if asked, wait for what came of it."""

from __future__ import annotations

import itertools
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import requests

from grading.domain.errors import GraderError

FINAL = ("graded", "partial", "failed")
LONGEST_POLL_S = 2.0
PATIENCE_S = 90.0
"""A call is tried again for so long, so that a restart of the web app or of its database is not seen."""
LONGEST_PAUSE_S = 5.0
SAID_AT = 4
"""The try after which a person is told, about 3 s after the first."""
BUSY = (429, 502, 503, 504)
"""Answers of a server, or of a proxy before it, that does not work right now."""


class ServerRefused(GraderError):
    """The server did not accept this."""

    code = "refused"


class ServerAway(GraderError):
    """The server does not answer."""

    code = "server_away"


@dataclass(frozen=True)
class Client:
    """The HTTP API as a Python caller sees it. `server` is an address without a path."""

    server: str
    token: str

    def submit(
        self, files: Sequence[Path], assignment: str, student: str, *, priority: str = "interactive"
    ) -> Any:
        """Submit files of this machine."""
        content = {path.name: path.read_bytes() for path in files}
        return self.submit_bytes(content, assignment, student, priority=priority)

    def submit_bytes(
        self, content: Mapping[str, bytes], assignment: str, student: str, *, priority: str = "interactive"
    ) -> Any:
        """Submit once, also when the answer is lost and the POST has to be repeated."""
        form = {"assignment": assignment, "student": student, "priority": priority}
        attached = [("files", (name, data)) for name, data in content.items()]
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return self._call("POST", "/api/v1/submissions", data=form, files=attached, headers=headers)

    def status(self, submission_id: str) -> Any:
        """Where a submission stands."""
        return self._call("GET", f"/api/v1/submissions/{submission_id}")

    def machines(self) -> Any:
        """The machines and their load."""
        return self._call("GET", "/api/v1/machines")

    def wait(self, submission_id: str, timeout_s: float) -> Any:
        """The submission once nothing more happens to it by itself."""
        deadline, wait = time.monotonic() + timeout_s, 0.1
        while True:
            view = self.status(submission_id)
            if view["status"] in FINAL:
                return view
            if time.monotonic() > deadline:
                raise GraderError(f"Submission {submission_id} is still {view['status']}; ask again later.")
            time.sleep(wait)
            wait = min(wait * 1.5, LONGEST_POLL_S)

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
        until = time.monotonic() + PATIENCE_S
        for tried in itertools.count(1):
            answer = self._once(method, path, **arguments)
            pause = _pause(answer, tried)
            if pause is None or time.monotonic() + pause > until:
                return _content(answer)
            if tried == SAID_AT:
                click.echo(f"{self.server} cannot answer now; trying again for a while.", err=True)
            time.sleep(pause)
        raise AssertionError("counting does not end")

    def _once(self, method: str, path: str, **arguments: Any) -> requests.Response | ServerAway:
        headers = {"Authorization": f"Bearer {self.token}", **arguments.pop("headers", {})}
        try:
            return requests.request(
                method, self.server.rstrip("/") + path, headers=headers, timeout=60, **arguments
            )
        except requests.RequestException as error:
            return ServerAway(f"{self.server} does not answer: {type(error).__name__}.")


def _pause(answer: requests.Response | ServerAway, tried: int) -> float | None:
    """Seconds after which the same may be asked again; None where the answer stands."""
    own = min(0.5 * tried, LONGEST_PAUSE_S)
    if isinstance(answer, ServerAway):
        return own
    first_still_answered = answer.status_code == 409 and '"idempotency_key_in_use"' in answer.text
    if not first_still_answered and answer.status_code not in BUSY:
        return None
    header = answer.headers.get("Retry-After", "")
    return max(own, float(header)) if header.isdecimal() else own


def _content(answer: requests.Response | ServerAway) -> Any:
    if isinstance(answer, ServerAway):
        raise answer
    try:
        content = answer.json()
    except ValueError:
        raise ServerRefused(f"The server answered {answer.status_code} without saying why.") from None
    if answer.ok:
        return content
    detail = content.get("detail") or content.get("title") if isinstance(content, dict) else None
    raise ServerRefused(str(detail or f"The server answered {answer.status_code}."))


def client_from_environment(server: str) -> Client:
    """A client with the token of GRADER_TOKEN."""
    token = os.environ.get("GRADER_TOKEN")
    if not token:
        raise GraderError("Set GRADER_TOKEN to an API token; `grader token create` makes one.")
    return Client(server, token)


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SERVER = click.option(
    "--server",
    envvar="GRADER_SERVER",
    default="http://127.0.0.1:8080",
    show_default=True,
    help="Address of the Grader server.",
)


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--assignment", required=True, metavar="COURSE/SLUG", help="What this is handed in for.")
@click.option("--student", required=True, metavar="ID", help="The student's id.")
@click.option("--priority", type=click.Choice(["interactive", "batch"]), default="interactive",
              help="batch waits until no interactive work does.")  # fmt: skip
@click.option("--wait", is_flag=True, help="Wait for the grade.")
@click.option("--timeout", default=900.0, show_default=True, help="Seconds to wait at most.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@SERVER
def submit(
    files: tuple[Path, ...],
    assignment: str,
    student: str,
    priority: str,
    wait: bool,
    timeout: float,
    as_json: bool,
    server: str,
) -> None:
    """Hand in FILE… as one submission. Needs GRADER_TOKEN."""
    client = client_from_environment(server)
    view = client.submit(files, assignment, student, priority=priority)
    if wait:
        view = client.wait(view["id"], timeout)
    click.echo(json.dumps(view, indent=2) if as_json else _sentence(view))
    if wait and view["status"] != "graded":
        raise GraderError(f"Submission {view['id']} ended {view['status']}.")


def _sentence(view: dict[str, Any]) -> str:
    if view["status"] not in FINAL:
        return f"{view['id']} {view['status']}"
    score = "score withheld" if view.get("score") is None else f"{view['score']:g} of {view['max_score']:g}"
    flags = ", ".join(flag["code"] for flag in view.get("flags") or [])
    return f"{view['id']} {view['status']}: {score}" + (f" ({flags})" if flags else "")
