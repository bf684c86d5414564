"""The HTTP API as a Python caller sees it: submit, wait, results, lists, release."""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast
from urllib.parse import quote

import requests

from grader_client.answers import Accepted, Released, Result, Submission, SubmissionItem
from grader_client.errors import NotGradedYet, ServerAway, error_of

log = logging.getLogger(__name__)
FINAL = ("graded", "partial", "failed")
FIRST_POLL_S = 0.1
LONGEST_POLL_S = 2.0
PATIENCE_S = 90.0
"""A request is tried again for so long, so that a restart of the server is not seen."""
LONGEST_PAUSE_S = 5.0
"""Between tries, where the server asks for none."""
SAID_AT = 4
"""The try after which the log says so, about 3 s after the first."""
TIMEOUT_S = 60.0
BUSY = (429, 502, 503, 504)
"""Answers of a server, or of a proxy before it, that does not work right now."""


class Filters(TypedDict, total=False):
    """Which submissions are listed."""

    course: int
    assignment: int
    student: str
    """The id they sign in with."""
    status: str
    flagged: bool
    released: bool
    since: datetime
    """Received then or later."""
    until: datetime
    """Received before."""


@dataclass(frozen=True)
class Client:
    """A server, at an address without a path, and a token. Any number of threads may use it.

    Every method raises ApiError for what the server refuses, and ServerAway.
    """

    url: str
    token: str = field(repr=False)

    def submit(
        self,
        files: Iterable[Path] | Mapping[str, bytes],
        assignment: str,
        student: str,
        *,
        priority: str = "interactive",
        idempotency_key: str = "",
    ) -> Accepted:
        """Submit files, by their paths or as names and contents, for `assignment` (`course/assignment`).

        It is submitted once, also when the answer is lost and the request is sent again. With the same
        `idempotency_key` that holds for another call, too, and another program.
        """
        named = files if isinstance(files, Mapping) else {path.name: path.read_bytes() for path in files}
        form = {"assignment": assignment, "student": student, "priority": priority}
        attached = [("files", (name, content)) for name, content in named.items()]
        answer = self._post("/api/v1/submissions", idempotency_key, data=form, files=attached)
        return cast(Accepted, answer)

    def submission(self, submission_id: str) -> Submission:
        """Where a submission stands."""
        return cast(Submission, _content(self._send("GET", _path(submission_id))))

    def wait(
        self,
        submission_id: str,
        timeout_s: float,
        on_change: Callable[[Submission], None] = lambda _submission: None,
    ) -> Submission:
        """The submission once it is graded, partly graded or failed. Raises NotGradedYet.

        It requests with the ETag of the previous answer, at first often and then every 2 s; `on_change` is
        called with each new answer.
        """
        path, pause, until = _path(submission_id), FIRST_POLL_S, time.monotonic() + timeout_s
        latest = self._send("GET", path)
        on_change(known := cast(Submission, _content(latest)))
        while known["status"] not in FINAL:
            left = until - time.monotonic()
            if left <= 0:
                raise NotGradedYet(submission_id, known["status"])
            time.sleep(min(pause, left))
            pause = min(1.5 * pause, LONGEST_POLL_S)
            answer = self._send("GET", path, headers={"If-None-Match": latest.headers.get("ETag", "")})
            if answer.status_code != requests.codes.not_modified:
                latest = answer
                on_change(known := cast(Submission, _content(latest)))
        return known

    def result(self, submission_id: str) -> Result:
        """What a submission came to, criterion by criterion. Raises NotFound until it may be seen."""
        return cast(Result, _content(self._send("GET", _path(submission_id, "result"))))

    def release(self, submission_id: str) -> Released:
        """Let the student see the grade."""
        return cast(Released, self._post(_path(submission_id, "release"), ""))

    def list_submissions(self, **filters: Unpack[Filters]) -> Iterator[SubmissionItem]:
        """Submissions, the newest first, page after page."""
        query = {name: _written(value) for name, value in filters.items()}
        path: str | None = "/api/v1/submissions"
        while path is not None:
            page = _content(self._send("GET", path, params=query))
            yield from page["items"]
            path, query = page["next"], {}

    def _post(self, path: str, key: str, **arguments: Any) -> Any:
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return _content(self._send("POST", path, headers=headers, **arguments))

    def _send(self, method: str, path: str, **arguments: Any) -> requests.Response:
        """The answer, after further tries where the server is away or busy. Raises ApiError, ServerAway."""
        until = time.monotonic() + PATIENCE_S
        for tried in itertools.count(1):
            answer = self._try(method, path, **arguments)
            pause = _pause(answer, tried)
            if pause is None or time.monotonic() + pause > until:
                return _taken(answer)
            if tried == SAID_AT:
                log.warning("%s does not answer, retrying for %.0f s", self.url, until - time.monotonic())
            time.sleep(pause)
        raise AssertionError("counting does not end")

    def _try(self, method: str, path: str, **arguments: Any) -> requests.Response | ServerAway:
        headers = {"Authorization": f"Bearer {self.token}", **arguments.pop("headers", {})}
        address = self.url.rstrip("/") + path
        try:
            return requests.request(method, address, headers=headers, timeout=TIMEOUT_S, **arguments)
        except requests.RequestException as error:
            return ServerAway(f"{self.url} does not answer: {type(error).__name__}.")


def _path(submission_id: str, *more: str) -> str:
    return "/".join(("/api/v1/submissions", quote(submission_id, safe=""), *more))


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)


def _pause(answer: requests.Response | ServerAway, tried: int) -> float | None:
    """Seconds after which the same may be asked again; None where the answer stands."""
    own = min(0.5 * tried, LONGEST_PAUSE_S)
    if isinstance(answer, ServerAway):
        return own
    first_still_answered = answer.status_code == 409 and '"idempotency_key_in_use"' in answer.text
    if not first_still_answered and answer.status_code not in BUSY:
        return None
    return max(own, _retry_after(answer.headers.get("Retry-After", "")))


def _retry_after(header: str) -> float:
    """The seconds that a server asks for, as a number or as a date."""
    if header.isdecimal():
        return float(header)
    try:
        return (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def _taken(answer: requests.Response | ServerAway) -> requests.Response:
    """The answer, if it is one of success. Raises ApiError, ServerAway."""
    if isinstance(answer, ServerAway):
        raise answer
    if answer.status_code < 400:
        return answer
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    known = problem if isinstance(problem, dict) else {}
    raise error_of(answer.status_code, known, answer.headers.get("X-Request-ID", ""))


def _content(answer: requests.Response) -> Any:
    """Raises ApiError where it is no JSON: no Grader has answered."""
    try:
        return answer.json()
    except ValueError:
        raise error_of(answer.status_code, {}) from None
