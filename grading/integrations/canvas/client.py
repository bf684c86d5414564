"""A client of Canvas' API: requests within limits of time and size, retried; what they return as values."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from canvasapi.assignment import Assignment
from canvasapi.canvas_object import CanvasObject
from canvasapi.course import Course
from canvasapi.exceptions import CanvasException, InvalidAccessToken, ResourceDoesNotExist
from canvasapi.requester import Requester
from canvasapi.submission import Submission
from requests import RequestException
from requests.adapters import BaseAdapter

from grading.domain.errors import GraderError
from grading.domain.messages import define_message
from grading.integrations.canvas import values
from grading.integrations.canvas.values import (
    Attempt,
    CanvasFailed,
    CanvasFile,
    CanvasSilent,
    Person,
    Task,
    There,
    Wanted,
)
from grading.integrations.http_client import Allowed, Answer, OutsideFailed, Refused, TooMuch, ask
from grading.integrations.requests_adapter import as_response, body_of, leave_only

FILE_REDIRECTS = define_message("canvas.file_redirects", "a file's address redirects too often")
FILE_SERVER_ANSWERED = define_message(
    "canvas.file_server_answered", "a file could not be downloaded: its server answered %(status)s"
)
FILE_SERVER_REFUSED = define_message(
    "canvas.file_server_refused", "a file cannot be downloaded: its server answered %(status)s"
)
OTHER_ADDRESS = define_message(
    "canvas.other_address",
    "Canvas continues a list at the address of another server. Grader does not send the token there.",
)
LIST_WITHOUT_END = define_message("canvas.list_without_end", "Canvas' list has too many pages.")
REDIRECTED = define_message(
    "canvas.redirected",
    "Canvas answered with a redirect (%(status)s). Check the address of Canvas in config.toml.",
)
RATE_LIMITED = define_message("canvas.rate_limited", "Canvas limits the request rate (rate limit exceeded).")
ANSWERED = define_message("canvas.answered", "Canvas answered %(status)s.")
FILE_TOO_SLOW = define_message("canvas.file_too_slow", "the download of a file timed out")
FILE_ADDRESS_REFUSED = define_message(
    "canvas.file_address_refused", "the address of a file is not allowed. %(why)s"
)
FILE_TOO_LARGE = define_message(
    "canvas.file_too_large", "a file is larger than the %(most)s bytes that remain of the size limit"
)
FILE_NOT_FETCHED = define_message("canvas.file_not_fetched", "a file could not be downloaded: %(why)s")
OTHER_STUDENT = define_message("canvas.other_student", "Canvas answered with another student's submission.")
LIST_TOO_LONG = define_message("canvas.list_too_long", "Canvas' list has more than %(most)s entries.")
NO_SUCH_THING = define_message(
    "canvas.no_such_thing",
    "%(what)s: not found in Canvas, or the token has no access to it. Check "
    "the address and the permissions of the token's owner.",
)
ANSWER_UNREADABLE = define_message(
    "canvas.answer_unreadable", "%(what)s: Canvas' answer cannot be read (%(kind)s)."
)
REFUSED = define_message("canvas.refused", "%(what)s: Canvas refused: %(answer)s")
NO_ANSWER = define_message("canvas.no_answer", "Canvas does not answer: %(why)s")

TIMEOUT_S = 15.0
WAITS_S = (1.0, 3.0, 9.0)
"""Before a question is asked again that was not answered; what changes something is asked once."""
LARGEST = 8_000_000
MOST_REQUESTS = 5_000
"""Of one pass: lists that go in a circle end."""
MOST_STEPS = 5
LEAST_LEFT, REFILL = 150.0, 10.0
"""Units that a pass leaves of the 600 that Canvas lets a token use, for whoever else has it; units that come
back each second (doc/api/throttling.md of Canvas)."""
REDIRECTS = (301, 302, 303, 307, 308)
LATER = (408, 425, 429)


def origin(url: str) -> tuple[str, str]:
    """What must be the same for a token to be sent."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


