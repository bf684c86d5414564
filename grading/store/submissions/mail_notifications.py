"""Who wants to hear by mail that a result is ready or a question answered, and the letters that wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, func, select
from sqlalchemy.orm import Session

from grading.store import outbox
from grading.store.bulk import chunks
from grading.store.tables import Assignment, Grade, MailPreference, Round, Submission, SubmissionMember, User

KIND = "mail"


@dataclass(frozen=True)
class Letter:
    """To whom, in which language (empty: they chose none), and about which submission for what."""

    address: str
    language: str
    title: str
    submission_id: str
    answer: bool = False
    """It tells of an answer to a request for a regrade, not of a result."""


def set_mail_preference(session: Session, submission_id: str, user_id: int, *, wanted: bool) -> None:
    """Somebody wants, or does not want, to hear of this submission, whatever they chose for all of theirs."""
    session.merge(MailPreference(submission_id=submission_id, user_id=user_id, wanted=wanted))


def load_mail_preference(session: Session, submission_id: str, user_id: int) -> tuple[bool, str]:
    """Whether somebody wants to hear of this submission, and their address (empty: there is none)."""
    of_it = and_(MailPreference.submission_id == submission_id, MailPreference.user_id == User.id)
    query = select(func.coalesce(MailPreference.wanted, User.mail_when_ready), User.email)
    row = session.execute(query.outerjoin(MailPreference, of_it).where(User.id == user_id)).first()
    return (bool(row[0]), row[1]) if row is not None else (False, "")


def add_result_letters(session: Session, round_ids: Sequence[str]) -> int:
    """In the transaction that releases these: leave a letter to each who wants one, once a round."""
    count = 0
    for some in chunks(round_ids):
        found = session.connection().execute(_recipients(), {"rounds": some}).all()
        for round_id, submission_id, user_id in found:
            payload = {"submission": submission_id, "user": user_id}
            count += outbox.add(session, KIND, f"ready:{round_id}:{user_id}", payload)
    return count


@cache
def _recipients() -> Select[Any]:
    """Round, submission and user of all who want to hear of these `rounds`; made once."""
    return recipients_query(Round.id.in_(bindparam("rounds", expanding=True)))


def recipients_query(these: ColumnElement[bool]) -> Select[Any]:
    """A query for round, submission and user of all who want to hear of these rounds."""
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
    """In the transaction that answers a request for a regrade: leave a letter to who asked and wants one."""
    wants, address = load_mail_preference(session, submission_id, user_id)
    if not wants or not address:
        return False
    payload = {"submission": submission_id, "user": user_id, "answer": request_id}
    return outbox.add(session, KIND, f"answered:{request_id}:{user_id}", payload)


def load_letter(session: Session, payload: dict[str, Any]) -> Letter | None:
    """What is to be written; nothing when there is no reason for it any more.

    Nobody is told of what they cannot see by now, or no longer want to hear of.
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
    if not (theirs and wants and address):
        return None
    return Letter(address, user.language, row.title, submission_id, answer="answer" in payload)
