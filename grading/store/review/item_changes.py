"""Editing a rubric item everywhere: a new version of it, and a change of each grade that has it.

What an edit comes to is computed first (`preview_edit`); students whose grade is released see it at once. The
version and the changes have one `bulk` id, so that a form that is sent twice edits once, and one undo is
enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.errors import CannotUndo, Conflict
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.report import Report
from grading.domain.report_changes import ITEM, Change, item_target
from grading.scoring import settled
from grading.statistics.grade_impact import Points
from grading.store import tables
from grading.store.assignments.settings import lock_assignment
from grading.store.bulk import chunks
from grading.store.database import Store, now
from grading.store.grades.final_score import to_change
from grading.store.review import bulk_changes, rubric_items
from grading.store.review.bulk_changes import BATCH
from grading.store.review.rubric_items import RubricItem, item_value
from grading.store.tables import Assignment, Grade, Round, Submission, User

EDITED_MEANWHILE = define_message(
    "item_changes.edited_meanwhile",
    "Not saved: someone edited this rubric item while you were viewing it. Check its text and points, then "
    "save again.",
)


@dataclass(frozen=True)
class Moved:
    """A submission whose grade an edit concerns."""

    submission_id: str
    student_id: int
    student: str
    number: int
    released: bool
    points: Points | None
    """Before and after; nothing without a total."""

    @property
    def delta(self) -> float | None:
        """The difference; None where it is not known."""
        return self.points.delta if self.points is not None else None


def preview_edit(session: Session, assignment_id: int, edited: RubricItem) -> tuple[Moved, ...]:
    """The submissions that have the item, with their points after the edit; the largest differences first."""
    wanted = rubric_items.submissions_with(session, assignment_id, edited.criterion)
    found: list[Moved] = []
    for some in chunks(sorted(wanted.get(edited.item, ())), BATCH):
        query = (
            select(Grade, Submission.student_id, User.name, Submission.number)
            .join(Round, (Round.id == Grade.round_id) & Round.current)
            .join(Submission, Submission.id == Grade.submission_id)
            .join(User, User.id == Submission.student_id)
            .where(Submission.id.in_(some))
        )
        rows = session.execute(query).all()
        changes = bulk_changes.changes_of(session, [grade.round_id for grade, *_ in rows])
        found += [_moved(*row, changes[row[0].round_id], edited) for row in rows]
    return tuple(sorted(found, key=lambda one: (-abs(one.delta or 0.0), one.student.lower(), one.number)))


def edit_item(
    store: Store, assignment_id: int, edited: RubricItem, *, seen: int, bulk: str, actor: Actor
) -> int:
    """Store a version of an item and change all grades that have it; returns how many.

    `seen` is the number of the version that its author saw. Raises NotFound, Conflict.
    """
    with store.write() as session:
        lock_assignment(session, session.get_one(Assignment, assignment_id))
        newest = rubric_items.newest_version(session, assignment_id, edited.item)
        if newest.bulk != bulk:
            if newest.number != seen:
                raise Conflict(EDITED_MEANWHILE)
            version = edited.model_copy(update={"number": seen + 1})
            rubric_items.add_version(session, assignment_id, version, actor, bulk)
    return _change_all(store, assignment_id, edited, bulk, actor)


def undo_edit(store: Store, assignment_id: int, item: str, bulk: str, actor: Actor) -> RubricItem:
    """Undo an edit: the version before counts again, also in the grades. Raises NotFound, CannotUndo."""
    with store.write() as session:
        lock_assignment(session, session.get_one(Assignment, assignment_id))
        newest = rubric_items.newest_version(session, assignment_id, item)
        if newest.bulk != bulk or newest.number < 2:
            raise CannotUndo
        before = rubric_items.load_version(session, assignment_id, item, newest.number - 1)
        again = before.model_copy(update={"number": newest.number + 1})
        undoing = tables.new_id()
        rubric_items.add_version(session, assignment_id, again, actor, undoing)
        changed = session.scalar(select(tables.Change.id).where(tables.Change.bulk == bulk).limit(1))
    if changed is not None:
        bulk_changes.undo_bulk(store, assignment_id, bulk, actor)
    _change_all(store, assignment_id, again, undoing, actor)  # where it was applied since
    return again


def _change_all(store: Store, assignment_id: int, version: RubricItem, bulk: str, actor: Actor) -> int:
    """Change all grades that have the item, but have it otherwise; returns how many."""
    with store.read() as session:
        found = rubric_items.submissions_with(session, assignment_id, version.criterion)
    count = 0
    for some in chunks(sorted(found.get(version.item, ())), BATCH):
        with store.write() as session:
            assignment = session.get_one(Assignment, assignment_id)
            count += _change_batch(session, assignment, some, version, bulk, actor)
    return count


def _change_batch(
    session: Session,
    assignment: Assignment,
    submissions: Sequence[str],
    version: RubricItem,
    bulk: str,
    actor: Actor,
) -> int:
    grades = bulk_changes.lock_current(session, assignment.id, submissions)
    made = bulk_changes.changes_of(session, [grade.round_id for grade in grades])
    count = 0
    for grade in grades:
        row = new_row(session, grade, version, bulk, actor)
        last = last_word(made[grade.round_id], row.target)
        if last is None or last.kind != "item" or (last.kind, last.value) == (row.kind, row.value):
            continue
        session.add(row)
        bulk_changes.settle(session, grade, [*made[grade.round_id], row])
        bulk_changes.record(session, assignment, grade, bulk, actor, "change", [row])
        count += 1
    return count


def last_word(changes: Sequence[tables.Change], target: str) -> tables.Change | None:
    """The change by which an item applies to a grade, or was removed from it, that counts."""
    mine = (one for one in reversed(changes) if one.target == target and one.kind in ITEM)
    return next((one for one in mine if one.undone_at is None), None)


def new_row(session: Session, grade: Grade, version: RubricItem, bulk: str, actor: Actor) -> tables.Change:
    """The change of a grade that applies this version of an item, or removes a deleted one."""
    return tables.Change(
        round_id=grade.round_id,
        submission_id=grade.submission_id,
        kind="item" if version.active else "remove_item",
        target=item_target(version.criterion, version.item),
        value=item_value(version),
        before={"points": grade.criterion_points.get(version.criterion)},
        reason="",
        bulk=bulk,
        by=actor.user_id,
        at=now(session),
    )


def _moved(
    grade: Grade,
    student_id: int,
    student: str,
    number: int,
    changes: Sequence[tables.Change],
    edited: RubricItem,
) -> Moved:
    counting = [to_change(one, "") for one in changes if one.undone_at is None]
    last = Change.model_validate(
        {
            "kind": "item" if edited.active else "remove_item",
            "target": item_target(edited.criterion, edited.item),
            **item_value(edited),
        }
    )
    after = settled(Report.model_validate(grade.report), [*counting, last], grade.credit).final_points
    points = None
    if grade.final_points is not None and after is not None:
        points = Points(grade.final_points, grade.max_points, after, grade.max_points)
    released = grade.released_at is not None
    return Moved(grade.submission_id, student_id, student, number, released, points)
