"""The language a person reads pages in."""

from __future__ import annotations

from sqlalchemy import update
from sqlalchemy.orm import Session

from grading.store.tables import User


def choose(session: Session, user_id: int, language: str) -> None:
    """Keep it with the account."""
    session.execute(update(User).where(User.id == user_id).values(language=language))
