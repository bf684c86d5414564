"""Trying a rubric, dry runs of a change, and re-runs: begin them, see what they find, apply or discard."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, flash, jsonify, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.web import assignment_pages, auth, grade_view_audit, parsing
from app.web import rubric_texts as words
from app.web.assignment_pages import ANY
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.assignments.editor.diff import differences
from grading.domain.errors import CannotUndo, Conflict, NotFound
from grading.domain.permissions import Actor
from grading.domain.round_states import RoundState
from grading.statistics import grade_impact as figures
from grading.store import tables
from grading.store.assignments import versions
from grading.store.database import now
from grading.store.experiments import apply as dry_run_apply
from grading.store.experiments import dry_runs, impact, undo_apply
from grading.store.experiments.dry_runs import Purpose, StartedDryRun

pages = Blueprint("dry_runs", __name__)
AT_ONCE = 12
"""Rounds that are announced; of more the sweeper takes care, beside what people wait for."""
PER_PAGE = 100
MOST_CHOSEN = 500
CHANGE = "assignment.change"


@pages.get(f"/assignments/{ANY}/dry-runs")
def listing(assignment_id: int) -> str:
    """What was tried, and the forms for more."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        now, has = versions.newest_state_with_files(session, assignment_id)
        top, runs = assignment_pages.head(session, found, now), dry_runs.list_dry_runs(session, assignment_id)
        recent, more = dry_runs.list_recent(session, assignment_id)
    return render_template(
        "experiments/dry_runs.html", head=top, runs=runs, recent=recent, more=more, has=has
    )


