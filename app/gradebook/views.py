"""The gradebook of a course: all students for staff, one's own row for students."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from flask import Blueprint, render_template, request
from markupsafe import Markup
from sqlalchemy.orm import Session

from app.web import auth, cache
from app.web.i18n import current
from app.web.i18n import gettext as _
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.store.courses import courses
from grading.store.database import now
from grading.store.grades.gradebook_cells import Cell
from grading.store.views import gradebook
from grading.store.views.gradebook import Gradebook

pages = Blueprint("gradebook", __name__)
PAGES = 40
"""Of a course that are kept."""


@pages.get("/courses/<int(max=2147483647):course_id>/grades")
def course(course_id: int) -> str:
    """Students × assignments, some students at a time; `part=rows` is only the table's rows."""
    actor = seen(course_id, "class.see")
    search = request.args.get("q", "")
    shown = _shown(course_id, search, _page())
    rows = shown.rows.get(current())
    if rows is None:
        made = render_template("gradebook/_rows.html", book=shown.book, note=notes())
        rows = shown.rows[current()] = Markup(made)  # noqa: S704 - a rendered template
    if request.args.get("part") == "rows":
        return rows
    return render_template("gradebook/course.html", book=shown.book, rows=rows, search=search, actor=actor)


@dataclass(frozen=True)
class Shown:
    """A page of the gradebook, and its rows by language."""

    book: Gradebook
    rows: dict[str, Markup] = field(default_factory=dict)


def _shown(course_id: int, search: str, page: int) -> Shown:
    """A page, kept as long as nothing changes and no date passes; what is searched for is looked up anew."""
    with services().store.read_autocommit() as session:
        known = {} if search else cache.of_course("gradebook", session, course_id, _no_pages)
        found = known.get(page)
        if found is None or (found.book.until is not None and found.book.until <= now(session)):
            found = Shown(
                gradebook.load_gradebook(session, courses.load_course(session, course_id), search, page)
            )
            if len(known) < PAGES:
                known[page] = found
    return found


def _no_pages(_session: Session, _course_id: int) -> dict[int, Shown]:
    return {}


@pages.get("/courses/<int(max=2147483647):course_id>/my-grades")
def mine(course_id: int) -> str:
    """What the reader got, as far as it is released."""
    actor = seen(course_id, "grades.own")
    with services().store.read_autocommit() as session:
        book = gradebook.load_student_row(session, courses.load_course(session, course_id), actor.user_id)
    return render_template("gradebook/mine.html", book=book, actor=actor, note=notes())


def seen(course_id: int, action: str) -> Actor:
    """The reader, who may do this in the course; to others it does not exist."""
    actor = auth.actor()
    if not may(actor, "assignment.see", Subject(course_id)):
        raise NotFound("There is no such course.")
    auth.require(actor, action, Subject(course_id))
    return actor


def notes() -> Callable[..., str]:
    """What is to be said of a cell beside its points; words are looked up once, cells are many."""
    words = {
        "open": _("not graded yet"),
        "partial": _("partly graded"),
        "failed": _("not graded"),
        "missing": _("nothing handed in"),
    }
    late, adjusted = _("late, %(percent)s %%"), _("adjusted by %(points)s")
    held, hidden, left_out = _("held"), _("not released"), _("dropped")

    def note(cell: Cell, *, dropped: bool = False) -> str:
        parts = [words[cell.state]] if cell.state in words else []
        if cell.credit < 1:
            parts.append(late % {"percent": round(100 * cell.credit)})
        if cell.adjustment:
            parts.append(adjusted % {"points": f"{cell.adjustment:+g}"})
        if cell.held:
            parts.append(held)
        elif cell.points is not None and not cell.released:
            parts.append(hidden)
        return ", ".join([*parts, left_out] if dropped else parts)

    return note


def _page() -> int:
    text = request.args.get("page", "")
    return int(text) if text.isdecimal() and len(text) < 7 else 1
