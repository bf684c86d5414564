"""Browser sessions: open as long as the row exists, whatever cookies were copied."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Select, delete, select
from sqlalchemy.orm import Session

from grading.store.database import now
from grading.store.tables import Identity, OpenSession

LIFETIME = timedelta(days=30)
"""Lifetime of a session; its cookie also ends after 12 hours without use."""
MAX_PER_USER = 200
"""Open sessions of one user; the oldest ones are ended."""


@dataclass(frozen=True)
class SignOnOrigin:
    """The sign-in at a provider that a session began with."""

    identity_id: int
    provider_session: str = ""
    """The provider's name of its own session; empty where it has none."""
    id_token: str = ""


def create_session(session: Session, user_id: int, origin: SignOnOrigin | None = None) -> str:
    """Start a session of a user; returns its id, a secret of the browser."""
    made = secrets.token_urlsafe(24)
    row = OpenSession(id=made, user_id=user_id, begun_at=now(session))
    if origin is not None:
        row.identity_id, row.provider_session = origin.identity_id, origin.provider_session
        row.id_token = origin.id_token
    session.add(row)
    session.flush()
    theirs = OpenSession.user_id == user_id
    newest = select(OpenSession.id).where(theirs).order_by(OpenSession.begun_at.desc(), OpenSession.id)
    session.execute(delete(OpenSession).where(theirs, OpenSession.id.not_in(newest.limit(MAX_PER_USER))))
    return made


def end_session(session: Session, session_id: str) -> None:
    """End a session; nothing happens if it has ended."""
    session.execute(delete(OpenSession).where(OpenSession.id == session_id))


def is_open(session: Session, session_id: str, user_id: int) -> bool:
    """Whether this session of this user is open."""
    query = select(OpenSession.id).where(OpenSession.id == session_id, OpenSession.user_id == user_id)
    return session.scalar(query) is not None


def load_origin(session: Session, session_id: str) -> tuple[str, str] | None:
    """The provider that an open session began with, and its ID token; None for one with a password."""
    query = select(Identity.provider, OpenSession.id_token)
    query = query.join(Identity, Identity.id == OpenSession.identity_id)
    found = session.execute(query.where(OpenSession.id == session_id)).first()
    return None if found is None else (found.provider, found.id_token)


def end_sessions_of_identity(session: Session, identity_id: int, provider_session: str = "") -> int:
    """End the sessions that began with an identity; returns how many.

    With a session there, only those of it, and those of which the provider named none.
    """
    theirs = delete(OpenSession).where(OpenSession.identity_id == identity_id)
    if provider_session:
        theirs = theirs.where(OpenSession.provider_session.in_((provider_session, "")))
    return len(session.scalars(theirs.returning(OpenSession.id)).all())


def identities_of_provider_session(provider_session: str) -> Select[int | None]:
    """The identities with open sessions of a session at their provider."""
    return select(OpenSession.identity_id).where(OpenSession.provider_session == provider_session)


def end_sessions(session: Session, user_id: int, keep: str = "") -> None:
    """End all sessions of a user but the one to keep, which stays as old and of the sign-in that it was."""
    session.execute(delete(OpenSession).where(OpenSession.user_id == user_id, OpenSession.id != keep))


def delete_expired(session: Session) -> None:
    """Delete sessions older than LIFETIME."""
    session.execute(delete(OpenSession).where(OpenSession.begun_at < now(session) - LIFETIME))
