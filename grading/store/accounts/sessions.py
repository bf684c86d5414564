"""Browser sessions: open as long as the row exists, whatever cookies were copied."""

from __future__ import annotations

import secrets
from datetime import timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from grading.store.database import now
from grading.store.tables import OpenSession

LIFETIME = timedelta(days=30)
"""Lifetime of a session; its cookie also ends after 12 hours without use."""
MAX_PER_USER = 200
"""Open sessions of one user; the oldest ones are ended."""


def create_session(session: Session, user_id: int) -> str:
    """Start a session of a user; returns its id, a secret of the browser."""
    made = secrets.token_urlsafe(24)
    session.add(OpenSession(id=made, user_id=user_id, begun_at=now(session)))
    session.flush()
    theirs = OpenSession.user_id == user_id
    newest = select(OpenSession.id).where(theirs).order_by(OpenSession.begun_at.desc(), OpenSession.id)
    session.execute(delete(OpenSession).where(theirs, OpenSession.id.not_in(newest.limit(MAX_PER_USER))))
    return made


def end_session(session: Session, session_id: str) -> None:
    """End a session; nothing happens if it has ended."""
    session.execute(delete(OpenSession).where(OpenSession.id == session_id))


def end_sessions(session: Session, user_id: int) -> None:
    """End all sessions of a user."""
    session.execute(delete(OpenSession).where(OpenSession.user_id == user_id))


def delete_expired(session: Session) -> None:
    """Delete sessions older than LIFETIME."""
    session.execute(delete(OpenSession).where(OpenSession.begun_at < now(session) - LIFETIME))
