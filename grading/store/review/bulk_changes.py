"""Changes of many grades that are made at once and undone together by their `bulk` id.

Grades are changed in transactions of at most `BATCH`, so that a large class holds up nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.report import Report
from grading.scoring import settled
from grading.store import tables
from grading.store.audit import write_audit
from grading.store.bulk import chunks
from grading.store.database import Store, now
from grading.store.grades import release
from grading.store.grades.final_score import to_change
from grading.store.grades.review_state import set_review
from grading.store.review.curves import IS_CURVE
from grading.store.tables import Assignment, Grade, Round, Submission

NO_SUCH_BULK_CHANGE = define_message(
    "bulk_changes.no_such_bulk_change", "This change of several grades does not exist."
)
BATCH = 50
"""Grades changed in one transaction."""


def undo_bulk(store: Store, assignment_id: int, bulk: str, actor: Actor) -> int:
    """Undo all changes of a bulk id that is no curve's; returns of how many submissions. Raises NotFound."""
    with store.read() as session:
        query = select(tables.Change.submission_id).join(tables.Submission).distinct()
        of_it = (tables.Change.bulk == bulk, tables.Change.bulk > "", ~IS_CURVE)
        ids = list(session.scalars(query.where(*of_it, tables.Submission.assignment_id == assignment_id)))
    if not ids:
        raise NotFound(NO_SUCH_BULK_CHANGE)
    count = 0
    for some in chunks(sorted(ids), BATCH):
        with store.write() as session:
            count += _undo_batch(session, session.get_one(Assignment, assignment_id), some, bulk, actor)
    return count


def lock_current(session: Session, assignment_id: int, submissions: Sequence[str]) -> list[Grade]:
    """The grades of the current rounds, locked; of a submission that is being regraded there is none."""
    query = (
        select(Round.id)
        .join(Submission, Submission.id == Round.submission_id)
        .where(Round.submission_id.in_(submissions), Round.current, Submission.assignment_id == assignment_id)
        .order_by(Round.id)
    )
    # the rounds first, so that no other becomes current meanwhile
    return _lock(session, list(session.scalars(query.with_for_update(key_share=True, of=Round))))


def _lock(session: Session, rounds: Sequence[str]) -> list[Grade]:
    query = select(Grade).where(Grade.round_id.in_(rounds)).order_by(Grade.id)
    return list(session.scalars(query.with_for_update().execution_options(populate_existing=True)))


def changes_of(session: Session, rounds: Sequence[str]) -> defaultdict[str, list[tables.Change]]:
    """Round -> its changes, also undone ones, the first one first."""
    change = tables.Change
    found: defaultdict[str, list[tables.Change]] = defaultdict(list)
    for row in session.scalars(select(change).where(change.round_id.in_(rounds)).order_by(change.id)):
        found[row.round_id].append(row)
    return found


def settle(session: Session, grade: Grade, changes: Sequence[tables.Change]) -> None:
    """Store what a grade comes to with these changes, also undone ones, and whether it is reviewed.

    Equal to `update_final_score` and `update_review`, without their queries.
    """
    session.flush()
    counting = [to_change(row, "") for row in changes if row.undone_at is None]
    made = settled(Report.model_validate(grade.report), counting, grade.credit)
    grade.points, grade.points_so_far = made.points, made.report.points_so_far
    grade.adjustment, grade.final_points = made.adjustment, made.final_points
    grade.criterion_points = {one.criterion: one.points for one in made.report.criteria}
    set_review(grade, changes)


def record(
    session: Session,
    assignment: Assignment,
    grade: Grade,
    bulk: str,
    actor: Actor,
    what: Literal["change", "undo"],
    rows: Sequence[tables.Change],
) -> None:
    """Write the audit, and an event for everybody who has seen the grade."""
    for row in rows:
        detail: dict[str, Any] = {"bulk": bulk, "kind": row.kind, "target": row.target}
        detail["final_points"] = grade.final_points
        if what == "change":
            detail |= {"from": row.before, "to": row.value, "reason": row.reason}
        about = f"submission:{grade.submission_id}"
        write_audit(session, actor.name, f"grade.{what}", about, detail, course_id=assignment.course_id)
    if grade.released_at is not None and any(row.kind != "confirm" for row in rows):
        key = f"changed:{grade.round_id}:{bulk[:12]}:{what}"
        release.add_event(session, grade, "grade.changed", key)


def _undo_batch(
    session: Session, assignment: Assignment, submissions: Sequence[str], bulk: str, actor: Actor
) -> int:
    """Undo the changes of a bulk id in all gradings of these submissions."""
    change = tables.Change
    rounds = select(change.round_id).where(change.bulk == bulk, change.submission_id.in_(submissions))
    grades = _lock(session, list(session.scalars(rounds.distinct())))
    made = changes_of(session, [grade.round_id for grade in grades])
    touched = set()
    for grade in grades:
        rows = [one for one in made[grade.round_id] if one.bulk == bulk and one.undone_at is None]
        for row in rows:
            row.undone_at, row.undone_by = now(session), actor.user_id
        if rows:
            settle(session, grade, made[grade.round_id])
            record(session, assignment, grade, bulk, actor, "undo", rows)
            touched.add(grade.submission_id)
    return len(touched)
