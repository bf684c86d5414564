"""The list of an assignment's submissions beside a review: its filter, order and cached pages."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from math import isfinite
from typing import Any

from flask import render_template, request
from markupsafe import Markup
from pydantic import ValidationError
from sqlalchemy.orm import Session

from app.review import detail
from app.web import page_cache, parsing
from app.web.i18n import current
from app.web.i18n import gettext as _
from app.web.i18n import number as shown
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.rubric import Criterion, Rubric
from grading.shared.cache import mark
from grading.store import tables
from grading.store.review import curves, second_marking
from grading.store.views import attempts, review_worklist, submission_lists
from grading.store.views.review_worklist import Filters, Page

ORDERS = 20
"""Filters of an assignment whose order is kept."""
BESIDE = 400
"""Submissions of an assignment whose neighbours, or rubrics, are kept."""
NAMES: Mapping[str, str] = {
    # name in the address -> field of the filter
    "all": "everything",
    "q": "q",
    "look": "look",
    "released": "released",
    "state": "state",
    "low": "low",
    "high": "high",
    "criterion": "criterion",
    "clow": "criterion_low",
    "chigh": "criterion_high",
    "machine": "machine",
    "model": "model",
    "late": "late",
    "sort": "sort",
}
POINTS = ("low", "high", "clow", "chigh")
SWITCHES = ("all", "late")


@dataclass
class Of:
    """The assignment whose submissions are listed; its row is read only where something asks for it."""

    session: Session
    course_id: int
    id: int

    @cached_property
    def row(self) -> tables.Assignment:
        """As the database has it. Raises NotFound."""
        return review_worklist.find_assignment(self.session, self.id)


@dataclass
class ListCache:
    """What is known of an assignment's submissions, for as long as none of them changes."""

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

    known: ListCache
    listed: Page
    html: Markup
    given: dict[str, Any]
    """For the template."""


def pane(of: Of, filters: Filters, number: int, opened: str = "") -> Left:
    """The filter and the list; `opened` is the submission beside it, or they can be chosen."""
    cached = page_cache.of_assignment("orders", of.session, of.course_id, of.id, _nothing)
    listed = _page(of, filters, number, cached)
    if cached.shown is None:
        line = submission_lists.assignment_line(of.row, of.row.course)
        cached.shown = line, of.row.release_at, rubric_of(of.session, of.row)
    line, release_at, criteria = cached.shown
    context: dict[str, Any] = {
        "assignment": line,
        "release_at": release_at,
        "filters": filters,
        "address": address_of(filters),
        "here": address_of(filters, number),
    }
    ids = [one.id for one in listed.items] if filters.everything else []
    instead = attempts.list_superseded(of.session, ids, lambda *_: True)
    more = {**context, "listed": listed, "criteria": criteria, "opened": opened, "superseded": instead}
    if not _lasts(filters):
        return Left(cached, listed, _made(filters, more), context)
    inside = cached.pages.get((filters, number)) is listed
    place = (cached.name, current(), request.root_path, sorted(context["address"].items()), number, opened)
    key = mark("list", *place) if inside else ""
    return Left(cached, listed, detail.remembered(key, lambda: _made(filters, more)), context)


def neighbours(of: Of, filters: Filters, submission_id: str, left: Left) -> tuple[str | None, str | None]:
    """The submissions before and after this one."""
    found = left.known.beside.get((filters, submission_id)) if _lasts(filters) else None
    if found is None:
        found = review_worklist.neighbours(of.session, of.row, filters, submission_id, left.listed)
        if _lasts(filters) and len(left.known.beside) < BESIDE:
            left.known.beside[filters, submission_id] = found
    return found


def position(left: Left, submission_id: str) -> int | None:
    """Where a submission is in the list, from 1; nothing where the filter does not match it any more."""
    order = left.listed.order
    return order.index(submission_id) + 1 if submission_id in order else None


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
        rubric: Rubric = curves.load_criteria(session, assignment)
    except NotFound:
        return ()
    return rubric.criteria


def _nothing(_session: Session, _assignment_id: int) -> ListCache:
    return ListCache()


def _lasts(filters: Filters) -> bool:
    """Whether nothing that this filter finds changes without a touch of the assignment."""
    return not (filters.q or filters.machine or filters.model)


def _page(of: Of, filters: Filters, number: int, cached: ListCache) -> Page:
    if not _lasts(filters):
        return review_worklist.load_page(of.session, of.row, filters, number)
    found = cached.pages.get((filters, number))
    if found is None:
        order = cached.orders.get(filters)
        if order is None:
            order = review_worklist.list_ids(of.session, of.row, filters)
            if len(cached.orders) < ORDERS:
                cached.orders[filters] = order
        found = review_worklist.load_page(of.session, of.row, filters, number, order)
        if len(cached.pages) < 2 * ORDERS:
            cached.pages[filters, number] = found
    return found


