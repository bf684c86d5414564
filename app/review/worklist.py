"""The left pane of reviewing: the filter and the list, kept as long as nothing in the assignment changes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from flask import render_template, request
from markupsafe import Markup
from sqlalchemy.orm import Session

from app.review import filters as review_filter
from app.review import parts
from app.web import cache
from app.web.i18n import current
from app.web.i18n import gettext as _
from grading.domain.errors import NotFound
from grading.domain.rubric import Criterion, Rubric
from grading.shared.cache import mark
from grading.store import tables
from grading.store.review import curves, second_marking
from grading.store.views import review_worklist, submission_lists
from grading.store.views.review_worklist import Filters, Page

ORDERS = 20
"""Filters of an assignment whose order is kept."""
BESIDE = 400
"""Hand-ins of an assignment whose neighbours, or rubrics, are kept."""


@dataclass
class Of:
    """The assignment whose hand-ins are listed; its row is read only where something asks for it."""

    session: Session
    course_id: int
    id: int

    @cached_property
    def row(self) -> tables.Assignment:
        """As the database has it. Raises NotFound."""
        return review_worklist.require(self.session, self.id)


@dataclass
class Known:
    """What is known of an assignment's hand-ins, for as long as none of them changes."""

    name: str = field(default_factory=lambda: secrets.token_hex(8))
    """Another one after each change."""
    orders: dict[Filters, tuple[str, ...]] = field(default_factory=dict)
    pages: dict[tuple[Filters, int], Page] = field(default_factory=dict)
    beside: dict[tuple[Filters, str], tuple[str | None, str | None]] = field(default_factory=dict)
    rubrics: dict[str, Rubric] = field(default_factory=dict)
    """Round -> what it is graded by."""
    shown: tuple[submission_lists.AssignmentLine, datetime | None, tuple[Criterion, ...]] | None = None
    """The assignment, when it is released, and its criteria."""


@dataclass(frozen=True)
class Left:
    """The pane, and what the rest of the page needs of it."""

    known: Known
    listed: Page
    html: Markup
    given: dict[str, Any]
    """For the template."""


def pane(of: Of, filters: Filters, number: int, opened: str = "") -> Left:
    """The filter and the list; `opened` is the hand-in beside it, or they can be chosen."""
    known = cache.of_assignment("orders", of.session, of.course_id, of.id, _nothing)
    listed = _page(of, filters, number, known)
    if known.shown is None:
        line = submission_lists.assignment_line(of.row, of.row.course)
        known.shown = line, of.row.release_at, rubric_of(of.session, of.row)
    line, release_at, criteria = known.shown
    given: dict[str, Any] = {
        "assignment": line,
        "release_at": release_at,
        "filters": filters,
        "address": review_filter.address_of(filters),
        "here": review_filter.address_of(filters, number),
    }
    more = {**given, "listed": listed, "criteria": criteria, "opened": opened}
    if not _lasts(filters):
        return Left(known, listed, _made(filters, more), given)
    inside = known.pages.get((filters, number)) is listed
    place = (known.name, current(), request.root_path, sorted(given["address"].items()), number, opened)
    key = mark("list", *place) if inside else ""
    return Left(known, listed, parts.remembered(key, lambda: _made(filters, more)), given)


def neighbours(of: Of, filters: Filters, submission_id: str, left: Left) -> tuple[str | None, str | None]:
    """The hand-ins before and after this one."""
    found = left.known.beside.get((filters, submission_id)) if _lasts(filters) else None
    if found is None:
        found = review_worklist.neighbours(of.session, of.row, filters, submission_id, left.listed)
        if _lasts(filters) and len(left.known.beside) < BESIDE:
            left.known.beside[filters, submission_id] = found
    return found


def rubric_of_round(session: Session, left: Left, round_id: str) -> Rubric:
    """What a round of the assignment is graded by."""
    found = left.known.rubrics.get(round_id)
    if found is None:
        found = second_marking.rubric_of(session, round_id)
        if len(left.known.rubrics) < BESIDE:
            left.known.rubrics[round_id] = found
    return found


def rubric_of(session: Session, assignment: tables.Assignment) -> tuple[Criterion, ...]:
    """The criteria that count now; none where there is no rubric yet."""
    try:
        rubric: Rubric = curves.criteria(session, assignment)
    except NotFound:
        return ()
    return rubric.criteria


def _nothing(_session: Session, _assignment_id: int) -> Known:
    return Known()


def _lasts(filters: Filters) -> bool:
    """Whether nothing that this filter finds changes without a touch of the assignment."""
    return not (filters.q or filters.machine or filters.model)


def _page(of: Of, filters: Filters, number: int, known: Known) -> Page:
    if not _lasts(filters):
        return review_worklist.page_of(of.session, of.row, filters, number)
    found = known.pages.get((filters, number))
    if found is None:
        order = known.orders.get(filters)
        if order is None:
            order = review_worklist.order_of(of.session, of.row, filters)
            if len(known.orders) < ORDERS:
                known.orders[filters] = order
        found = review_worklist.page_of(of.session, of.row, filters, number, order)
        if len(known.pages) < 2 * ORDERS:
            known.pages[filters, number] = found
    return found


def _made(filters: Filters, given: dict[str, Any]) -> Markup:
    machines, models = review_filter.machines()
    html = render_template(
        "review/_list.html",
        choosing=not given["opened"],
        machines=review_filter.with_chosen(machines, filters.machine),
        models=review_filter.with_chosen(models, filters.model),
        looks=review_filter.looks(),
        sorts=review_filter.sorts(),
        released=[
            ("", _("released or not")),
            ("no", _("not released")),
            ("yes", _("released")),
            ("withdrawn", _("withdrawn")),
        ],
        states=[
            ("", _("any state")),
            ("open", _("being graded")),
            ("graded", _("graded")),
            ("partial", _("partly graded")),
            ("failed", _("not graded")),
        ],
        **given,
    )
    return Markup(html)  # noqa: S704 - of a template that escapes
