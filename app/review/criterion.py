"""Going through one criterion for all submissions of an assignment, and how far its staff has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.review import criterion_page, views, worklist
from app.review.criterion_page import CriterionPage, Switches
from app.web import auth, grade_view_audit, parsing
from app.web.i18n import gettext as _
from app.web.i18n import number, render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import Conflict, NotFound
from grading.domain.permissions import Actor
from grading.domain.report_changes import Change, item_target, split_item_target
from grading.domain.rubric import Criterion
from grading.domain.shared_messages import NO_SUCH_SUBMISSION
from grading.scoring.proposed_levels import judgement_of_model
from grading.store import tables
from grading.store.review import criterion_edits, rubric_items
from grading.store.review.criterion_edits import CriterionEdit
from grading.store.review.edits import NO_SUCH_CRITERION, ChangeRefused
from grading.store.review.rubric_items import ItemRefused
from grading.store.views import criterion_worklist, submission_lists
from grading.store.views.criterion_worklist import CriterionEntry, CriterionProgress
from grading.store.views.submission import SubmissionView

pages = Blueprint("criterion", __name__)
ROOT = "/assignments/<int(max=2147483647):assignment_id>/review/criteria"
ALL = f"{ROOT}/<criterion>"
ONE = f"{ALL}/submissions/<submission_id>"
PER_PAGE = 50
"""Submissions on one page of a criterion's list."""
Answer = Response | str | tuple[str, int]


@dataclass(frozen=True)
class Row:
    """A submission of a criterion's list, by the name that the page shows."""

    name: str
    entry: CriterionEntry


@dataclass(frozen=True)
class Across:
    """A criterion with the submissions that one goes through, in their order."""

    assignment: submission_lists.AssignmentLine
    criterion: Criterion
    rows: tuple[Row, ...]
    switches: Switches

    @property
    def ids(self) -> list[str]:
        """The submissions' ids."""
        return [row.entry.submission_id for row in self.rows]

    @property
    def progress(self) -> CriterionProgress:
        """How far the criterion is graded."""
        return criterion_worklist.progress([row.entry for row in self.rows])

    def open_after(self, submission_id: str) -> tuple[str, ...]:
        """The submissions that no person has graded: those after this one first."""
        return criterion_worklist.open_after([row.entry for row in self.rows], submission_id)

    def values(self, submission_id: str = "", **other: Any) -> dict[str, Any]:
        """Of the address of a page of this criterion, or of one of its submissions."""
        here = {"assignment_id": self.assignment.id, "criterion": self.criterion.id, **other}
        one = {"submission_id": submission_id} if submission_id else {}
        return {**here, **one, **self.switches.address()}


@dataclass(frozen=True)
class Saved:
    """What was saved last, as the address says it, so that it can be undone."""

    submission_id: str
    name: str
    change: str


@pages.get(ROOT)
def overview(assignment_id: int) -> str:
    """All criteria: how many submissions of each are graded, and by whom."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        assignment = views.of_class(session, actor, assignment_id)
        line = submission_lists.assignment_line(assignment, assignment.course)
        criteria = worklist.rubric_of(session, assignment)
        found = criterion_worklist.load_worklist(session, assignment)
    rows = [(one, criterion_worklist.progress(found.get(one.id, ()))) for one in criteria]
    return render_template(
        "review/criteria.html", assignment=line, rows=rows, switches=_switches(), actor=actor
    )


@pages.get(ALL)
def listing(assignment_id: int, criterion: str) -> str:
    """The submissions by one criterion, and who graded them."""
    actor = auth.actor()
    wanted = request.args.get("item", "")[:32]
    with services().store.read_autocommit() as session:
        found = _across(session, actor, assignment_id, criterion)
        item = rubric_items.load_item(session, assignment_id, wanted) if wanted else None
        having = rubric_items.submissions_with(session, assignment_id, criterion) if wanted else {}
    rows = [row for row in found.rows if not item or row.entry.submission_id in having.get(wanted, ())]
    count = -(-len(rows) // PER_PAGE) or 1
    page = min(worklist.page_of(request.args), count)
    here = rows[(page - 1) * PER_PAGE : page * PER_PAGE]
    if not found.switches.blind:
        grade_view_audit.levels_shown(actor, [row.entry.submission_id for row in here])
    return render_template(
        "review/criterion_list.html",
        across=found,
        item=item,
        saved=_saved_last(found),
        here=here,
        page=page,
        pages=count,
        actor=actor,
    )


@pages.get(f"{ALL}/next")
def following(assignment_id: int, criterion: str) -> Response:
    """Lead to the next submission that nobody has graded by this criterion, nor grades now."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = _across(session, actor, assignment_id, criterion)
    return _lead_on(actor, found, request.args.get("after", ""))


