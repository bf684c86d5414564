"""Reviewing: the list of an assignment's hand-ins, and one of them beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flask import Blueprint, render_template, request
from flask.blueprints import BlueprintSetupState
from sqlalchemy.orm import Session

from app.review import detail, parts, worklist
from app.review import filters as review_filter
from app.web import auth, viewing
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.store import tables
from grading.store.grades.change_history import Made
from grading.store.review import comment_bank
from grading.store.views import review_worklist, submission
from grading.store.views.submission import SubmissionView, Whole

pages = Blueprint("review", __name__)


@pages.record
def _remember(state: BlueprintSetupState) -> None:
    """Keep parts of pages with this app."""
    parts.remember(state.app)


@pages.get("/assignments/<int(max=2147483647):assignment_id>/review")
def listing(assignment_id: int) -> str:
    """The list, and beside it what can be done to the whole class."""
    actor, filters = auth.actor(), review_filter.filters_of(request.args)
    with services().store.look() as session:
        assignment = of_class(session, actor, assignment_id)
        of = worklist.Of(session, assignment.course_id, assignment.id)
        left = worklist.pane(of, filters, review_filter.page_of(request.args))
    return render_template("review/listing.html", actor=actor, listing=left.html, **left.given)


@pages.get("/submissions/<submission_id>/review")
def one(submission_id: str) -> str:
    """One hand-in beside the list."""
    return page(auth.actor(), submission_id)


def page(
    actor: Actor,
    submission_id: str,
    *,
    problem: str = "",
    meanwhile: Sequence[Made] = (),
    draft: dict[str, Any] | None = None,
    stale: bool = False,
) -> str:
    """The page of one hand-in; with what was typed where it could not be saved, and why."""
    filters = review_filter.filters_of(request.args)
    with services().store.look() as session:
        whole = seen_whole(session, actor, submission_id)
        view = whole.view
        of = worklist.Of(session, view.course_id, view.assignment_id)
        left = worklist.pane(of, filters, review_filter.page_of(request.args), submission_id)
        before, after = worklist.neighbours(of, filters, submission_id, left)
        given = detail.given(session, whole, worklist.rubric_of_round(session, left, view.round_id))
        saved = comment_bank.texts(session, view.course_id)
    viewing.viewed(actor, submission_id, "review")
    said: dict[str, Any] = {}
    if problem or stale or meanwhile or draft:
        told = detail.entries(meanwhile, view.grade.report if view.grade else None)
        said = {"problem": problem, "stale": stale, "meanwhile": told, "draft": draft or {}}
    body = parts.body(given, left.given["here"], saved, said)
    return render_template(
        "review/one.html",
        actor=actor,
        stamp=given.stamp,
        view=view,
        before=before,
        after=after,
        listing=left.html,
        body=body,
        **left.given,
    )


def seen(session: Session, actor: Actor, submission_id: str, action: str = "class.see") -> SubmissionView:
    """A hand-in for staff who may do this. Raises NotFound, Forbidden."""
    return _required(actor, submission.submission_view(session, submission_id), action)


def seen_whole(session: Session, actor: Actor, submission_id: str, action: str = "class.see") -> Whole:
    """The same with what was handed in. Raises NotFound, Forbidden."""
    whole = submission.whole(session, submission_id)
    _required(actor, whole.view, action)
    return whole


def _required(actor: Actor, view: SubmissionView, action: str) -> SubmissionView:
    auth.require_seen(actor, view)
    auth.require(actor, action, auth.subject_of(view))
    return view


def of_class(
    session: Session, actor: Actor, assignment_id: int, action: str = "class.see"
) -> tables.Assignment:
    """An assignment for staff who may do this. Raises NotFound, Forbidden."""
    assignment = review_worklist.require(session, assignment_id)
    if not may(actor, "assignment.see", Subject(assignment.course_id)):
        raise NotFound("There is no such assignment.")
    auth.require(actor, action, Subject(assignment.course_id))
    return assignment