@dataclass
class Outside(BaseAdapter):
    """Sends what `requests` prepared; `pause` waits and says whether to stop."""

    base: str
    allow: Allowed
    pause: Callable[[float], object] = time.sleep
    count: int = field(default=0, init=False)

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """The answer. Raises CanvasSilent where there is none, CanvasFailed for another address."""
        url, method = request.url or "", request.method or "GET"
        if origin(url) != origin(self.base):
            raise CanvasFailed(OTHER_ADDRESS)
        body = body_of(request)
        headers = {name: str(value) for name, value in request.headers.items()}
        headers |= {"Accept": "application/json", "Accept-Encoding": "identity"}
        for wait in (*WAITS_S, None) if method == "GET" else (None,):
            try:
                answer = self._once(method, url, headers, body)
            except CanvasSilent:
                if wait is None or self.pause(wait):
                    raise
                continue
            self._slow_down(answer)
            return as_response(request, answer)
        raise AssertionError

    def _slow_down(self, answer: Answer) -> None:
        """Wait until enough is left of what Canvas lets a token use."""
        left = values.units_of(answer.headers.get("x-rate-limit-remaining"))
        if left is not None and left < LEAST_LEFT:
            self.pause(min((LEAST_LEFT - left) / REFILL, TIMEOUT_S))

    def _once(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        self.count += 1
        if self.count > MOST_REQUESTS:
            raise CanvasFailed(LIST_WITHOUT_END)
        try:
            answer = ask(
                method, url, headers=headers, body=body, timeout_s=TIMEOUT_S, most_bytes=LARGEST,
                allow=self.allow,
            )  # fmt: skip
        except OutsideFailed as error:
            raise CanvasSilent(NO_ANSWER(why=error.coded)) from None
        if answer.status in REDIRECTS:
            raise CanvasFailed(REDIRECTED(status=answer.status))
        if throttled(answer):
            raise CanvasSilent(RATE_LIMITED)
        if answer.status >= 500 or answer.status in LATER:
            raise CanvasSilent(ANSWERED(status=answer.status))
        return answer

    def close(self) -> None:
        """Nothing is kept open."""


def throttled(answer: Answer) -> bool:
    """Whether Canvas refused because of too many requests: a 403 like others, with these words."""
    return answer.status == 429 or (answer.status == 403 and b"Rate Limit Exceeded" in answer.body[:1000])


def session(outside: Outside) -> requests.Session:
    """A session that has no other way out and takes nothing from the environment."""
    made = requests.Session()
    leave_only(made, outside)
    return made


class FileGone(CanvasFailed):
    """A file cannot be downloaded from Canvas. Retrying does not help."""

    code = "canvas_file_gone"
    status = 422
    default_message = define_message(
        "error.file_gone", "A file cannot be downloaded from Canvas. Retrying does not help."
    )


def download(url: str, base: str, token: str, most_bytes: int, timeout_s: float, allow: Allowed) -> bytes:
    """What is behind a file's address, at most five redirects further, each checked like the first.

    The token goes to Canvas' own address only. Raises FileGone, CanvasSilent.
    """
    until = time.monotonic() + timeout_s
    for _ in range(MOST_STEPS + 1):
        headers = {"User-Agent": "Grader", "Accept-Encoding": "identity"}
        if origin(url) == origin(base):
            headers["Authorization"] = f"Bearer {token}"
        left = until - time.monotonic()
        if left <= 0:
            raise CanvasSilent(FILE_TOO_SLOW)
        answer = _file(url, headers, left, most_bytes, allow)
        if answer.status not in REDIRECTS:
            return _content(answer)
        url = urljoin(url, answer.headers.get("location", ""))
    raise FileGone(FILE_REDIRECTS)


def _file(url: str, headers: Mapping[str, str], left: float, most_bytes: int, allow: Allowed) -> Answer:
    try:
        return ask("GET", url, headers=headers, timeout_s=left, most_bytes=most_bytes, allow=allow)
    except Refused as error:
        raise FileGone(FILE_ADDRESS_REFUSED(why=error.coded)) from None
    except TooMuch:
        raise FileGone(FILE_TOO_LARGE(most=most_bytes)) from None
    except OutsideFailed as error:
        raise CanvasSilent(FILE_NOT_FETCHED(why=error.coded)) from None


def _content(answer: Answer) -> bytes:
    if answer.status >= 500 or answer.status in LATER or throttled(answer):
        raise CanvasSilent(FILE_SERVER_ANSWERED(status=answer.status))
    if answer.status != 200:
        raise FileGone(FILE_SERVER_REFUSED(status=answer.status))
    return answer.body


MOST = 20_000
"""People or submissions of one list."""
FILES_S = 60.0
"""For all files of an attempt together."""
PAGE = 100


class TokenRefused(CanvasFailed):
    """Canvas refuses the token: it is wrong, expired or deleted. Create a new one in Canvas."""

    code = "canvas_token"
    default_message = define_message(
        "error.token_refused",
        "Canvas refuses the token: it is wrong, expired or deleted. Create a new one in Canvas.",
    )


@dataclass(frozen=True)
class Talk:
    """One Canvas in one person's name, for one pass."""

    base: str
    token: str
    allow: Allowed
    pause: Callable[[float], object] = time.sleep

    @cached_property
    def _requester(self) -> Any:
        logging.getLogger("canvasapi").setLevel(logging.WARNING)  # it tells every address and answer
        made = Requester(self.base.rstrip("/"), self.token)
        made._session = session(Outside(self.base, self.allow, self.pause))
        return made

    @cached_property
    def me(self) -> str:
        """The number of whose token it is. Raises CanvasFailed."""
        with telling("asking who we are"):
            return values.number_of(self._requester.request("GET", "users/self").json()["id"]) or ""

    def course_title(self, course: str) -> str:
        """The name of a course. Raises CanvasFailed."""
        with telling("asking for the course"):
            return values.text_of(self._requester.request("GET", f"courses/{course}").json()["name"])

    def people(self, course: str) -> list[Person]:
        """Who has an active place in a course, each once. Raises CanvasFailed."""
        with telling("asking for the people"):
            listed = self._course(course).get_users(
                enrollment_state=["active"], include=["email", "enrollments"], per_page=PAGE
            )
            found = [values.person(_plain(one)) for one in _bounded(listed)]
        return list({one.id: one for one in found if one is not None}.values())

    def tasks(self, course: str) -> list[Task]:
        """The assignments of a course. Raises CanvasFailed."""
        with telling("asking for the assignments"):
            listed = self._course(course).get_assignments(per_page=PAGE)
            return [values.task(_plain(one), course) for one in _bounded(listed)]

    def task(self, course: str, assignment: str) -> Task:
        """One assignment. Raises CanvasFailed."""
        with telling("asking for the assignment"):
            return values.task(_plain(self._course(course).get_assignment(assignment)), course)

    def attempts(self, course: str, assignment: str, since: datetime | None = None) -> Iterator[Attempt]:
        """All attempts of who submitted `since`, of each student in order. Raises CanvasFailed."""
        how = {"include": ["submission_history"], "per_page": PAGE}
        with telling("asking for the submissions"):
            if since is None:
                listed = self._assignment(course, assignment).get_submissions(**how)
            else:
                # the list of one assignment ignores this filter
                listed = self._course(course).get_multiple_submissions(
                    student_ids=["all"], assignment_ids=[assignment], submitted_since=since.isoformat(), **how
                )
            found = [_plain(one) for one in _bounded(listed)]
        for one in found:
            yield from values.attempts(one)

    def files(self, files: Sequence[CanvasFile], most_bytes: int) -> list[tuple[str, bytes]]:
        """Names and contents, together within the bytes. Raises FileGone, CanvasSilent."""
        until, got = time.monotonic() + FILES_S, []
        for file in files:
            left = until - time.monotonic()
            data = download(file.url, self.base, self.token, most_bytes, left, self.allow)
            most_bytes -= len(data)
            got.append((file.name, data))
        return got

    def there(self, course: str, assignment: str, user: str, mark: str) -> There:
        """What Canvas has of a student. Raises CanvasFailed."""
        with telling("asking for the score"):
            got = self._assignment(course, assignment).get_submission(user, include=["submission_comments"])
            found = values.there(_plain(got), self.me, mark)
        if found is None or found.user != user:
            raise CanvasFailed(OTHER_STUDENT)
        return found

    def all_there(self, course: str, assignment: str) -> dict[str, There]:
        """What Canvas has of everybody, without comments. Raises CanvasFailed."""
        with telling("asking for the scores"):
            listed = self._assignment(course, assignment).get_submissions(per_page=PAGE)
            found = [values.there(_plain(one), "", "") for one in _bounded(listed)]
        return {one.user: one for one in found if one is not None}

    def tell(self, course: str, assignment: str, user: str, wanted: Wanted, has: There) -> bool:
        """Let Canvas have what is wanted, of which it `has` some; whether anything had to be changed.

        Raises CanvasFailed.
        """
        path = f"courses/{course}/assignments/{assignment}/submissions/{user}"
        change: dict[str, Any] = {}
        if not values.same_points(wanted.points, has.points, None):
            change["submission"] = {"posted_grade": values.grade(wanted.points)}
        kept, gone = has.comments[:1], has.comments[1:]
        if not wanted.comment:
            kept, gone = (), has.comments
        elif not kept:
            change["comment"] = {"text_comment": wanted.comment}
        with telling("posting the score"):
            if change:
                ids = {"course_id": course, "assignment_id": assignment, "user_id": user}
                Submission(self._requester, ids).edit(**change)
            edited = [number for number, text in kept if not _same_text(text, wanted.comment)]
            for number in edited:
                self._requester.request("PUT", f"{path}/comments/{number}", comment=wanted.comment)
            for number, _text in gone:
                self._requester.request("DELETE", f"{path}/comments/{number}")
        return bool(change or edited or gone)

    def _course(self, course: str) -> Any:
        """Without asking for it: what it has is of no interest here."""
        return Course(self._requester, {"id": course})

    def _assignment(self, course: str, assignment: str) -> Any:
        return Assignment(self._requester, {"id": assignment, "course_id": course})


def _bounded(listed: Any) -> Iterator[Any]:
    for count, one in enumerate(listed):
        if count >= MOST:
            raise CanvasFailed(LIST_TOO_LONG(most=MOST))
        yield one


def _plain(one: Any) -> dict[str, Any]:
    """What Canvas said, without the objects that canvasapi makes of parts of it."""
    return {
        name: [vars(part) if isinstance(part, CanvasObject) else part for part in value]
        if isinstance(value, list)
        else value
        for name, value in vars(one).items()
    }


def _same_text(one: str, other: str) -> bool:
    """Whether both say the same, whatever became of blanks and ends of lines on the way."""
    return one.split() == other.split()


@contextmanager
def telling(what: str) -> Iterator[None]:
    """What canvasapi raises, and whatever its reading of an odd answer raises, as CanvasFailed."""
    try:
        yield
    except GraderError:
        raise
    except InvalidAccessToken:
        raise TokenRefused from None
    except ResourceDoesNotExist:
        raise CanvasFailed(NO_SUCH_THING(what=what)) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CanvasFailed(ANSWER_UNREADABLE(what=what, kind=type(error).__name__)) from None
    except (CanvasException, RequestException) as error:
        raise CanvasFailed(REFUSED(what=what, answer=_said(error))) from None


def _said(error: Exception) -> str:
    """What Canvas said about it, in one line."""
    return values.text_of(str(error), 300) or type(error).__name__