@pages.get(ONE)
def one(assignment_id: int, criterion: str, submission_id: str) -> str:
    """One submission by this criterion."""
    return _page(auth.actor(), assignment_id, criterion, submission_id)


@pages.post(ONE)
def save(assignment_id: int, criterion: str, submission_id: str) -> Answer:
    """Save a level or a confirmation, and lead on to the next ungraded submission."""
    actor, edit = auth.actor(), _edit()
    try:
        with services().store.write() as session:
            view = _of(assignment_id, views.load_view(session, actor, submission_id, "grade.change"))
            page = criterion_page.load_page(session, view, criterion, _switches(), actor)
            if edit.text == page.text.strip():  # as it was shown, perhaps without names: it stays
                edit = edit.model_copy(update={"text": ""})
            made = criterion_edits.grade_criterion(
                session, submission_id, page.criterion, edit, request.form.get("seen", "")[:100], actor
            )
            found = _across(session, actor, assignment_id, criterion)
    except (ChangeRefused, Conflict) as error:
        return _page(actor, assignment_id, criterion, submission_id, error, edit.text), error.status
    change = ".".join(map(str, made))
    flash_undo(_saved(page, edit), "criterion.undo", {"change": change}, **found.values(submission_id))
    return _lead_on(actor, found, submission_id, undo=f"{submission_id}.{change}")


