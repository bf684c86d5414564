"""Canvas as a learning platform: registration, and outbox rows for scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from grading.store import outbox
from grading.store.bulk import chunks
from grading.store.integrations.canvas.tables import (
    CanvasAttempt,
    CanvasLink,
    CanvasScore,
    CanvasScoreAttempt,
)
from grading.store.learning_platforms import LearningPlatform
from grading.store.tables import Submission, SubmissionMember, new_id


def _detach(session: Session, submission_ids: Sequence[str]) -> None:
    # that an attempt was pulled stays known, or it would be pulled again
    pulled = update(CanvasAttempt).where(CanvasAttempt.submission_id.in_(submission_ids))
    session.execute(pulled.values(submission_id=None))


KIND = "canvas"
_ANY = select(CanvasLink.id).limit(1)


def add_scores(session: Session, submission_ids: Iterable[str]) -> int:
    """Add outbox rows for the scores of everybody who has these submissions, for each live link."""
    if not has_links(session):
        return 0
    session.flush()
    count = 0
    for some in chunks(sorted(submission_ids)):
        owner = select(Submission.id, Submission.assignment_id, Submission.student_id.label("user_id"))
        member = select(Submission.id, Submission.assignment_id, SubmissionMember.user_id)
        member = member.join(SubmissionMember, SubmissionMember.submission_id == Submission.id)
        both = owner.where(Submission.id.in_(some)).union(member.where(Submission.id.in_(some))).subquery()
        query = select(CanvasLink.id, both.c.user_id, both.c.id.label("submission_id"))
        query = query.join(both, both.c.assignment_id == CanvasLink.assignment_id)
        query = query.where(CanvasLink.ended_at.is_(None)).order_by(CanvasLink.id, both.c.user_id)
        for row in session.execute(query).all():
            count += add_score(session, row.id, row.user_id, row.submission_id)
    return count


def has_links(session: Session) -> bool:
    """Whether there is any link; queried once in a transaction, as most installations have none."""
    if KIND not in session.info:
        session.info[KIND] = session.scalar(_ANY) is not None
    return bool(session.info[KIND])


def add_score(session: Session, link_id: int, user_id: int, submission_id: str = "") -> int:
    """Add one outbox row; always a new one, as an earlier one may be in flight with an earlier score."""
    payload = {"link": link_id, "user": user_id, "submission": submission_id}
    return int(outbox.add(session, KIND, f"{link_id}:{user_id}:{new_id()}", payload))


PLATFORM = LearningPlatform(
    name=KIND,
    grade_changed=add_scores,
    personal=(CanvasAttempt, CanvasScore, CanvasScoreAttempt),
    detach=_detach,
)