def _made(filters: Filters, context: dict[str, Any]) -> Markup:
    machines, models = configured_machines()
    html = render_template(
        "review/_list.html",
        choosing=not context["opened"],
        machines=with_chosen(machines, filters.machine),
        models=with_chosen(models, filters.model),
        looks=looks(),
        sorts=sorts(),
        released=released_choices(),
        states=state_choices(),
        chips=chips(filters, context["criteria"]),
        **context,
    )
    return Markup(html)  # noqa: S704 - of a template that escapes


def filters_of(args: Mapping[str, str]) -> Filters:
    """The filter of an address. What makes no sense is left out."""
    found: dict[str, Any] = {}
    for name, attribute in NAMES.items():
        text = args.get(name, "").replace("\0", "").strip()
        if not text:
            continue
        value: Any = text
        if name in SWITCHES:
            value = True
        elif name in POINTS:
            value = number(text)
        try:
            Filters.model_validate({attribute: value})
        except ValidationError:
            continue
        found[attribute] = value
    return Filters.model_validate(found)


def number(text: str) -> float | None:
    """A number as people write it, with a point or a comma, and any minus; nothing for anything else."""
    try:
        value = float(text.strip().replace(",", ".").replace("−", "-"))
    except ValueError:
        return None
    return value if isfinite(value) and abs(value) <= 1e6 else None


def page_of(args: Mapping[str, str]) -> int:
    """The page of an address, from 1."""
    found = parsing.whole_number(args.get("page", ""), 5)
    return 1 if found is None else found


def address_of(filters: Filters, page: int = 1) -> dict[str, Any]:
    """What stands in the address for a filter: only what differs from the defaults."""
    plain = Filters()
    found: dict[str, Any] = {}
    for name, attribute in NAMES.items():
        value = getattr(filters, attribute)
        if value != getattr(plain, attribute):
            found[name] = 1 if name in SWITCHES else f"{value:g}" if name in POINTS else value
    return found | ({"page": page} if page > 1 else {})


def configured_machines() -> tuple[list[str], list[str]]:
    """Names of machines and of models, as config.toml has them: to list all that ever ran costs more."""
    machines = services().config.machines
    models = {place.model for machine in machines for place in machine.stages.values()}
    return [machine.name for machine in machines], sorted(models)


def with_chosen(options: Iterable[str], chosen: str) -> list[str]:
    """Also what is chosen, though it is not configured any more."""
    return sorted({*options, chosen} - {""})


def looks() -> list[tuple[str, str]]:
    """What one may look for."""
    return [
        ("", _("All")),
        ("to_review", _("to review")),
        ("held", _("held for review")),
        ("flagged", _("flagged")),
        ("unreviewed", _("not reviewed")),
        ("reviewed", _("reviewed")),
        ("changed", _("changed manually")),
        ("regrade", _("regrade requested")),
        ("second_opinion", _("second opinion differs")),
    ]


def released_choices() -> list[tuple[str, str]]:
    """States of release to look for."""
    return [
        ("", _("All")),
        ("no", _("not released")),
        ("yes", _("released")),
        ("withdrawn", _("withdrawn")),
    ]


def state_choices() -> list[tuple[str, str]]:
    """States of grading to look for."""
    return [
        ("", _("All")),
        ("open", _("being graded")),
        ("graded", _("graded")),
        ("partial", _("partly graded")),
        ("failed", _("grading failed")),
    ]


def chips(filters: Filters, criteria: Iterable[Criterion]) -> list[tuple[str, dict[str, Any]]]:
    """Each filter that is on: its words, and the address without it. The order of the list is no filter."""
    address, words = address_of(filters), _chip_words(filters, criteria)
    found = []
    for name in [one for one in address if one != "sort"]:
        gone = {name, "clow", "chigh"} if name == "criterion" else {name}  # without it they find nothing
        found.append((words[name], {key: value for key, value in address.items() if key not in gone}))
    return found


def _chip_words(filters: Filters, criteria: Iterable[Criterion]) -> dict[str, str]:
    low, high = filters.criterion_low or 0.0, filters.criterion_high or 0.0
    return {
        "all": _("all submissions"),
        "q": _("Search: %(text)s", text=filters.q),
        "look": dict(looks())[filters.look],
        "released": dict(released_choices())[filters.released],
        "state": dict(state_choices())[filters.state],
        "low": _("at least %(points)s points", points=shown(filters.low or 0.0)),
        "high": _("at most %(points)s points", points=shown(filters.high or 0.0)),
        "criterion": {one.id: one.title for one in criteria}.get(filters.criterion, filters.criterion),
        "clow": _("at least %(points)s points for the criterion", points=shown(low)),
        "chigh": _("at most %(points)s points for the criterion", points=shown(high)),
        "machine": filters.machine,
        "model": filters.model,
        "late": _("late"),
    }


def sorts() -> list[tuple[str, str]]:
    """The orders there are."""
    return [
        ("name", _("name, A to Z")),
        ("-name", _("name, Z to A")),
        ("todo", _("needs review first")),
        ("points", _("lowest points first")),
        ("-points", _("highest points first")),
        ("criterion", _("lowest points for the criterion first")),
        ("new", _("newest first")),
        ("old", _("oldest first")),
    ]