@pages.post(f"{ONE}/items")
def change_item(assignment_id: int, criterion: str, submission_id: str) -> Answer:
    """Apply or remove a rubric item, or add one and apply it; the page stays."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            view = _of(assignment_id, views.load_view(session, actor, submission_id, "grade.change"))
            wanted = _wanted_item(session, view, criterion, actor)
            made = criterion_edits.change_item(session, submission_id, wanted, actor)
            found = _across(session, actor, assignment_id, criterion)
    except (ChangeRefused, ItemRefused) as error:
        return _page(actor, assignment_id, criterion, submission_id, error), error.status
    words = _("Rubric item applied.") if wanted.kind == "item" else _("Rubric item removed.")
    words += _(" The student can see it.") if view.released else ""
    if made:
        flash_undo(words, "criterion.undo", {"change": str(made[0])}, **found.values(submission_id))
    return redirect(url_for("criterion.one", **found.values(submission_id)), 303)


def _wanted_item(session: Session, view: SubmissionView, criterion: str, actor: Actor) -> Change:
    """The change that the form asks for. Raises ItemRefused, ChangeRefused."""
    form = request.form
    if form.get("kind") == "new_item":
        assignment = session.get_one(tables.Assignment, view.assignment_id)
        item = views.new_item(session, assignment, criterion, actor)
        return Change(kind="item", target=item_target(criterion, item.item))
    target = form.get("target", "")[:100]
    if split_item_target(target)[0] != criterion:
        raise ChangeRefused
    return Change(kind="remove_item" if form.get("kind") == "remove_item" else "item", target=target)


@pages.post(f"{ONE}/undo")
def undo(assignment_id: int, criterion: str, submission_id: str) -> Response:
    """Undo what was saved, and go back to that submission."""
    actor, given = auth.actor(), request.form.get("change", "").split(".")[:2]
    ids = [number for one in given if (number := parsing.whole_number(one)) is not None]
    with services().store.write() as session:
        _of(assignment_id, views.load_view(session, actor, submission_id, "grade.change"))
        criterion_edits.undo_criterion(session, submission_id, criterion, ids, actor)
        found = _across(session, actor, assignment_id, criterion)
    flash(_("Undone. The previous value is restored."))
    return redirect(url_for("criterion.one", **found.values(submission_id)), 303)


def _page(
    actor: Actor,
    assignment_id: int,
    criterion: str,
    submission_id: str,
    problem: ChangeRefused | ItemRefused | Conflict | None = None,
    typed: str = "",
) -> str:
    switches = _switches()
    with services().store.read_autocommit() as session:
        whole = views.load_whole_view(session, actor, submission_id)
        view = _of(assignment_id, whole.view)
        page = criterion_page.load_page(session, view, criterion, switches, actor)
        work = criterion_page.rendered_work(session, whole, page, switches, every_line=True)
        found = _across(session, actor, assignment_id, criterion)
    if not page.hidden:
        grade_view_audit.viewed(actor, submission_id, "criterion")
    free = services().dispatch.claim_criterion(assignment_id, criterion, actor.user_id, [submission_id])
    return render_template(
        "review/criterion.html",
        across=found,
        page=page,
        work=work,
        **_around(found, submission_id),
        saved=_saved_last(found),
        taken=free is None,
        problem=render_error(problem) if problem else "",
        typed=typed,
        typed_item=request.form if isinstance(problem, ItemRefused) else {},
        actor=actor,
    )


def _around(found: Across, submission_id: str) -> dict[str, Any]:
    """The place of a submission in the order, and those before and after it."""
    ids = found.ids
    if submission_id not in ids:
        return {"position": None, "before": None, "after": None}
    at = ids.index(submission_id)
    return {
        "position": at + 1,
        "before": ids[at - 1] if at else None,
        "after": ids[at + 1] if at + 1 < len(ids) else None,
    }


def _lead_on(actor: Actor, found: Across, submission_id: str, **address: str) -> Response:
    """To the next ungraded submission that nobody else has open; to the list where none is left."""
    open_ones = found.open_after(submission_id)
    claim = services().dispatch.claim_criterion
    following = claim(found.assignment.id, found.criterion.id, actor.user_id, open_ones)
    if following is not None:
        return redirect(url_for("criterion.one", **found.values(following, **address)), 303)
    if open_ones:
        flash(_("Other people are grading the remaining submissions now."))
    else:
        flash(_("Staff has graded all submissions by this criterion."))
    return redirect(url_for("criterion.listing", **found.values(**address)), 303)


def _across(session: Session, actor: Actor, assignment_id: int, criterion: str) -> Across:
    """The submissions of a criterion, by name or pseudonym. Raises NotFound, Forbidden."""
    assignment, switches = views.of_class(session, actor, assignment_id), _switches()
    rubric = {one.id: one for one in worklist.rubric_of(session, assignment)}
    if criterion not in rubric:
        raise NotFound(NO_SUCH_CRITERION)
    entries = criterion_worklist.load_worklist(session, assignment, criterion).get(criterion, ())
    rows = [
        Row(criterion_page.name_of(assignment_id, one.student_id, one.student, switches), one)
        for one in entries
    ]
    if switches.anonymous:  # the order of names says something about names
        rows.sort(key=lambda row: row.name)
    line = submission_lists.assignment_line(assignment, assignment.course)
    return Across(line, rubric[criterion], tuple(rows), switches)


def _of(assignment_id: int, view: SubmissionView) -> SubmissionView:
    """The submission, if it is one of the assignment. Raises NotFound."""
    if view.assignment_id != assignment_id:
        raise NotFound(NO_SUCH_SUBMISSION)
    return view


def _saved_last(found: Across) -> Saved | None:
    """The grading that led to this page; undoing it checks again what the address says."""
    submission_id, _dot, change = request.args.get("undo", "").partition(".")
    row = next((row for row in found.rows if row.entry.submission_id == submission_id), None)
    return Saved(submission_id, row.name, change[:40]) if row and change else None


def _switches() -> Switches:
    return criterion_page.switches_of(request.args)


def _edit() -> CriterionEdit:
    """What the form says; without a level it confirms."""
    level = parsing.whole_number(request.form.get("level", ""), 2)
    text = request.form.get("text", "").replace("\0", "").replace("\r\n", "\n").strip()
    return CriterionEdit(level=level, text=text[:20_000])


def _saved(page: CriterionPage, edit: CriterionEdit) -> str:
    """What was saved, and in blind grading the level that the model proposes."""
    if edit.level is None:
        words = _(
            "%(name)s: %(points)s points confirmed.", name=page.name, points=number(page.now.points or 0.0)
        )
    else:
        words = _("%(name)s: level %(level)s saved.", name=page.name, level=edit.level)
    grade = page.view.grade
    model = judgement_of_model(grade.original, page.now) if page.hidden and grade else None
    if model is not None:
        words += " " + _("The model proposes level %(level)s.", level=model.level)
    return words + (_(" The student can see it.") if page.view.released else "")
