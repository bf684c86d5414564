"""Attempts of a Canvas that become hand-ins, each once."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from grading.documents import HandIn
from grading.integrations.canvas.values import Attempt
from grading.store import tables
from grading.store.accounts import users
from grading.store.database import Store, now
from grading.store.integrations.canvas.links import Link
from grading.store.integrations.canvas.score_sync import KIND
from grading.store.integrations.canvas.tables import CanvasTaken
from grading.store.submissions import intake
from grading.store.submissions.intake import Accepted, Incoming
from grading.store.tables import Identity, Membership


def known(session: Session, link: Link) -> set[tuple[str, int]]:
    """What was pulled: people there and attempts."""
    query = select(Identity.subject, CanvasTaken.attempt).join(
        CanvasTaken, CanvasTaken.user_id == Identity.user_id
    )
    query = query.where(Identity.provider == link.provider, CanvasTaken.link_id == link.id)
    return {(row.subject, row.attempt) for row in session.execute(query)}


def students(session: Session, link: Link) -> set[str]:
    """Who may have handed in: the course's students here who are known from this Canvas, by number there."""
    query = select(Identity.subject).join(Membership, Membership.user_id == Identity.user_id)
    here = (Identity.provider == link.provider, Membership.course_id == link.course_id)
    return set(session.scalars(query.where(*here, Membership.role == "student")))


def accept(store: Store, link: Link, attempt: Attempt, content: HandIn) -> Accepted | None:
    """Hand in an attempt; nothing where another process did, or whose it is nobody knows here.

    Raises what handing in does.
    """
    try:
        with store.write() as session:
            row = _row(session, link, attempt, "")
            if row is None:
                return None
            session.flush()
            accepted = intake.accept(
                session,
                Incoming(link.assignment_id, row.user_id, KIND, content, at=attempt.at, trusted=True),
            )  # Canvas has its own door, and this comes minutes later
            row.submission_id = accepted.submission_id
            return accepted
    except IntegrityError:
        with store.read() as session:
            if (attempt.user, attempt.number) in known(session, link):
                return None
        raise


def refuse(session: Session, link: Link, attempt: Attempt, error: str) -> None:
    """Remember that an attempt can be no hand-in, and why."""
    row = _row(session, link, attempt, error)
    if row is not None and (attempt.user, attempt.number) not in known(session, link):
        session.merge(row)


def _row(session: Session, link: Link, attempt: Attempt, error: str) -> CanvasTaken | None:
    user: tables.User | None = users.find_user(session, link.provider, attempt.user)
    if user is None:
        return None
    row = CanvasTaken(
        link_id=link.id, user_id=user.id, attempt=attempt.number, late=attempt.late,
        error=error[:500], at=now(session),
    )  # fmt: skip
    if not error:
        session.add(row)
    return row
