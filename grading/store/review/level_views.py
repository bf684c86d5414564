"""Who of the staff has seen the machine's levels of a submission: what they mark of it is not blind.

All pages and answers that show levels record it here, also those that the audit does not list one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Label, Select, exists, literal, select
from sqlalchemy.orm import Session

from grading.domain.permissions import Actor
from grading.store.bulk import chunks
from grading.store.database import insert_into, now
from grading.store.tables import Grade, LevelView, Submission


def record(session: Session, actor: Actor, submission_ids: Sequence[str]) -> None:
    """Record that the actor sees the levels of these submissions; of students nothing is kept."""
    for some in chunks(submission_ids):
        _record(session, actor, select(Submission.id).where(Submission.id.in_(some)))


def record_class(session: Session, actor: Actor, assignment_id: int) -> None:
    """Record that the actor sees the levels of all submissions of an assignment that are graded by now."""
    graded = exists().where(Grade.submission_id == Submission.id)
    _record(session, actor, select(Submission.id).where(Submission.assignment_id == assignment_id, graded))


def _record(session: Session, actor: Actor, submissions: Select[str]) -> None:
    if not actor.staff:
        return
    rows = submissions.add_columns(literal(actor.user_id), literal(now(session), LevelView.at.type))
    names = ["submission_id", "user_id", "at"]
    session.execute(insert_into(session, LevelView).from_select(names, rows).on_conflict_do_nothing())


def seen(submission_id: str, actor: Actor) -> Label[bool]:
    """Whether this person has seen the levels of a submission, as a column."""
    theirs = (LevelView.submission_id == submission_id, LevelView.user_id == actor.user_id)
    return exists().where(*theirs).label("seen")


def has_seen(session: Session, submission_id: str, actor: Actor) -> bool:
    """Whether this person has seen the levels of a submission."""
    return bool(session.scalar(select(seen(submission_id, actor))))


def list_seen(session: Session, assignment_id: int, actor: Actor) -> set[str]:
    """Ids of the submissions of an assignment whose levels this person has seen."""
    query = select(LevelView.submission_id).join(Submission, Submission.id == LevelView.submission_id)
    here = (Submission.assignment_id == assignment_id, LevelView.user_id == actor.user_id)
    return set(session.scalars(query.where(*here)))
