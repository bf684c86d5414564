"""The comments that the staff of a course use again: look at them, add some, delete some."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.review import filters
from app.web import auth
from app.web.i18n import gettext as _
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor, Subject
from grading.store import tables
from grading.store.review import comment_bank
from grading.store.review.comment_bank import CommentRefused

pages = Blueprint("comments", __name__, url_prefix="/courses/<int(max=2147483647):course_id>/comments")


@pages.get("")
def listing(course_id: int) -> str:
    """All that are kept, and a form for another."""
    return _page(auth.actor(), course_id)


@pages.post("")
def save(course_id: int) -> Response | tuple[str, int]:
    """Keep one."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            _course(session, actor, course_id)
            text = request.form.get("text", "").replace("\0", "").replace("\r\n", "\n")
            comment_bank.save(session, course_id, text, actor)
    except CommentRefused as error:
        return _page(actor, course_id, error.message), error.status
    flash(_("Kept."))
    return redirect(url_for("comments.listing", course_id=course_id), 303)


@pages.post("/<int(max=2147483647):comment_id>/delete")
def delete(course_id: int, comment_id: int) -> Response:
    """Forget one. Where it was used, it stays."""
    actor = auth.actor()
    with services().store.write() as session:
        _course(session, actor, course_id)
        comment_bank.delete(session, course_id, comment_id, actor)
    flash(_("Deleted. Where it was used, it stays."))
    return redirect(url_for("comments.listing", course_id=course_id), 303)


def _course(session: Session, actor: Actor, course_id: int) -> tables.Course:
    course = session.get(tables.Course, course_id)
    if course is None or not auth.knows_course(actor, course_id):
        raise NotFound("There is no such course.")
    auth.require(actor, "grade.change", Subject(course_id))
    return course


def _page(actor: Actor, course_id: int, problem: str = "") -> str:
    with services().store.look() as session:
        course = _course(session, actor, course_id)
        kept = comment_bank.page_of(session, course_id, filters.page_of(request.args))
    return render_template("review/comments.html", course=course, kept=kept, problem=problem, actor=actor)
