"""Grading one criterion of a submission: a level or a confirmation, and a text about it; undoing them.

Staff share out the criteria of a class, so changes of other criteria of the same submission are no conflict:
forms carry the stamp of their criterion only.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.report import CriterionGrade, Report
from grading.domain.report_changes import GRADING, Change, split_item_target
from grading.domain.rubric import Criterion
from grading.scoring import changed
from grading.scoring.changes import at_level
from grading.store import tables
from grading.store.grades import release
from grading.store.grades.change_history import criterion_stamp
from grading.store.grades.final_score import list_changes
from grading.store.review import edits
from grading.store.review.edits import ChangedMeanwhile, ChangeRefused

NO_SUCH_LEVEL = define_message("criterion_edits.no_such_level", "Choose one of the levels of this criterion.")


class CriterionEdit(Value):
    """What a person says about a criterion of a submission."""

    level: int | None = None
    """Without one, the points are confirmed as they are."""
    reason: str = Field(default="", max_length=2_000)
    """Why it has this level; without one, the words of the level."""
    text: str = Field(default="", max_length=20_000)
    """Replaces the text that the student reads about the criterion; empty: it stays."""


def grade_criterion(
    session: Session, submission_id: str, criterion: Criterion, wanted: CriterionEdit, seen: str, actor: Actor
) -> tuple[int, ...]:
    """Give a criterion its level, or confirm it; returns the ids of the changes.

    Raises NotFound, ChangeRefused, ChangedMeanwhile. Sending the same twice makes it once.
    """
    grade = _locked(session, submission_id)
    found = _grade_now(session, grade, criterion.id)
    changes = _changes(criterion, found, wanted)
    if criterion_stamp(session, grade.round_id, criterion.id) != seen:
        if sent := _sent_before(session, grade, changes[0], wanted.level, actor):
            return sent
        raise ChangedMeanwhile
    return tuple(edits.record_change(session, grade, one, actor) for one in changes)


def change_item(session: Session, submission_id: str, wanted: Change, actor: Actor) -> tuple[int, ...]:
    """Apply or remove a rubric item; returns the id of the change, none where it is so already.

    Raises NotFound, ChangeRefused. It is added to whatever else is said about the criterion, so that there
    is no conflict with others.
    """
    grade = _locked(session, submission_id)
    criterion, item = split_item_target(wanted.target)
    applies = any(one.item == item for one in _grade_now(session, grade, criterion).items)
    if applies == (wanted.kind == "item"):
        return ()
    return (edits.record_change(session, grade, wanted, actor),)


def undo_criterion(
    session: Session, submission_id: str, criterion: str, change_ids: Sequence[int], actor: Actor
) -> None:
    """Undo these changes of a criterion; undone ones stay undone. Raises NotFound."""
    grade = _locked(session, submission_id)
    rows = [edits.find_change(session, grade, one) for one in change_ids]
    if not rows or any(split_item_target(row.target)[0] != criterion for row in rows):
        raise NotFound(edits.NO_SUCH_CHANGE)
    for row in rows:
        if row.undone_at is None:
            edits.record_undo(session, grade, row, actor)


def level_change(criterion: Criterion, found: CriterionGrade, level: int, reason: str = "") -> Change:
    """The change that gives a level: a confirmation where its points are there. Raises ChangeRefused."""
    if not 0 <= level <= min(found.highest, criterion.highest):
        raise ChangeRefused(NO_SUCH_LEVEL)
    points = at_level(found, level)
    if found.level_points is not None and abs(found.level_points - points) < 0.005:
        return Change(kind="confirm", target=criterion.id, reason=reason)
    reason = reason or criterion.levels[level][:2_000]
    return Change(kind="points", target=criterion.id, points=points, reason=reason)


def _locked(session: Session, submission_id: str) -> tables.Grade:
    grade = release.lock_current_grade(session, submission_id)
    if grade is None:
        raise NotFound(edits.NO_GRADE_YET)
    return grade


def _changes(criterion: Criterion, found: CriterionGrade, wanted: CriterionEdit) -> list[Change]:
    """A level or a confirmation, and a text that is another one than now."""
    if wanted.level is None:
        made = [Change(kind="confirm", target=criterion.id, reason=wanted.reason)]
    else:
        made = [level_change(criterion, found, wanted.level, wanted.reason)]
    if wanted.text and wanted.text != found.reason.strip():
        made.append(Change(kind="reason", target=criterion.id, text=wanted.text))
    return made


def _grade_now(session: Session, grade: tables.Grade, criterion: str) -> CriterionGrade:
    """The criterion with people's changes. Raises ChangeRefused."""
    report = changed(Report.model_validate(grade.report), list_changes(session, grade.round_id))
    found = next((one for one in report.criteria if one.criterion == criterion), None)
    if found is None:
        raise ChangeRefused(edits.NO_SUCH_CRITERION)
    return found


def _sent_before(
    session: Session, grade: tables.Grade, wanted: Change, level: int | None, actor: Actor
) -> tuple[int, ...]:
    """The newest grading of the criterion, if it is what this person wants: a form that was sent twice."""
    table = tables.Change
    of_it = (table.round_id == grade.round_id, table.kind.in_(GRADING), table.target == wanted.target)
    newest = session.scalar(select(table).where(*of_it).order_by(table.id.desc()).limit(1))
    if newest is None or newest.by != actor.user_id or newest.undone_at is not None:
        return ()
    # a level that was given is there now, so that giving it again is a confirmation
    same = wanted.kind == newest.kind == "confirm" or (wanted.kind == "confirm" and level is not None)
    return (newest.id,) if same else ()
