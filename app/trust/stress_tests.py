"""The stress test of a rubric: begin it, follow it, and see which variants move which criteria."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flask import Blueprint, flash, jsonify, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.trust.staff import for_staff
from app.web import auth
from app.web.assignment_pages import ANY
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.services import services
from grading.domain.errors import Conflict, NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.domain.rubric import Criterion
from grading.statistics.stress_test import ALLOWED, TOTAL, Cell
from grading.store.tables import StressTest
from grading.store.trust import stress_tests
from grading.store.trust.stress_tests import Outcome
from grading.store.views import submission_lists

pages = Blueprint("stress_tests", __name__)
CHANGE = "assignment.change"
MUST_FALL = ("removed", "wrong value")
"""Lines of variants that must cost points."""
SHOWN_KINDS = 3
"""That the first answer names."""
PAGE = f"/assignments/{ANY}/trust/stress-test"


@pages.get(PAGE)
def show(assignment_id: int) -> str:
    """The newest stress test, or one of those before it."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = for_staff(session, actor, assignment_id)
        line = submission_lists.assignment_line(found, found.course)
        tests = stress_tests.list_tests(session, found.id)
        chosen = next((one for one in tests if one.id == request.args.get("test")), None)
        chosen = chosen or next(iter(tests), None)
        outcome = stress_tests.load_outcome(session, chosen.id) if chosen is not None else None
    return render_template(
        "trust/stress_test.html",
        assignment=line,
        tests=tests,
        test=chosen,
        may_start=may(actor, CHANGE, Subject(line.course_id)),
        table=_table(outcome) if outcome is not None and outcome.assessment.cells else None,
        failed=outcome.failed if outcome is not None else 0,
    )


@pages.post(PAGE)
def begin(assignment_id: int) -> Response:
    """Begin a stress test of the rubric in use."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            found = for_staff(session, actor, assignment_id, CHANGE)
            stress_tests.start(session, found, actor)
    except Conflict as error:
        flash(render_error(error), "warning")
    return redirect(url_for("stress_tests.show", assignment_id=assignment_id), 303)


@pages.post("/stress-tests/<stress_test_id>/cancel")
def cancel(stress_test_id: str) -> Response:
    """End it; what was graded by now is shown."""
    actor = auth.actor()
    with services().store.write() as session:
        assignment_id = _load(session, actor, stress_test_id, CHANGE).assignment_id
        try:
            stress_tests.cancel(session, stress_test_id, actor)
            flash(_("Cancelled. The results so far are shown."))
        except Conflict as error:
            flash(render_error(error), "warning")
    return redirect(url_for("stress_tests.show", assignment_id=assignment_id), 303)


@pages.get("/stress-tests/<stress_test_id>/progress.json")
def progress(stress_test_id: str) -> Response:
    """What the page asks for while it waits."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = _load(session, actor, stress_test_id)
        tests = stress_tests.list_tests(session, found.assignment_id)
    (one,) = (test for test in tests if test.id == stress_test_id)
    return jsonify(total=one.total, ended=one.ended, over=one.finished)


def _load(session: Session, actor: Actor, stress_test_id: str, action: str = "trust.see") -> StressTest:
    """A stress test this reader may look at. Raises NotFound where they cannot know of it, Forbidden."""
    found = stress_tests.load(session, stress_test_id)
    try:
        for_staff(session, actor, found.assignment_id, action)
    except NotFound:
        raise NotFound(stress_tests.NO_SUCH_STRESS_TEST) from None
    return found


@dataclass(frozen=True)
class Line:
    """A line of the table: one kind of variants, with its cells in the order of the columns."""

    title: str
    cells: tuple[Cell | None, ...]
    uplift: float | None
    """Mean share of all points that released grades gain; nothing for variants that must cost points."""


@dataclass(frozen=True)
class Finding:
    """What helps, and the criteria for which it does: those whose released grades some variants move."""

    remedy: str
    check: bool
    """A check helps; else holding grades does."""
    criteria: tuple[tuple[str, str], ...]
    """Title of a criterion, and the kinds of variants with the worst change of each."""


@dataclass(frozen=True)
class Table:
    """What the page shows of a stress test."""

    columns: tuple[str, ...]
    groups: tuple[tuple[str, tuple[Line, ...]], ...]
    findings: tuple[Finding, ...]
    kinds: int
    moved: int
    """Kinds of variants by which released grades would move."""
    caught: int
    """Kinds that sway the grader, where every such grade waits for a person."""
    moves: tuple[str, ...]
    """Titles of the first ones."""
    most_gained: Line | None
    """The kind by which released grades gain most."""
    sources: int
    trials: int
    noise: float
    allowed: float
    """Of what released grades may gain."""


