"""What a reviewer does to one hand-in: change, undo, accept, release, withdraw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, flash, redirect, request, url_for
from pydantic import ValidationError
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.review import filters as review_filter
from app.review import views
from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import told
from app.web.services import services
from grading.domain.changes import Change
from grading.domain.errors import Conflict
from grading.domain.permissions import Actor
from grading.store import tables
from grading.store.grades import release as grades
from grading.store.review import comment_bank, edits
from grading.store.review.comment_bank import CommentRefused
from grading.store.review.edits import ChangedMeanwhile, ChangeRefused
from grading.store.views import review_worklist
from grading.store.views.submission import SubmissionView

pages = Blueprint("review_changes", __name__)
Answer = Response | tuple[str, int]
Work = Callable[[Session, Actor, SubmissionView], str]


@pages.post("/submissions/<submission_id>/review/change")
def change(submission_id: str) -> Answer:
    """Change points or words, hide a remark, add a comment."""

    def work(session: Session, actor: Actor, view: SubmissionView) -> str:
        wanted = _wanted(session, submission_id)
        edits.change(session, submission_id, wanted, _seen(), actor)
        if wanted.kind == "add" and request.form.get("keep"):
            comment_bank.save(session, view.course_id, wanted.text, actor)
        told = _(" The student can see it.") if view.released else ""
        return _("Saved.") + told

    return _done(submission_id, "grade.change", work)


@pages.post("/submissions/<submission_id>/review/undo")
def undo(submission_id: str) -> Answer:
    """Take a change back."""

    def work(session: Session, actor: Actor, view: SubmissionView) -> str:
        number = request.form.get("change", "")
        known = int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else 0
        edits.undo(session, submission_id, known, _seen(), actor)
        return _("Taken back; what stood there before counts again.")

    return _done(submission_id, "grade.change", work)


@pages.post("/submissions/<submission_id>/review/accept")
def accept(submission_id: str) -> Answer:
    """Agree, and go on to the next one of the list."""
    after: list[str | None] = []

    def work(session: Session, actor: Actor, view: SubmissionView) -> str:
        assignment = review_worklist.require(session, view.assignment_id)
        filters = review_filter.filters_of(request.args)
        after.append(review_worklist.neighbours(session, assignment, filters, submission_id)[1])
        released = edits.accept(session, submission_id, _seen(), actor)
        said = _("Accepted: %(name)s.", name=view.student)
        said += _(" It is released, as this assignment says.") if released else ""
        return said if after[0] else said + " " + _("That was the last one of this list.")

    return _done(submission_id, "grade.change", work, after)


@pages.post("/submissions/<submission_id>/review/release")
def release(submission_id: str) -> Answer:
    """Let the student see this grade, also a held one: a person decided."""

    def work(session: Session, actor: Actor, view: SubmissionView) -> str:
        edits.require_seen(session, view.round_id, _seen())
        grades.release(session, view.round_id, actor)
        return _("The student can see this grade now.")

    return _done(submission_id, "grade.release", work)


@pages.post("/submissions/<submission_id>/review/withdraw")
def withdraw(submission_id: str) -> Answer:
    """Take a released grade back."""

    def work(session: Session, actor: Actor, view: SubmissionView) -> str:
        grades.withdraw(session, view.round_id, actor, _text("reason", 2_000))
        return _("Withdrawn: the student sees no grade until you release it again.")

    return _done(submission_id, "grade.release", work)


def _done(submission_id: str, action: str, work: Work, after: list[str | None] | None = None) -> Answer:
    """Do it in one transaction and show the hand-in, or the next one; what is wrong is said on the page."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            view = views.seen(session, actor, submission_id, action)
            said = work(session, actor, view)
    except ChangedMeanwhile as error:
        draft = request.form.to_dict()
        return views.page(actor, submission_id, meanwhile=error.since, draft=draft, stale=True), error.status
    except (ChangeRefused, CommentRefused, Conflict) as error:
        problem = told(error.message)
        return views.page(actor, submission_id, problem=problem, draft=request.form.to_dict()), error.status
    flash(said)
    filters, number = review_filter.filters_of(request.args), review_filter.page_of(request.args)
    address = review_filter.address_of(filters, number)
    target = (after[0] if after else None) or submission_id
    anchor = _text("back", 40) if target == submission_id else ""
    known = anchor if anchor.replace("-", "").isalnum() else None
    return redirect(url_for("review.one", submission_id=target, _anchor=known, **address), 303)


def _wanted(session: Session, submission_id: str) -> Change:
    """The change a form asks for. Raises ChangeRefused."""
    form = request.form
    text = _text("text", 20_000) or _text("saved", 20_000)
    said: dict[str, Any] = {"kind": form.get("kind", ""), "target": form.get("target", "")[:100]}
    said |= {"text": text, "reason": _text("reason", 2_000)}
    points = form.get("exact") or form.get("points") or ""
    said["points"] = review_filter.number(points)
    said["target"] = edits.TOTAL if said["kind"] == "adjust" else said["target"]
    if said["kind"] == "add":
        said |= {**_place(session, submission_id), "target": ""}
    try:
        return Change.model_validate(said)
    except ValidationError:
        raise ChangeRefused from None


def _place(session: Session, submission_id: str) -> dict[str, Any]:
    """Where a comment is to stand: `document:cell` by their numbers, and a line."""
    document, _colon, cell = request.form.get("place", "").partition(":")
    line = request.form.get("line", "").strip()
    if not _number(document):
        if line:
            raise ChangeRefused(_("Choose the file that the line is in."))
        return {}
    documents = session.get_one(tables.Submission, submission_id).documents
    if int(document) >= len(documents) or (line and not _number(line)):
        raise ChangeRefused(_("There is no such place in this hand-in."))
    return {
        "document": documents[int(document)]["path"],
        "cell": int(cell) if _number(cell) else None,
        "line": int(line) if line else None,
    }


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _seen() -> str:
    return request.form.get("seen", "")[:100]


def _text(name: str, most: int) -> str:
    """What was typed, in lines as Python has them, without what a database does not take."""
    return request.form.get(name, "").replace("\0", "").replace("\r\n", "\n").strip()[:most]
