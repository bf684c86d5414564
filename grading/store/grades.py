"""Releasing grades to students."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.errors import NotFound
from grading.may import Actor
from grading.store import outbox, tables
from grading.store.audit import note
from grading.store.database import now


def release(session: Session, round_id: str, actor: Actor) -> None:
    """Let the student see the grade of this round. Raises NotFound while there is none."""
    query = select(tables.Grade).where(tables.Grade.round_id == round_id).with_for_update()
    grade = session.scalar(query)
    if grade is None:
        raise NotFound("There is no grade to release yet.")
    if grade.released_at is None:
        grade.released_at, grade.released_by = now(session), actor.user_id
        note(session, actor.name, "grade.release", f"submission:{grade.submission_id}", {"held": grade.held})
        _tell(session, grade)


def release_all(session: Session, assignment_id: int, actor: Actor) -> int:
    """Release the current grades of an assignment that are complete and not held; returns how many."""
    rounds = (
        select(tables.Round.id)
        .join(tables.Submission, tables.Submission.id == tables.Round.submission_id)
        .where(tables.Submission.assignment_id == assignment_id, tables.Round.current)
    )
    open_ones = (
        tables.Grade.round_id.in_(rounds),
        tables.Grade.held.is_(False),
        tables.Grade.points.is_not(None),
        tables.Grade.released_at.is_(None),
    )
    found = list(session.scalars(select(tables.Grade).where(*open_ones).with_for_update()))
    moment = now(session)
    for grade in found:
        grade.released_at, grade.released_by = moment, actor.user_id
        _tell(session, grade)
    note(session, actor.name, "grade.release_all", f"assignment:{assignment_id}", {"count": len(found)})
    return len(found)


def _tell(session: Session, grade: tables.Grade) -> None:
    """Leave the news for the outside; it names the submission, not the points."""
    news = {"type": "submission.released", "submission": grade.submission_id}
    key = f"released:{grade.round_id}"
    if not outbox.put(session, "event", key, news):
        # a grade of this round was released before the round was set going again: this is another one
        outbox.put(session, "event", f"{key}:{now(session):%Y%m%d%H%M%S}", news)
