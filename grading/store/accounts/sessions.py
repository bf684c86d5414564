"""Sessions of browsers: one is open as long as its row is there, whatever cookies were copied."""

from __future__ import annotations

import secrets
from datetime import timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from grading.store.database import now
from grading.store.tables import OpenSession

LIFETIME = timedelta(days=30)
"""After that somebody signs in again, however often they were here; the cookie ends after 12 hours unused."""
MAX_PER_USER = 200
"""Of one person; the oldest ones end."""


def create_session(session: Session, user_id: int) -> str:
    """A new session of somebody; its id is a secret of their browser."""
    made = secrets.token_urlsafe(24)
    session.add(OpenSession(id=made, user_id=user_id, begun_at=now(session)))
    session.flush()
    theirs = OpenSession.user_id == user_id
    newest = select(OpenSession.id).where(theirs).order_by(OpenSession.begun_at.desc(), OpenSession.id)
    session.execute(delete(OpenSession).where(theirs, OpenSession.id.not_in(newest.limit(MAX_PER_USER))))
    return made


def end_session(session: Session, session_id: str) -> None:
    """End this one; nothing happens if it is over."""
    session.execute(delete(OpenSession).where(OpenSession.id == session_id))


def end_sessions(session: Session, user_id: int) -> None:
    """End all of somebody."""
    session.execute(delete(OpenSession).where(OpenSession.user_id == user_id))


def delete_expired(session: Session) -> None:
    """End those that lasted long enough."""
    session.execute(delete(OpenSession).where(OpenSession.begun_at < now(session) - LIFETIME))
