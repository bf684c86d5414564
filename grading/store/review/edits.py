"""Edits of one grade by reviewers: change, undo, accept. The report itself is immutable.

Each edit names the state of the grade that its author saw (its `stamp`). When the grade changed since,
nothing is written and ChangedMeanwhile says who changed what.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from grading.domain.errors import CannotUndo, Conflict, GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.report import Report
from grading.domain.report_changes import ITEM, Change, split_item_target
from grading.domain.shared_messages import NO_SUCH_FILE_OF_SUBMISSION
from grading.domain.stages import editable_fields
from grading.scoring import changed
from grading.store import tables
from grading.store.audit import done_at, write_audit
from grading.store.database import now
from grading.store.grades import release
from grading.store.grades.change_history import Made, since, stamp
from grading.store.grades.final_score import list_changes, update_final_score
from grading.store.grades.review_state import update_review
from grading.store.review import level_views, rubric_items

NO_SUCH_CHANGE = define_message("edits.no_such_change", "This change does not exist.")
NO_GRADE_YET = define_message("edits.no_grade_yet", "This submission has no grade yet.")
NO_REASON = define_message(
    "edits.no_reason", "Enter a reason for changing the points. The student and other staff can see it."
)
NOTHING_WRITTEN = define_message(
    "edits.nothing_written", "Enter a text. To remove text, replace it with other text."
)
PART_FIXED = define_message("edits.part_fixed", "This part of the report cannot be changed.")
NO_SUCH_PART = define_message("edits.no_such_part", "This part of the report does not exist.")
NO_POINTS = define_message("edits.no_points", "Enter the points to add (negative to deduct).")
NO_SUCH_ADJUSTMENT = define_message(
    "edits.no_such_adjustment", "This deduction or cap is no longer part of the grade. Reload the page."
)
NO_SUCH_CRITERION = define_message(
    "edits.no_such_criterion", "This criterion is no longer part of the grade. Reload the page."
)
POINTS_RANGE = define_message("edits.points_range", "Enter 0 to %(most)s points for “%(title)s”.")
NOT_RATED = define_message(
    "edits.not_rated", "“%(title)s” has no points that could be confirmed. Choose a level."
)
NOT_APPLIED = define_message(
    "edits.not_applied", "This rubric item does not apply to this submission any more. Reload the page."
)
NO_SUCH_REMARK = define_message(
    "edits.no_such_remark", "This comment is no longer part of the grade. Reload the page."
)
NO_REMARK = define_message("edits.no_remark", "Enter the text of the comment, or hide the comment.")
NO_SUCH_CELL = define_message("edits.no_such_cell", "This cell does not exist in the file.")
NO_REASON_FOR_STUDENT = define_message(
    "edits.no_reason_for_student", "Enter a reason. The student can see it."
)
NO_SUCH_LINE = define_message(
    "edits.no_such_line", "This line does not exist. In notebooks, also choose the cell."
)

TOTAL = "total"
"""Target of a person's adjustment of the total."""
NEEDS_REASON = ("points", "adjust", "waive", "apply")


class ChangeRefused(GraderError):
    """This change does not match the grade. Reload the page."""

    code = "change_refused"
    status = 422
    default_message = define_message(
        "error.change_refused", "This change does not match the grade. Reload the page."
    )


class ChangedMeanwhile(Conflict):
    """Not saved: someone changed this grade while you were viewing it."""

    code = "changed_meanwhile"
    default_message = define_message(
        "error.changed_meanwhile",
        "Not saved: someone changed this grade while you were viewing it.",
    )

    def __init__(self, since: tuple[Made, ...] = ()) -> None:
        super().__init__()
        self.since = since


def change_grade(
    session: Session, submission_id: str, wanted: Change, seen: str, actor: Actor, bulk: str = ""
) -> int | None:
    """Make a change; returns its id. Raises NotFound, ChangeRefused, ChangedMeanwhile.

    Sending the same change twice makes it once; the second time there is no id. Changes with the same `bulk`
    are undone together.
    """
    grade = _locked(session, submission_id)
    if stamp(session, grade.round_id) != seen:
        value, _ = _checked(session, grade, wanted)
        if _was_sent(session, grade, wanted, value, seen, actor):
            return None
        raise ChangedMeanwhile(since(session, grade.round_id, seen))
    return record_change(session, grade, wanted, actor, bulk)


