"""Pages of examples: corrections that later gradings read, edited, switched off, evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.web import auth, grade_view_audit, page_cache, parsing
from app.web.human_ceiling import load_ceiling
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import GraderError, NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.domain.rubric import Criterion
from grading.domain.shared_messages import NO_SUCH_ASSIGNMENT
from grading.store import tables
from grading.store.database import now
from grading.store.experiments import corrections, example_evaluation, examples
from grading.store.experiments.example_evaluation import Evaluation, HeldOutCorrections
from grading.store.experiments.examples import LONGEST, LONGEST_REASON, ExampleEntry, student_identities
from grading.store.rounds import example_usage
from grading.store.views import review_worklist

pages = Blueprint("examples", __name__)
PLACE = "/assignments/<int(max=2147483647):assignment_id>/examples"
ONE = f"{PLACE}/<int(max=2147483647):example_id>"
PAGES = 50
"""Pages of corrections that are kept."""
SHOWN = 6
"""Examples of a page."""
LINKS = 8
"""Links to gradings that stand with an example before the rest is folded."""
Page = str | Response | tuple[str, int]


@pages.get(PLACE)
def listing(assignment_id: int) -> str:
    """Examples, corrections to choose from, and their effect."""
    with services().store.read_autocommit() as session:
        assignment = _assignment(session, auth.actor(), assignment_id)
        return _page(session, assignment)


@pages.get(f"{PLACE}/new")
def proposal(assignment_id: int) -> str:
    """A correction as it would be shown, to be edited first."""
    with services().store.read_autocommit() as session:
        assignment = _assignment(session, auth.actor(), assignment_id)
        return _proposal(session, assignment, _number(request.args.get("change", "")))


@pages.post(PLACE)
def add(assignment_id: int) -> Page:
    """Make a correction an example for later gradings."""
    actor, form = auth.actor(), request.form
    change = _number(form.get("change", ""))
    try:
        with services().store.write() as session:
            _assignment(session, actor, assignment_id)
            words = (form.get("excerpt", ""), form.get("reason", ""))
            made = examples.create_example(session, assignment_id, change, *words, actor)
            on = session.get_one(tables.Example, made).active
    except NotFound:
        raise
    except GraderError as error:
        return _again(assignment_id, error, change=change)
    message = _("Added. New gradings use this example.")
    if not on:
        message = _("Added, but turned off: the limit is reached. Turn another example off to use this one.")
    flash_undo(message, "examples.remove", assignment_id=assignment_id, example_id=made)
    return _back(assignment_id)


@pages.post(ONE)
def edit(assignment_id: int, example_id: int) -> Page:
    """Put an example in other words."""
    form = request.form
    words = (form.get("excerpt", ""), form.get("reason", ""))
    return _changed(
        assignment_id,
        example_id,
        lambda session, actor: examples.edit_example(session, assignment_id, example_id, *words, actor),
        _("Saved. New gradings use the new text."),
    )


@pages.post(f"{ONE}/switch")
def switch(assignment_id: int, example_id: int) -> Page:
    """Show an example to models from now on, or no more."""
    on = request.form.get("on") == "1"
    return _changed(
        assignment_id,
        example_id,
        lambda session, actor: examples.set_active(session, assignment_id, example_id, on, actor),
        _("Turned on.") if on else _("Turned off. New gradings do not use this example."),
        {"on": 0 if on else 1},
    )


@pages.post(f"{ONE}/remove")
def remove(assignment_id: int, example_id: int) -> Page:
    """Take an example away."""
    actor = auth.actor()
    with services().store.write() as session:
        _assignment(session, actor, assignment_id)
        examples.remove_example(session, assignment_id, example_id, actor)
        moment = now(session).isoformat()
    ids = {"assignment_id": assignment_id, "example_id": example_id}
    flash_undo(_("Removed. Existing grades do not change."), "examples.restore", {"at": moment}, **ids)
    return _back(assignment_id)


@pages.post(f"{ONE}/restore")
def restore(assignment_id: int, example_id: int) -> Page:
    """Undo the removal of an example."""

    def work(session: Session, actor: Actor) -> None:
        examples.find_example(session, assignment_id, example_id)
        moment = parsing.form_moment("at")
        examples.restore_example(session, assignment_id, example_id, moment, actor)

    return _changed(assignment_id, example_id, work, _("Undone. The example is back."))


@pages.post(f"{PLACE}/measure")
def measure(assignment_id: int) -> Page:
    """Grade corrections that are no examples again, with the examples."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            _assignment(session, actor, assignment_id)
            begun = example_evaluation.start_evaluation(session, assignment_id, actor)
    except NotFound:
        raise
    except GraderError as error:
        return _again(assignment_id, error)
    for round_id in begun.round_ids:
        services().dispatch.announce(round_id)
    flash(_("Regrading %(count)s submissions in the background.", count=len(begun.round_ids)))
    return _back(assignment_id, "effect")


