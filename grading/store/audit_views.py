"""Views of grades in the audit."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.store.database import now
from grading.store.tables import Audit

ACTION = "grade.view"


def lately(session: Session, actor: str, object_: str, within: timedelta) -> bool:
    """Whether this view of the actor is in the audit already, from not longer ago."""
    query = select(Audit.id).where(
        Audit.object == object_[:100],
        Audit.actor == actor[:100],
        Audit.action == ACTION,
        Audit.at > now(session) - within,
    )
    return session.scalar(query.limit(1)) is not None
