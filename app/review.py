"""Reviewing: the list of an assignment's hand-ins, and one of them beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flask import Blueprint, render_template, request
from sqlalchemy.orm import Session

from app import review_filter, viewing, who
from app.flags import place_words
from app.language import gettext as _
from app.review_shown import entries, pane
from app.services import services
from grading.errors import NotFound
from grading.may import Actor, Subject, may
from grading.rubric import Criterion, Rubric
from grading.store import adjusting, lists, review_list, saved_comments, tables, views
from grading.store.review_filters import Filters
from grading.store.review_history import Made
from grading.store.views import SubmissionView

pages = Blueprint("review", __name__)


@pages.get("/assignments/<int(max=2147483647):assignment_id>/review")
def listing(assignment_id: int) -> str:
    """The list, and beside it what can be done to the whole class."""
    actor, filters = who.actor(), review_filter.filters_of(request.args)
    with services().store.read() as session:
        assignment = of_class(session, actor, assignment_id)
        beside = left_pane(session, assignment, filters, review_filter.page_of(request.args))
    return render_template("review/listing.html", actor=actor, **beside)


@pages.get("/submissions/<submission_id>/review")
def one(submission_id: str) -> str:
    """One hand-in beside the list."""
    return page(who.actor(), submission_id)


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
    with services().store.read() as session:
        view = seen(session, actor, submission_id)
        assignment = review_list.require(session, view.assignment_id)
        beside = left_pane(session, assignment, filters, review_filter.page_of(request.args))
        before, after = review_list.neighbours(session, assignment, filters, submission_id, beside["listed"])
        shown = pane(session, view)
        kept = saved_comments.listed(session, view.course_id)
    viewing.viewed(actor, submission_id, "review")
    return render_template(
        "review/one.html",
        actor=actor,
        pane=shown,
        view=view,
        report=shown.report,
        shown=shown.shown,
        notes=shown.notes,
        staff=True,
        before=before,
        after=after,
        kept=kept,
        problem=problem,
        stale=stale,
        meanwhile=entries(meanwhile, shown.report),
        draft=draft or {},
        place_words=place_words,
        **beside,
    )


def seen(session: Session, actor: Actor, submission_id: str, action: str = "class.see") -> SubmissionView:
    """A hand-in for staff who may do this. Raises NotFound, Forbidden."""
    view = views.submission_view(session, submission_id)
    who.require_seen(actor, view)
    who.require(actor, action, who.subject_of(view))
    return view


def of_class(
    session: Session, actor: Actor, assignment_id: int, action: str = "class.see"
) -> tables.Assignment:
    """An assignment for staff who may do this. Raises NotFound, Forbidden."""
    assignment = review_list.require(session, assignment_id)
    if not may(actor, "assignment.see", Subject(assignment.course_id)):
        raise NotFound("There is no such assignment.")
    who.require(actor, action, Subject(assignment.course_id))
    return assignment


def left_pane(
    session: Session, assignment: tables.Assignment, filters: Filters, number: int
) -> dict[str, Any]:
    """What the list and its filter need."""
    machines, models = review_filter.machines()
    return {
        "assignment": lists.assignment_line(assignment, assignment.course),
        "release_at": assignment.release_at,
        "listed": review_list.page_of(session, assignment, filters, number),
        "filters": filters,
        "address": review_filter.address_of(filters),
        "here": review_filter.address_of(filters, number),
        "criteria": rubric_of(session, assignment),
        "machines": review_filter.with_chosen(machines, filters.machine),
        "models": review_filter.with_chosen(models, filters.model),
        "looks": review_filter.looks(),
        "sorts": review_filter.sorts(),
        "released": [
            ("", _("released or not")),
            ("no", _("not released")),
            ("yes", _("released")),
            ("withdrawn", _("withdrawn")),
        ],
        "states": [
            ("", _("any state")),
            ("open", _("being graded")),
            ("graded", _("graded")),
            ("partial", _("partly graded")),
            ("failed", _("not graded")),
        ],
    }


def rubric_of(session: Session, assignment: tables.Assignment) -> tuple[Criterion, ...]:
    """The criteria that count now; none where there is no rubric yet."""
    try:
        rubric: Rubric = adjusting.criteria(session, assignment)
    except NotFound:
        return ()
    return rubric.criteria
