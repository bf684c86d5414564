"""What is read from a Canvas and what is told to it, as values; pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from grading.domain.errors import GraderError
from grading.domain.messages import define_message
from grading.domain.report import Report
from grading.domain.stages import written
from grading.integrations.canvas.settings import Canvas

NOT_AN_ASSIGNMENT_PAGE = define_message(
    "canvas.not_an_assignment_page",
    "Enter the address of an assignment's page, such as %(address)s/courses/7/assignments/42.",
)
ASSIGNMENT_WITHOUT_NUMBER = define_message(
    "canvas.assignment_without_number", "Canvas returned an assignment without an ID."
)

ROLES = {"StudentEnrollment": "student", "TaEnrollment": "grader", "TeacherEnrollment": "instructor"}
"""What people are here; test students, observers and designers are nobody."""
ORDER = ("student", "grader", "instructor")
NUMBER = re.compile(r"[0-9]{1,20}(~[0-9]{1,11})?")
LONGEST_COMMENT = 10_000
NEAR = 0.005
"""Points that may be lost by rounding, as a share of the highest points."""


class CanvasFailed(GraderError):
    """Canvas refused the request."""

    code = "canvas_failed"
    status = 502
    default_message = define_message("error.canvas_failed", "Canvas refused the request.")


class CanvasSilent(CanvasFailed):
    """Canvas does not answer or limits the request rate."""

    code = "canvas_silent"
    default_message = define_message(
        "error.canvas_silent", "Canvas does not answer or limits the request rate."
    )


class NotForTheBridge(GraderError):
    """This Canvas assignment cannot be linked."""

    code = "canvas_not_linkable"
    status = 422
    default_message = define_message("error.not_for_the_bridge", "This Canvas assignment cannot be linked.")


@dataclass(frozen=True)
class Person:
    """Somebody in a course of Canvas."""

    id: str
    name: str
    email: str
    role: str


@dataclass(frozen=True)
class CanvasFile:
    """A file of an attempt; `size` in bytes as Canvas says it, or nothing."""

    name: str
    url: str
    size: int | None


@dataclass(frozen=True)
class Attempt:
    """An attempt of a student; `problem` says why it can be no submission here."""

    user: str
    number: int
    at: datetime
    late: bool
    files: tuple[CanvasFile, ...]
    problem: str = ""


@dataclass(frozen=True)
class Task:
    """An assignment of Canvas."""

    id: str
    course: str
    title: str
    points: float | None
    published: bool
    problem: str = ""
    """Why it cannot be linked."""


@dataclass(frozen=True)
class There:
    """What Canvas has of a student: points as entered, and our comments, each with its number."""

    user: str
    points: float | None
    comments: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Wanted:
    """What Canvas is to have: points in its own measure, or none, and a comment, or none."""

    points: float | None
    comment: str

    @property
    def digest(self) -> str:
        """Tells it from everything else that could be wanted."""
        return hashlib.sha256(f"{self.points!r}\0{self.comment}".encode()).hexdigest()


def place(url: str, base: str) -> tuple[str, str]:
    """Course and assignment in an address of a page of this Canvas, such as …/courses/7/assignments/42.

    Raises NotForTheBridge.
    """
    given, there = urlsplit(url.strip()), urlsplit(base)
    found = re.fullmatch(r"/courses/([0-9~]+)/assignments/([0-9~]+)/?", given.path)
    numbers = found.groups() if found else ()
    same = (given.scheme, given.netloc) == (there.scheme, there.netloc)
    if not same or len(numbers) != 2 or not all(NUMBER.fullmatch(one) for one in numbers):
        raise NotForTheBridge(NOT_AN_ASSIGNMENT_PAGE(address=base.rstrip("/")))
    return str(numbers[0]), str(numbers[1])


def share(points: float | None, of: float, possible: float | None) -> float | None:
    """Our points in the measure of the assignment there, to a hundredth; without one they stay."""
    if points is None:
        return None
    if possible is None or possible <= 0 or of <= 0:
        return round(points, 2)
    return round(points / of * possible, 2)


def grade(points: float | None) -> str:
    """As Canvas takes it; an empty one takes a score back."""
    return "" if points is None else f"{points:.2f}".rstrip("0").rstrip(".")


def same_points(ours: float | None, theirs: float | None, possible: float | None) -> bool:
    """Whether both are the same but for rounding."""
    if ours is None or theirs is None:
        return ours is theirs
    return abs(ours - theirs) <= max(0.011, NEAR * (possible or 0))


def words(report: Report, points: float, of: float, link: str) -> str:
    """A released result as a comment: points, criteria, feedback, people's words, and where all of it is."""
    lines = [f"{points:g} of {of:g} points", ""]
    for one in report.criteria:
        got = "not rated" if one.points is None else f"{one.points:g}"
        lines.append(f"- {one.title}: {got} of {one.max_points:g}{' (bonus)' if one.bonus else ''}")
    lines += [f"- {one.title}: -{one.points:g}" for one in report.adjustments if one.points]
    lines += [f"- bonus above its limit: -{report.bonus_lost:g}"] if report.bonus_lost else []
    said = report.feedback
    if said is not None:
        lines += ["", said.achieved, *(f"- {one}" for one in said.strengths)]
        lines += [said.practice, *(f"- {one}" for one in said.develop), said.next_step]
    for more in written(report.outputs):
        lines += ["", *more.lines]
    if report.comments:
        lines += ["", *(f"{one.by}: {one.text}" for one in report.comments)]
    text = "\n".join(_storable(line) for line in lines).strip()
    end = f"\n\n{link}"
    return (
        text if len(text) + len(end) <= LONGEST_COMMENT else text[: LONGEST_COMMENT - len(end) - 1] + "…"
    ) + end


