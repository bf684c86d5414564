"""The gradebook of a course: all students for staff, one's own row for students."""

from __future__ import annotations

from collections.abc import Callable

from flask import Blueprint, render_template, request

from app import who
from app.language import gettext as _
from app.services import services
from grading.errors import NotFound
from grading.may import Actor, Subject, may
from grading.store import gradebook
from grading.store.gradebook_cells import Cell

pages = Blueprint("gradebook", __name__)


@pages.get("/courses/<int(max=2147483647):course_id>/grades")
def course(course_id: int) -> str:
    """Students × assignments, some students at a time; `part=rows` is only the table's rows."""
    actor = seen(course_id, "class.see")
    search = request.args.get("q", "")
    with services().store.read() as session:
        book = gradebook.page_of(session, gradebook.course_of(session, course_id), search, _page())
    part = request.args.get("part") == "rows"
    template = "gradebook/_rows.html" if part else "gradebook/course.html"
    return render_template(template, book=book, search=search, actor=actor, note=notes())


@pages.get("/courses/<int(max=2147483647):course_id>/my-grades")
def mine(course_id: int) -> str:
    """What the reader got, as far as it is released."""
    actor = seen(course_id, "grades.own")
    with services().store.read() as session:
        book = gradebook.of_student(session, gradebook.course_of(session, course_id), actor.user_id)
    return render_template("gradebook/mine.html", book=book, actor=actor, note=notes())


def seen(course_id: int, action: str) -> Actor:
    """The reader, who may do this in the course; to others it does not exist."""
    actor = who.actor()
    if not may(actor, "assignment.see", Subject(course_id)):
        raise NotFound("There is no such course.")
    who.require(actor, action, Subject(course_id))
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
