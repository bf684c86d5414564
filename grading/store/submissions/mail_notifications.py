"""Mail notifications about results and answers: preferences, recipients, queued mails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, func, select
from sqlalchemy.orm import Session

from grading.store import outbox
from grading.store.bulk import chunks
from grading.store.tables import (
    Assignment,
    Grade,
    MailPreference,
    RegradeRequest,
    Round,
    Submission,
    SubmissionMember,
    User,
)

KIND = "mail"


@dataclass(frozen=True)
class Letter:
    """A mail: recipient, language (empty: not set), submission and reason."""

    address: str
    language: str
    title: str
    submission_id: str
    answer: bool = False
    """It is about an answer to a regrade request, not about a result."""


def set_mail_preference(session: Session, submission_id: str, user_id: int, *, wanted: bool) -> None:
    """Set whether a user wants mail about this submission, over their general preference."""
    session.merge(MailPreference(submission_id=submission_id, user_id=user_id, wanted=wanted))


def load_mail_preference(session: Session, submission_id: str, user_id: int) -> tuple[bool, str]:
    """Whether a user wants mail about this submission, and their address (empty: none)."""
    of_it = and_(MailPreference.submission_id == submission_id, MailPreference.user_id == User.id)
    query = select(func.coalesce(MailPreference.wanted, User.mail_when_ready), User.email)
    row = session.execute(query.outerjoin(MailPreference, of_it).where(User.id == user_id)).first()
    return (bool(row[0]), row[1]) if row is not None else (False, "")


def add_result_letters(session: Session, round_ids: Sequence[str]) -> int:
    """Queue a mail for each recipient of these rounds, when they are released; once a round."""
    count = 0
    for some in chunks(round_ids):
        found = session.connection().execute(_recipients(), {"rounds": some}).all()
        for round_id, submission_id, user_id in found:
            payload = {"submission": submission_id, "user": user_id}
            count += outbox.add(session, KIND, f"ready:{round_id}:{user_id}", payload)
    return count


@cache
def _recipients() -> Select[Any]:
    """The statement for round, submission and user of all recipients of `rounds`; made once."""
    return recipients_query(Round.id.in_(bindparam("rounds", expanding=True)))


def recipients_query(these: ColumnElement[bool]) -> Select[Any]:
    """A statement for round, submission and user of all recipients of these rounds."""
    owners = select(Round.id, Submission.id.label("submission_id"), Submission.student_id.label("user_id"))
    owners = owners.join(Submission, Submission.id == Round.submission_id).where(these)
    member = SubmissionMember
    members = select(Round.id, member.submission_id, member.user_id)
    members = members.join(member, member.submission_id == Round.submission_id).where(these)
    people = owners.union(members).subquery()
    of_it = and_(
        MailPreference.submission_id == people.c.submission_id, MailPreference.user_id == people.c.user_id
    )
    return (
        select(people)
        .join(User, User.id == people.c.user_id)
        .outerjoin(MailPreference, of_it)
        .where(func.coalesce(MailPreference.wanted, User.mail_when_ready), User.email != "", ~User.disabled)
    )


def add_answer_letter(session: Session, submission_id: str, user_id: int, request_id: int) -> bool:
    """Queue a mail to a student who wants one, in the transaction that answers their regrade request."""
    wants, address = load_mail_preference(session, submission_id, user_id)
    if not wants or not address:
        return False
    payload = {"submission": submission_id, "user": user_id, "answer": request_id}
    key = f"answered:{request_id}:{user_id}"
    # answered before, and undone: this is another answer
    return outbox.add(session, KIND, key, payload) or outbox.reopen(session, KIND, key)


def load_letter(session: Session, payload: dict[str, Any]) -> Letter | None:
    """The mail of an outbox row; None when its reason is gone.

    Results that are not visible any more, answers that were undone and preferences that changed since send no
    mail.
    """
    submission_id, user_id = str(payload.get("submission")), int(payload.get("user", 0))
    query = (
        select(Submission.student_id, Assignment.title)
        .join(Assignment, Assignment.id == Submission.assignment_id)
        .join(Round, and_(Round.submission_id == Submission.id, Round.current))
        .join(Grade, Grade.round_id == Round.id)
        .where(Submission.id == submission_id, Grade.released_at.is_not(None))
    )
    row = session.execute(query).first()
    user = session.get(User, user_id)
    if row is None or user is None or user.disabled:
        return None
    theirs = row.student_id == user_id or session.get(SubmissionMember, (submission_id, user_id)) is not None
    wants, address = load_mail_preference(session, submission_id, user_id)
    if not (theirs and wants and address) or _is_reopened(session, payload):
        return None
    return Letter(address, user.language, row.title, submission_id, answer="answer" in payload)


def _is_reopened(session: Session, payload: dict[str, Any]) -> bool:
    """Whether a mail is about an answer that was undone."""
    asked = session.get(RegradeRequest, int(payload["answer"])) if "answer" in payload else None
    return asked is not None and asked.state == "open"