def _storable(text: str) -> str:
    return "".join(c for c in text if c == "\n" or c.isprintable())


def role_of(enrolments: Iterable[Mapping[str, Any]]) -> str | None:
    """The highest role of somebody's active places in a course; nothing for who has none."""
    active = [one for one in enrolments if one.get("enrollment_state", "active") == "active"]
    roles = [ROLES[kind] for one in active if (kind := one.get("type")) in ROLES]
    return max(roles, key=ORDER.index, default=None)


def number_of(value: object) -> str | None:
    """An id of Canvas as text; nothing where it is none."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return text if NUMBER.fullmatch(text) else None


def text_of(value: object, longest: int = 200) -> str:
    """A short printable text; nothing else."""
    return " ".join(_storable(value).split())[:longest] if isinstance(value, str) else ""


def points_of(value: object) -> float | None:
    """A finite number; nothing else."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9
    return float(value) if good else None  # type: ignore[arg-type]


def units_of(value: str | None) -> float | None:
    """What Canvas says is left of what a token may use; nothing where it does not."""
    return float(value) if value and re.fullmatch(r"-?[0-9]{1,9}(\.[0-9]{1,20})?", value) else None


def moment_of(value: object) -> datetime | None:
    """An instant in ISO 8601 with its zone; nothing else."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def person(said: Mapping[str, Any]) -> Person | None:
    """One of a course's list; nothing for who has no role here."""
    number, places = number_of(said.get("id")), said.get("enrollments")
    role = role_of(one for one in places if isinstance(one, dict)) if isinstance(places, list) else None
    if number is None or role is None:
        return None
    return Person(number, text_of(said.get("name")), text_of(said.get("email")), role)


def task(said: Mapping[str, Any], course: str) -> Task:
    """An assignment, with why it cannot be linked. Raises CanvasFailed."""
    number = number_of(said.get("id"))
    if number is None:
        raise CanvasFailed(ASSIGNMENT_WITHOUT_NUMBER)
    kinds = said.get("submission_types")
    problem = ""
    if not isinstance(kinds, list) or "online_upload" not in kinds:
        problem = "it takes no files; turn on file uploads in Canvas"
    elif said.get("grading_type") in ("pass_fail", "not_graded"):
        problem = "it is not graded with points; choose points in Canvas"
    elif said.get("group_category_id") is not None:
        problem = "it is a group assignment, which the bridge does not know; use LTI"
    elif said.get("moderated_grading"):
        problem = (
            "it is graded with moderation, whose final grade only a moderator gives; turn that off in Canvas"
        )
    elif said.get("anonymous_grading") or said.get("anonymize_students"):
        problem = "it is graded anonymously, so Canvas does not say whose work is whose"
    return Task(
        number, course, text_of(said.get("name")), points_of(said.get("points_possible")),
        said.get("workflow_state") == "published", problem,
    )  # fmt: skip


def attempts(said: Mapping[str, Any]) -> tuple[Attempt, ...]:
    """All attempts of a student that Canvas tells of, in order, each once."""
    history = said.get("submission_history")
    told = [*(history if isinstance(history, list) else ()), said]
    found: dict[int, Attempt] = {}
    for one in told:
        # grading makes a new entry of the same attempt
        made = _attempt(one) if isinstance(one, dict) else None
        if made is not None:
            found[made.number] = made
    return tuple(found[number] for number in sorted(found))


def _attempt(said: Mapping[str, Any]) -> Attempt | None:
    user, number, at = (
        number_of(said.get("user_id")),
        said.get("attempt"),
        moment_of(said.get("submitted_at")),
    )
    if user is None or at is None or not isinstance(number, int) or not 0 < number < 2**31:
        return None
    if said.get("workflow_state") not in ("submitted", "pending_review", "graded"):
        return None
    late = said.get("late") is True
    if said.get("submission_type") != "online_upload":
        return Attempt(user, number, at, late, (), "no files were submitted, but something else")
    listed = said.get("attachments")
    files = [_file(one) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    good = tuple(one for one in files if one is not None)
    if not good or len(good) < len(files):
        return Attempt(user, number, at, late, (), "Canvas does not say where a file is")
    return Attempt(user, number, at, late, good)


def _file(said: Mapping[str, Any]) -> CanvasFile | None:
    name, url, size = text_of(said.get("display_name"), 400), said.get("url"), said.get("size")
    if not name or not isinstance(url, str) or not url:
        return None
    return CanvasFile(name, url, size if isinstance(size, int) and size >= 0 else None)


def there(said: Mapping[str, Any], ours: str, mark: str) -> There | None:
    """What Canvas has of a student; of the comments those `ours` wrote and whose last line has `mark`."""
    user = number_of(said.get("user_id"))
    if user is None:
        return None
    entered = "entered_score" if "entered_score" in said else "score"
    listed = said.get("submission_comments")
    comments = tuple(
        (number, str(one["comment"]))
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict)
        and (number := number_of(one.get("id"))) is not None
        and number_of(one.get("author_id")) == ours
        and mark in str(one.get("comment")).rstrip().rpartition("\n")[2]
    )
    return There(user, points_of(said.get(entered)), comments)


def tokens(canvases: Iterable[Canvas], environ: Mapping[str, str]) -> dict[str, str]:
    """The token of each Canvas by its name; those that have none in the environment are left out."""
    found = {one.name: environ.get(one.token_variable, "").strip() for one in canvases}
    return {name: token for name, token in found.items() if token}
