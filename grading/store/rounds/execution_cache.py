"""Cache of sandbox runs by the hash of their inputs, so that equal work runs once."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from grading.store.database import now
from grading.store.tables import Base

_TRIALS: Table = Base.metadata.tables["cached_executions"]


def find_execution(session: Session, key: str) -> Any | None:
    """The result under that key as JSON, or None."""
    return session.execute(select(_TRIALS.c.content).where(_TRIALS.c.key == key)).scalar_one_or_none()


def store_execution(session: Session, key: str, submission_id: str | None, content: dict[str, Any]) -> None:
    """Store a result; one that is stored stays."""
    insert = sqlite_insert if session.get_bind().dialect.name == "sqlite" else postgresql_insert
    row = {"key": key, "submission_id": submission_id, "content": content, "created_at": now(session)}
    session.execute(insert(_TRIALS).values(row).on_conflict_do_nothing())