@pages.post(f"/assignments/{ANY}/dry-runs")
def begin(assignment_id: int) -> Response:
    """Begin what a button says: try, dry run, or re-run."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        assignment_pages.changeable(session, actor, assignment_id)
    purpose = _purpose()
    try:
        with services().store.write() as session:
            found = assignment_pages.changeable(
                session, actor, assignment_id, "rerun" if purpose == "rerun" else CHANGE
            )
            begun = _begin(session, found, purpose, actor)
    except Conflict as error:
        flash(render_error(error))
        return redirect(url_for("dry_runs.listing", assignment_id=assignment_id), 303)
    for round_id in begun.round_ids[:AT_ONCE]:
        services().dispatch.announce(round_id)
    return redirect(url_for("dry_runs.show", dry_run_id=begun.dry_run_id), 303)


def _begin(session: Session, found: tables.Assignment, purpose: Purpose, actor: Actor) -> StartedDryRun:
    """Raises Conflict where nothing is chosen, or there is nothing to compare."""
    working = versions.load_newest(session, found)
    version = working.version
    chosen: list[str] = []
    if purpose == "rerun":
        version = versions.published_version(session, found)
    elif purpose == "rubric" and not working.draft:
        raise Conflict(_("There is no draft. Edit the rubric first, then compare the effect."))
    if purpose == "try":
        wanted = [one for one in ("starter", "solution") if request.form.get(one)]
        tried = [dry_runs.create_sample_submission(session, found, version, one, actor) for one in wanted]  # type: ignore[arg-type]
        chosen += [one for one in tried if one is not None]
    return dry_runs.start_dry_run(
        session, found, version, [*chosen, *_chosen(session, found.id)], purpose, actor
    )


def _chosen(session: Session, assignment_id: int) -> list[str]:
    which = request.form.get("which", "some")
    if which in ("latest", "all"):
        return dry_runs.select_submissions(session, assignment_id, "latest" if which == "latest" else "all")
    named = [one for one in request.form.getlist("submission") if one.isalnum()][:MOST_CHOSEN]
    return dry_runs.select_submissions(session, assignment_id, named) if named else []


def _purpose() -> Purpose:
    purpose = request.form.get("purpose", "")
    if purpose == "try":
        return "try"
    if purpose == "rerun":
        return "rerun"
    if purpose == "rubric":
        return "rubric"
    raise NotFound(_("Choose an action."))


@pages.get("/dry-runs/<dry_run_id>")
def show(dry_run_id: str) -> str:
    """How far it is, and whose grade would move by how much."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        run, found = _load(session, actor, dry_run_id)
        top = assignment_pages.head(session, found)
        (line,) = dry_runs.list_dry_runs(session, found.id, run.id)
        moved = impact.load_impact(session, run)
        changed = [] if top.counting_id == run.rubric_version_id else _changed(session, found, run)
    boundary = _boundary()
    points = [one.points for one in moved.rows if one.points is not None and not one.sample]
    page = max(1, assignment_pages.whole("page") or 1)
    pages_ = max(1, -(-len(moved.rows) // PER_PAGE))
    page = min(page, pages_)
    return render_template(
        "experiments/dry_run.html",
        head=top,
        run=line,
        moves=moved.rows[(page - 1) * PER_PAGE : page * PER_PAGE],
        page=page,
        pages=pages_,
        total=len(moved.rows),
        released=sum(one.released for one in moved.rows),
        conflicts={key: [words.conflict_words(c) for c in some] for key, some in moved.conflicts.items()},
        changed=changed,
        summary=figures.summary(points, boundary),
        dots=figures.dots(points),
        scale=figures,
        boundary=boundary,
        counts=_counts(moved.rows),
    )


@pages.get("/dry-runs/<dry_run_id>/progress.json")
def progress(dry_run_id: str) -> Response:
    """What the page asks for while it waits."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        run, _found = _load(session, actor, dry_run_id)
        states = dry_runs.count_states(session, run.id)
    ended = sum(count for state, count in states.items() if state in dry_runs.ENDED)
    return jsonify(total=sum(states.values()), ended=ended, over=ended >= sum(states.values()))


@pages.get("/dry-runs/<dry_run_id>/submissions/<submission_id>")
def one(dry_run_id: str, submission_id: str) -> str:
    """One submission, criterion by criterion, as it counts and as it was tried."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        run, found = _load(session, actor, dry_run_id)
        top = assignment_pages.head(session, found)
        (line,) = dry_runs.list_dry_runs(session, found.id, run.id)
        tried = impact.load_reports(session, run, submission_id)
    grade_view_audit.levels_shown(actor, [submission_id])
    return render_template(
        "experiments/dry_run_submission.html",
        head=top,
        run=line,
        tried=tried,
        rows=_beside(tried),
        adjusted=_adjusted(tried),
    )


def _beside(tried: impact.ReportPair) -> list[tuple[Any, Any]]:
    """Criteria as they count and as they were tried, matched by their ids."""
    before = {one.criterion: one for one in tried.before.criteria} if tried.before else {}
    after = {one.criterion: one for one in tried.after.criteria} if tried.after else {}
    return [(before.get(key), after.get(key)) for key in dict.fromkeys([*after, *before])]


def _adjusted(tried: impact.ReportPair) -> list[tuple[str, float | None, float | None]]:
    """Title and points taken on each side, of deductions and caps, and of bonus above its limit."""
    sides = [
        {} if report is None else {one.adjustment: one for one in report.adjustments}
        for report in (tried.before, tried.after)
    ]
    rows: list[tuple[str, float | None, float | None]] = []
    for key in dict.fromkeys([*sides[1], *sides[0]]):
        before, after = (side.get(key) for side in sides)
        was, now = (None if one is None else one.points for one in (before, after))
        if was or now:
            rows.append((str(getattr(after or before, "title", key)), was, now))
    was, now = (None if report is None else report.bonus_lost for report in (tried.before, tried.after))
    return [*rows, (_("Bonus above the limit"), was, now)] if was or now else rows


@pages.post("/dry-runs/<dry_run_id>/apply")
def apply(dry_run_id: str) -> Response:
    """Make its gradings and its version count."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            _load(session, actor, dry_run_id, "rerun")
            keep = request.form.get("released") != "change"
            done = dry_run_apply.apply_dry_run(session, dry_run_id, actor, keep_released=keep)
            moment = now(session).isoformat()
    except Conflict as error:
        flash(render_error(error))
        return redirect(url_for("dry_runs.show", dry_run_id=dry_run_id), 303)
    message = ngettext("%(count)s grade was replaced.", "%(count)s grades were replaced.", done.replaced)
    message += " " + _("This version is now used for grading.")
    flash_undo(message, "dry_runs.undo", {"at": moment}, dry_run_id=dry_run_id)
    for count, sentence in (
        (done.kept_released, _("%(count)s unchanged: students can already see them.")),
        (
            done.kept_better,
            _("%(count)s unchanged: the new grading is incomplete or awaits review."),
        ),
        (done.unfinished + done.not_graded, _("%(count)s unchanged: their grading failed.")),
    ):
        if count:
            flash(sentence % {"count": count})
    return redirect(url_for("dry_runs.show", dry_run_id=dry_run_id), 303)


@pages.post("/dry-runs/<dry_run_id>/undo")
def undo(dry_run_id: str) -> Response:
    """Make the gradings and the version current that were before it was applied, or open a discarded one."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            _load(session, actor, dry_run_id, CHANGE if "discarded" in request.form else "rerun")
            if "discarded" in request.form:
                moment = parsing.form_moment("discarded")
                dry_runs.restore_dry_run(session, dry_run_id, moment, actor)
                message = _("Undone. The dry run can be applied again.")
            else:
                moment = parsing.form_moment("at")
                count = undo_apply.undo_application(session, dry_run_id, moment, actor)
                message = ngettext("Undone for %(count)s grade.", "Undone for %(count)s grades.", count)
        flash(message)
    except CannotUndo as error:
        flash(render_error(error), "warning")
    return redirect(url_for("dry_runs.show", dry_run_id=dry_run_id), 303)


@pages.post("/dry-runs/<dry_run_id>/discard")
def discard(dry_run_id: str) -> Response:
    """Nothing of it will count."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            _run, found = _load(session, actor, dry_run_id)
            assignment_id = found.id
            complete = dry_runs.discard_dry_run(session, dry_run_id, actor)
            moment = now(session).isoformat()
    except Conflict as error:
        flash(render_error(error))
        return redirect(url_for("dry_runs.show", dry_run_id=dry_run_id), 303)
    if complete:
        flash_undo(
            _("Discarded. No grades changed."), "dry_runs.undo", {"discarded": moment}, dry_run_id=dry_run_id
        )
    else:
        flash(_("Discarded. No grades changed."))
    return redirect(url_for("dry_runs.listing", assignment_id=assignment_id), 303)


def _load(
    session: Session, actor: Actor, dry_run_id: str, action: str = CHANGE
) -> tuple[tables.DryRun, tables.Assignment]:
    """A dry run this reader may look at. Raises NotFound where they cannot know of it, Forbidden."""
    run = dry_runs.load_dry_run(session, dry_run_id)
    if run.purpose not in dry_runs.REASONS:
        raise NotFound(_("This dry run does not exist."))
    found = dry_runs.assignment_of(session, run)
    if not auth.knows_course(actor, found.course_id):
        raise NotFound(_("This dry run does not exist."))
    assignment_pages.require_change(actor, found, action)
    return run, found


def _changed(session: Session, found: tables.Assignment, run: tables.DryRun) -> list[str]:
    """What the tried version changes of the one that counts."""
    counts = versions.find_published(session, found)
    if counts is None:
        return []
    tried = session.get_one(tables.RubricVersion, run.rubric_version_id)
    return [
        words.difference_words(d)
        for d in differences(versions.comparable(counts), versions.comparable(tried))
    ]


def _boundary() -> float:
    typed = request.args.get("boundary", "").replace(",", ".")
    try:
        value = float(typed) if typed else figures.PASS
    except ValueError:
        return figures.PASS
    return value if 0 < value <= 100 else figures.PASS


def _counts(rows: tuple[impact.GradeImpact, ...]) -> dict[str, int]:
    """How many wait, are under way, and did not come to an end."""
    waiting = (RoundState.RECEIVED, RoundState.QUEUED)
    states = [one.state for one in rows]
    return {
        "waiting": sum(state in waiting for state in states),
        "running": states.count(RoundState.RUNNING),
        "failed": states.count(RoundState.FAILED),
        "partial": states.count(RoundState.PARTIAL),
        "held": sum(one.held for one in rows),
    }