def record_change(session: Session, grade: tables.Grade, wanted: Change, actor: Actor, bulk: str = "") -> int:
    """Make a change of a locked grade, whatever was changed before; returns its id. Raises ChangeRefused."""
    value, before = _checked(session, grade, wanted)
    row = tables.Change(
        round_id=grade.round_id,
        submission_id=grade.submission_id,
        kind=wanted.kind,
        target=wanted.target,
        value=value,
        before=before,
        reason=wanted.reason,
        bulk=bulk,
        by=actor.user_id,
        at=now(session),
    )
    session.add(row)
    session.flush()
    update_final_score(session, grade)
    update_review(session, grade)
    detail: dict[str, Any] = {"kind": wanted.kind, "target": wanted.target, "from": before, "to": value}
    detail |= {"reason": wanted.reason, "change": row.id, "final_points": grade.final_points}
    write_audit(session, actor.name, "grade.change", f"submission:{grade.submission_id}", detail)
    level_views.record(session, actor, [grade.submission_id])
    if wanted.kind != "confirm":  # nothing that others see of the grade is another
        _tell(session, grade, f"changed:{grade.round_id}:{row.id}")
    return row.id


def undo_change(session: Session, submission_id: str, change_id: int, seen: str, actor: Actor) -> None:
    """Undo a change; an undone one stays undone. Raises NotFound, ChangedMeanwhile."""
    grade = _locked(session, submission_id)
    row = find_change(session, grade, change_id)
    if row.undone_at is None:
        require_unchanged(session, grade.round_id, seen)
        record_undo(session, grade, row, actor)


def find_change(session: Session, grade: tables.Grade, change_id: int) -> tables.Change:
    """A change of a grade, also an undone one. Raises NotFound."""
    row = session.get(tables.Change, change_id)
    if row is None or row.round_id != grade.round_id:
        raise NotFound(NO_SUCH_CHANGE)
    return row


def record_undo(session: Session, grade: tables.Grade, row: tables.Change, actor: Actor) -> None:
    """Undo a change of a locked grade, whatever was changed since."""
    row.undone_at, row.undone_by = now(session), actor.user_id
    session.flush()
    update_final_score(session, grade)
    update_review(session, grade)
    detail = {"change": row.id, "kind": row.kind, "target": row.target, "final_points": grade.final_points}
    write_audit(session, actor.name, "grade.undo", f"submission:{grade.submission_id}", detail)
    level_views.record(session, actor, [grade.submission_id])
    if row.kind != "confirm":
        _tell(session, grade, f"changed:{grade.round_id}:{row.id}:undone")


def require_unchanged(session: Session, round_id: str, seen: str) -> None:
    """Raise ChangedMeanwhile unless the grade has this stamp."""
    if stamp(session, round_id) != seen:
        raise ChangedMeanwhile(since(session, round_id, seen))


def accept_grade(session: Session, submission_id: str, seen: str, actor: Actor) -> bool:
    """Accept a grade after review: it is held no longer. Raises NotFound, ChangedMeanwhile.

    Where the assignment releases automatically, the grade is released; returns whether it was.
    """
    grade = _locked(session, submission_id)
    require_unchanged(session, grade.round_id, seen)
    held, grade.held = grade.held, False
    grade.reviewed_at, grade.reviewed_by = now(session), actor.user_id
    detail = {"held": held, "final_points": grade.final_points}
    write_audit(session, actor.name, "grade.accept", f"submission:{submission_id}", detail)
    level_views.record(session, actor, [submission_id])
    session.flush()
    assignment = session.get_one(tables.Submission, submission_id).assignment
    itself = release.is_automatic(assignment.release, assignment.release_at, now(session))
    never = grade.released_at is None and grade.released_by is None
    if not (itself and never and grade.points is not None):
        return False
    release.release_grade(session, grade.round_id, actor)
    return True


