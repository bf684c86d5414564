"""LTI as a learning platform: registration, and outbox rows for scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.store import outbox
from grading.store.bulk import chunks
from grading.store.integrations.lti.tables import (
    LtiDifference,
    LtiLaunch,
    LtiLink,
    LtiMember,
    LtiPlatform,
    LtiScore,
    LtiScoreAttempt,
)
from grading.store.learning_platforms import LearningPlatform
from grading.store.tables import Submission, SubmissionMember, new_id


def _titles(session: Session, ids: Sequence[str]) -> Iterable[tuple[str, str]]:
    query = select(LtiPlatform.id, LtiPlatform.name).where(LtiPlatform.id.in_([int(one) for one in ids]))
    return [(str(row.id), row.name) for row in session.execute(query)]


KIND = "lti"
_ANY = select(LtiLink.id).limit(1)


def add_scores(session: Session, submission_ids: Iterable[str]) -> int:
    """Add outbox rows for the scores of everybody who has these submissions, in each linked course."""
    if not _linked(session):
        return 0
    count = 0
    session.flush()
    for some in chunks(sorted(submission_ids)):
        owner = select(Submission.id, Submission.assignment_id, Submission.student_id.label("user_id"))
        owner = owner.where(Submission.id.in_(some))
        member = select(Submission.id, Submission.assignment_id, SubmissionMember.user_id)
        member = member.join(SubmissionMember, SubmissionMember.submission_id == Submission.id)
        people = owner.union(member.where(Submission.id.in_(some))).subquery()
        query = (
            select(LtiLink.id, people.c.user_id, people.c.id.label("submission_id"))
            .join(people, people.c.assignment_id == LtiLink.assignment_id)
            .join(
                LtiMember,
                (LtiMember.context_id == LtiLink.context_id) & (LtiMember.user_id == people.c.user_id),
            )
            .order_by(LtiLink.id, people.c.user_id)
        )
        for row in session.execute(query).all():
            count += add_score(session, row.id, row.user_id, row.submission_id)
    return count


def _linked(session: Session) -> bool:
    """Whether there is any link; queried once in a transaction, as most installations have none."""
    if "lti" not in session.info:
        session.info["lti"] = session.scalar(_ANY) is not None
    return bool(session.info["lti"])


def mark_linked(session: Session) -> None:
    """Record in this transaction that there is a link."""
    session.info["lti"] = True


def add_score(session: Session, link_id: int, user_id: int, submission_id: str = "") -> int:
    """Add one outbox row; always a new one, as an earlier one may be in flight with an earlier score."""
    payload = {"link": link_id, "user": user_id, "submission": submission_id}
    return int(outbox.add(session, KIND, f"{link_id}:{user_id}:{new_id()}", payload))


PLATFORM = LearningPlatform(
    name=KIND,
    grade_changed=add_scores,
    personal=(LtiMember, LtiScore, LtiScoreAttempt, LtiDifference),
    transient=(LtiLaunch,),
    titles={"platform": _titles},
)
