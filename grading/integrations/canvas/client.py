"""Talking with a Canvas by `canvasapi`; what comes back is read into values, whatever else is in it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from canvasapi.assignment import Assignment
from canvasapi.canvas_object import CanvasObject
from canvasapi.course import Course
from canvasapi.exceptions import CanvasException, InvalidAccessToken, ResourceDoesNotExist
from canvasapi.requester import Requester
from canvasapi.submission import Submission
from requests import RequestException

from grading.domain.errors import GraderError
from grading.integrations.canvas import transport, values
from grading.integrations.canvas.values import Attempt, CanvasFailed, CanvasFile, Person, Task, There, Wanted
from grading.integrations.http_client import Allowed

MOST = 20_000
"""People or submissions of one list."""
FILES_S = 60.0
"""For all files of an attempt together."""
PAGE = 100


class TokenRefused(CanvasFailed):
    """Canvas does not take the token: it is wrong, expired, or was deleted."""

    code = "canvas_token"


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
        made._session = transport.session(transport.Outside(self.base, self.allow, self.pause))
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

    def attempts(self, course: str, assignment: str) -> Iterator[Attempt]:
        """All attempts of all students, of each student in order. Raises CanvasFailed."""
        with telling("asking for the submissions"):
            listed = self._assignment(course, assignment).get_submissions(
                include=["submission_history"], per_page=PAGE
            )
            found = [_plain(one) for one in _bounded(listed)]
        for one in found:
            yield from values.attempts(one)

    def files(self, files: Sequence[CanvasFile], most_bytes: int) -> list[tuple[str, bytes]]:
        """Names and contents, together within the bytes. Raises FileGone, CanvasSilent."""
        until, got = time.monotonic() + FILES_S, []
        for file in files:
            left = until - time.monotonic()
            data = transport.download(file.url, self.base, self.token, most_bytes, left, self.allow)
            most_bytes -= len(data)
            got.append((file.name, data))
        return got

    def there(self, course: str, assignment: str, user: str, mark: str) -> There:
        """What Canvas has of a student. Raises CanvasFailed."""
        with telling("asking for the score"):
            got = self._assignment(course, assignment).get_submission(user, include=["submission_comments"])
            found = values.there(_plain(got), self.me, mark)
        if found is None or found.user != user:
            raise CanvasFailed("Canvas answered with another student's submission.")
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
            raise CanvasFailed(f"Canvas' list has more than {MOST} lines.")
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
        raise CanvasFailed(
            f"{what}: Canvas has no such thing, or does not show it to the token's owner."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CanvasFailed(f"{what}: Canvas' answer cannot be read ({type(error).__name__}).") from None
    except (CanvasException, RequestException) as error:
        raise CanvasFailed(f"{what}: Canvas refused: {_said(error)}") from None


def _said(error: Exception) -> str:
    """What Canvas said about it, in one line."""
    return values.text_of(str(error), 300) or type(error).__name__