def undo_acceptance(session: Session, submission_id: str, moment: datetime, actor: Actor) -> None:
    """Let a grade that the actor accepted at this moment be as before. Raises NotFound, CannotUndo."""
    grade = _locked(session, submission_id)
    object_ = f"submission:{submission_id}"
    row = next(
        (one for one in done_at(session, actor.name, moment, "grade.accept") if one.object == object_), None
    )
    if row is None or (grade.reviewed_at, grade.reviewed_by) != (moment, actor.user_id):
        raise CannotUndo
    grade.held, grade.reviewed_at, grade.reviewed_by = bool(row.detail["held"]), None, None
    update_review(session, grade)
    write_audit(session, actor.name, "grade.accept_undo", object_, {"held": grade.held})
    session.flush()
    if (grade.released_at, grade.released_by) == (moment, actor.user_id):
        assignment_id = session.get_one(tables.Submission, submission_id).assignment_id
        release.undo_release(session, assignment_id, moment, actor)


def _locked(session: Session, submission_id: str) -> tables.Grade:
    """The grade of the current round, locked until the transaction ends."""
    grade = release.lock_current_grade(session, submission_id)
    if grade is None:
        raise NotFound(NO_GRADE_YET)
    return grade


def _was_sent(
    session: Session, grade: tables.Grade, wanted: Change, value: dict[str, Any], seen: str, actor: Actor
) -> bool:
    """Whether the only change since is this one: a form that was sent twice."""
    table = tables.Change
    newest = session.scalar(
        select(table).where(table.round_id == grade.round_id).order_by(table.id.desc()).limit(1)
    )
    if newest is None or newest.by != actor.user_id or newest.undone_at is not None:
        return False
    earlier = session.scalar(
        select(func.max(table.id)).where(table.round_id == grade.round_id, table.id < newest.id)
    )
    undone = stamp(session, grade.round_id).rpartition(".")[2]
    same = (newest.kind, newest.target, newest.value, newest.reason)
    return seen == f"{grade.round_id}.{earlier or 0}.{undone}" and same == (
        wanted.kind, wanted.target, value, wanted.reason,
    )  # fmt: skip


def _tell(session: Session, grade: tables.Grade, key: str) -> None:
    """Add an event for everybody who has seen the grade."""
    if grade.released_at is not None:
        release.add_event(session, grade, "grade.changed", key)


def _checked(session: Session, grade: tables.Grade, wanted: Change) -> tuple[dict[str, Any], dict[str, Any]]:
    """The stored value of a change, and the value before it. Raises ChangeRefused."""
    original = Report.model_validate(grade.report)
    report = changed(original, list_changes(session, grade.round_id))
    if wanted.kind in NEEDS_REASON and not wanted.reason:
        raise ChangeRefused(NO_REASON)
    if wanted.kind == "adjust":
        return _adjusted(grade, wanted)
    if wanted.kind in ("waive", "apply"):
        return {}, _of_adjustment(report, wanted)
    if wanted.kind in ("points", "confirm", "reason"):
        return _of_criterion(report, wanted)
    if wanted.kind in ITEM:
        return _of_item(session, grade, report, wanted)
    if wanted.kind in ("remark", "hide"):
        return _of_remark(original, wanted)
    if not wanted.text:
        raise ChangeRefused(NOTHING_WRITTEN)
    if wanted.kind == "add":
        return _placed(session, grade.submission_id, wanted), {}
    if wanted.target not in editable_fields():
        raise ChangeRefused(PART_FIXED)
    stage, _, name = wanted.target.partition(".")
    before = report.stage_output(stage).get(name)
    if before is None:
        raise ChangeRefused(NO_SUCH_PART)
    return {"text": wanted.text}, {"text": before}


def _adjusted(grade: tables.Grade, wanted: Change) -> tuple[dict[str, Any], dict[str, Any]]:
    if wanted.points is None or abs(wanted.points) > max(10 * grade.max_points, 10):
        raise ChangeRefused(NO_POINTS)
    return {"points": round(wanted.points, 2)}, {"points": grade.adjustment}