def _changed(
    assignment_id: int, example_id: int, change: Any, message: str, undo: Mapping[str, int] | None = None
) -> Page:
    """Change an example; `undo` are the fields that switch it back."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            _assignment(session, actor, assignment_id)
            change(session, actor)
    except NotFound:
        raise
    except GraderError as error:
        return _again(assignment_id, error, example=example_id)
    if undo is None:
        flash(message)
    else:
        flash_undo(message, "examples.switch", undo, assignment_id=assignment_id, example_id=example_id)
    return _back(assignment_id, f"example-{example_id}", example_id)


def _back(assignment_id: int, anchor: str | None = None, example: int | None = None) -> Response:
    address = url_for("examples.listing", assignment_id=assignment_id, example=example, _anchor=anchor)
    return redirect(address, 303)


def _again(assignment_id: int, error: GraderError, change: int = 0, example: int = 0) -> tuple[str, int]:
    """The page with what was wrong and what was typed."""
    with services().store.read_autocommit() as session:
        assignment = _assignment(session, auth.actor(), assignment_id)
        if change:
            return _proposal(session, assignment, change, render_error(error)), error.status
        return _page(session, assignment, render_error(error), example), error.status


def _page(session: Session, assignment: tables.Assignment, problem: str = "", typed: int = 0) -> str:
    facts = page_cache.of_assignment("examples", session, assignment.course_id, assignment.id, _facts)
    rubric, entries = facts.rubric, facts.known
    at, pages_ = _place(entries, typed or _number(request.args.get("example", "")))
    here = entries[(at - 1) * SHOWN : at * SHOWN]
    chosen = request.args.get("criterion", "")
    chosen = chosen if any(one.id == chosen for one in rubric) else ""
    page = _number(request.args.get("page", "")) or 1
    linked = {one for example in here for one in facts.uses.get(example.key, ())[:LINKS]}
    on = [(one.criterion, len(one.excerpt) + len(one.reason)) for one in entries if one.active]
    return render_template(
        "experiments/examples.html",
        assignment=assignment,
        known=here,
        counts=_counts(entries),
        listed={"page": at, "pages": pages_},
        shown_keys=sorted(one.key for one in entries if one.works),
        criteria=rubric,
        chosen=chosen,
        found=_found(session, assignment.id, facts, page, chosen),
        held=facts.held,
        measured=facts.measured,
        people=load_ceiling(session, assignment.course_id, assignment.id) if facts.measured else (),
        uses=facts.uses,
        names=example_usage.student_names(session, sorted(linked)) if linked else {},
        problem=problem,
        typed=typed,
        links=LINKS,
        left=examples.remaining_capacity(on).chars,
        **_bounds(),
    )


@dataclass(frozen=True)
class _Facts:
    """What the page rests on; it changes only where something of the assignment does."""

    known: list[ExampleEntry]
    rubric: tuple[Criterion, ...]
    held: HeldOutCorrections
    measured: Evaluation | None
    uses: dict[str, list[str]]
    found: dict[tuple[int, str], corrections.Page] = field(default_factory=dict)
    """Pages of corrections, by number and criterion."""


def _found(session: Session, assignment_id: int, facts: _Facts, page: int, chosen: str) -> corrections.Page:
    found = facts.found.get((page, chosen))
    if found is None:
        found = corrections.list_corrections(session, assignment_id, page, chosen)
        if len(facts.found) < PAGES:
            facts.found[page, chosen] = found
    return found


def _facts(session: Session, assignment_id: int) -> _Facts:
    entries = examples.list_examples(session, assignment_id)
    return _Facts(
        known=entries,
        rubric=examples.load_criteria(session, assignment_id),
        held=example_evaluation.load_held_out(session, assignment_id, entries),
        measured=example_evaluation.load_evaluation(session, assignment_id),
        uses=example_usage.list_uses(session, assignment_id) if entries else {},
    )


def _place(entries: list[ExampleEntry], example_id: int) -> tuple[int, int]:
    """The page of the list, that with an example where one is meant, and how many there are."""
    last = max(1, -(-len(entries) // SHOWN))
    index = next((at for at, one in enumerate(entries) if one.id == example_id), None)
    wanted = _number(request.args.get("shown", "")) or 1
    return (min(wanted, last) if index is None else index // SHOWN + 1), last


def _counts(entries: list[ExampleEntry]) -> dict[str, tuple[int, int]]:
    """Of each criterion how many examples are on, and how many there are."""
    found: dict[str, tuple[int, int]] = {}
    for one in entries:
        on, count = found.get(one.criterion, (0, 0))
        found[one.criterion] = on + one.works, count + 1
    return found


def _proposal(session: Session, assignment: tables.Assignment, change: int, problem: str = "") -> str:
    found = corrections.load_correction(session, assignment.id, change)
    grade_view_audit.viewed(auth.actor(), found.submission_id, "example")
    criterion = next(
        (c for c in examples.load_criteria(session, assignment.id) if c.id == found.criterion), None
    )
    excerpt, reason = request.form.get("excerpt"), request.form.get("reason")
    if excerpt is None:
        theirs = student_identities(session, found.submission_id)
        excerpt = corrections.propose_excerpt(session, found, criterion.where if criterion else None, theirs)
    return render_template(
        "experiments/new_example.html",
        assignment=assignment,
        found=found,
        criterion=criterion,
        excerpt=excerpt,
        reason=found.reason if reason is None else reason,
        problem=problem,
        **_bounds(),
    )


def _bounds() -> dict[str, int]:
    return {
        "per_criterion": examples.PER_CRITERION,
        "most_chars": examples.MOST_CHARS,
        "longest": LONGEST,
        "longest_reason": LONGEST_REASON,
        "most_measured": example_evaluation.MOST,
    }


def _number(text: str) -> int:
    """A number that a column holds; 0 for everything else."""
    return parsing.whole_number(text) or 0


def _assignment(session: Session, actor: Actor, assignment_id: int) -> tables.Assignment:
    """The assignment, for who may change its examples. Raises NotFound outside of the course, Forbidden."""
    found = review_worklist.find_assignment(session, assignment_id)
    if not may(actor, "assignment.see", Subject(found.course_id)):
        raise NotFound(NO_SUCH_ASSIGNMENT)
    auth.require(actor, "example.change", Subject(found.course_id))
    return found