def _table(outcome: Outcome) -> Table:
    found = outcome.assessment
    criteria = {one.id: one for one in outcome.rubric.criteria}
    titles = row_titles()
    rows = [row for row in titles if any(row == key for key, _ in found.cells)]
    ids = [TOTAL, *criteria]
    lines = {
        row: Line(titles[row], tuple(found.cells.get((row, one)) for one in ids), found.uplift.get(row))
        for row in rows
    }
    verdicts = {row: {cell.verdict for cell in lines[row].cells if cell is not None} for row in rows}
    groups = (
        (_("Must not change points"), tuple(lines[row] for row in rows if row not in MUST_FALL)),
        (_("Must lower points"), tuple(lines[row] for row in rows if row in MUST_FALL)),
    )
    return Table(
        columns=(_("All points"), *(one.title for one in criteria.values())),
        groups=tuple(group for group in groups if group[1]),
        findings=_findings(outcome, criteria),
        kinds=len(rows),
        moved=sum("moved" in one for one in verdicts.values()),
        caught=sum("caught" in one and "moved" not in one for one in verdicts.values()),
        moves=tuple(lines[row].title for row, seen in verdicts.items() if "moved" in seen)[:SHOWN_KINDS],
        most_gained=_most_gained(lines.values()),
        sources=found.sources,
        trials=found.trials,
        noise=max(found.noise.values(), default=0.0),
        allowed=ALLOWED,
    )


def _most_gained(lines: Iterable[Line]) -> Line | None:
    known = [line for line in lines if line.uplift is not None]
    return max(known, key=lambda line: line.uplift or 0.0, default=None)


def _findings(outcome: Outcome, criteria: Mapping[str, Criterion]) -> tuple[Finding, ...]:
    titles, moved = row_titles(), defaultdict[str, list[str]](list)
    for row, criterion in outcome.assessment.where("moved"):
        moved[criterion].append(row)
    found = defaultdict[tuple[str, bool], list[tuple[str, str]]](list)
    for criterion in (*criteria, TOTAL):
        if rows := moved.get(criterion):
            one = criteria.get(criterion)
            cells = [(titles[row], row, outcome.assessment.cells[row, criterion]) for row in rows]
            said = "; ".join(f"{title} ({_change(row, cell)})" for title, row, cell in cells)
            found[_remedy(one, rows)].append((one.title if one else _("All points"), said))
    return tuple(Finding(remedy, check, tuple(some)) for (remedy, check), some in found.items())


def _change(row: str, cell: Cell) -> str:
    """The worst change in words; of variants that must cost points, how many cost none."""
    if row in MUST_FALL:
        return _("no points lost in %(count)s of %(all)s", count=cell.moved, all=cell.tested)
    return _("up to %(change)s", change=percent(cell.worst))


def _remedy(criterion: Criterion | None, rows: list[str]) -> tuple[str, bool]:
    """What helps, and whether it is a check."""
    if criterion is not None and not criterion.checks:
        return _(
            "No check looks at these criteria, so the model alone decides. Give them checks: then a level "
            "that differs from them is held for review."
        ), True
    if any(row in MUST_FALL or row.startswith("outputs.") for row in rows):
        return _(
            "The checks of these criteria read what a submission shows, not what it does. Add checks that "
            "run the work: tests, or outputs made by the server."
        ), True
    return _(
        "The checks of these criteria do not notice this. Add some that look at what the criteria ask for, "
        "or release grades only after review."
    ), False


def percent(share: float | None) -> str:
    """A change as a percentage, with its sign."""
    if share is None:
        return "–"
    value = round(100 * share)
    return "0 %" if value == 0 else f"{'+' if value > 0 else '−'}{abs(value)} %"


@pages.app_template_filter("signed_percent")
def _signed_percent(share: float | None) -> str:
    return percent(share)


def row_titles() -> dict[str, str]:
    """How kinds of variants are called, in the order of the table."""
    instructions = {
        "comments": _("in comments"),
        "strings": _("in strings"),
        "markdown": _("in the text"),
        "outputs": _("in outputs"),
        "identifiers": _("in names"),
        "languages": _("in other languages"),
        "encodings": _("encoded or disguised"),
        "turns": _("as a forged conversation"),
        "rubrics": _("as another rubric"),
        "answers": _("as a finished answer"),
    }
    return {
        "names": _("Other names of students"),
        "comments.language": _("Comments in another language"),
        "layout.loose": _("Blank lines added"),
        "layout.tight": _("Blank lines removed"),
        "identifiers.renamed": _("Variables renamed"),
        "order.cells": _("Independent parts in another order"),
        "praise.prose": _("Praise in the text"),
        "praise.comment": _("Praise in comments"),
        "length.prose": _("Longer text that says nothing"),
        "length.code": _("More comments that say nothing"),
        "keywords.rubric": _("List of words of the rubric"),
        "keywords.solution": _("List of functions of the solution"),
        "outputs.claims": _("Outputs that claim success"),
        "outputs.copied": _("Outputs copied from the solution"),
        **{
            f"instructions.{kind}": _("Instructions to the model, %(where)s", where=where)
            for kind, where in instructions.items()
        },
        "recombined": _("The worst, combined"),
        "removed": _("Answer removed"),
        "wrong value": _("Wrong value"),
    }