def _of_adjustment(report: Report, wanted: Change) -> dict[str, Any]:
    found = next((one for one in report.adjustments if one.adjustment == wanted.target), None)
    if found is None:
        raise ChangeRefused(NO_SUCH_ADJUSTMENT)
    return {"points": found.points}


def _of_criterion(report: Report, wanted: Change) -> tuple[dict[str, Any], dict[str, Any]]:
    found = next((one for one in report.criteria if one.criterion == wanted.target), None)
    if found is None:
        raise ChangeRefused(NO_SUCH_CRITERION)
    if wanted.kind == "reason":
        if not wanted.text:
            raise ChangeRefused(NO_REASON_FOR_STUDENT)
        return {"text": wanted.text}, {"text": found.reason}
    if wanted.kind == "confirm":
        if found.points is None:
            raise ChangeRefused(NOT_RATED(title=found.title))
        return {}, {"points": found.points}
    if wanted.points is None or not 0 <= wanted.points <= found.max_points:
        raise ChangeRefused(POINTS_RANGE(most=found.max_points, title=found.title))
    return {"points": round(wanted.points, 2)}, {"points": found.points}


def _of_item(
    session: Session, grade: tables.Grade, report: Report, wanted: Change
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The item as it is now; one that was deleted can still be removed."""
    criterion, item = split_item_target(wanted.target)
    found = next((one for one in report.criteria if one.criterion == criterion), None)
    if found is None:
        raise ChangeRefused(NO_SUCH_CRITERION)
    before = {"points": found.points}
    if wanted.kind == "remove_item":
        if not any(one.item == item for one in found.items):
            raise ChangeRefused(NOT_APPLIED)
        return {}, before
    submission = session.get_one(tables.Submission, grade.submission_id)
    version = rubric_items.lock_item(session, submission.assignment_id, item)
    if version.criterion != criterion:
        raise NotFound(rubric_items.NO_SUCH_ITEM)
    return rubric_items.item_value(version), before


def _of_remark(original: Report, wanted: Change) -> tuple[dict[str, Any], dict[str, Any]]:
    kind, _, number = wanted.target.partition(":")
    lists: dict[str, Any] = {}
    if original.analysis is not None:
        lists = {"finding": original.analysis.findings, "suggestion": original.analysis.suggestions}
    found = lists.get(kind, ())
    if not number.isdecimal() or len(number) > 4 or int(number) >= len(found):
        raise ChangeRefused(NO_SUCH_REMARK)
    remark = found[int(number)]
    before = {"text": remark.detail if kind == "finding" else remark.how}
    if wanted.kind == "hide":
        return {}, before
    if not wanted.text:
        raise ChangeRefused(NO_REMARK)
    return {"text": wanted.text}, before


def _placed(session: Session, submission_id: str, wanted: Change) -> dict[str, Any]:
    """A comment at a location that exists. Lines count as in `grading.domain.document.Location`."""
    value: dict[str, Any] = {"text": wanted.text}
    if not wanted.document:
        return value
    documents = session.scalar(
        select(tables.Submission.documents).where(tables.Submission.id == submission_id)
    )
    found = next((one for one in documents or [] if one["path"] == wanted.document), None)
    if found is None:
        raise ChangeRefused(NO_SUCH_FILE_OF_SUBMISSION)
    cell = next((one for one in found["cells"] if one["number"] == wanted.cell), None)
    if wanted.cell is not None and cell is None:
        raise ChangeRefused(NO_SUCH_CELL)
    value |= {"document": wanted.document, "cell": wanted.cell}
    if wanted.line is not None:
        whole = found["kind"] != "notebook" or len(found["cells"]) == 1
        cells = [cell] if cell else found["cells"] if whole else []
        if not any(_has_line(one, wanted.line) for one in cells):
            raise ChangeRefused(NO_SUCH_LINE)
        value["line"] = wanted.line
    return value


def _has_line(cell: dict[str, Any], line: int) -> bool:
    first = int(cell.get("first_line", 1))
    return first <= line <= first + str(cell["source"]).count("\n")
