"""What the doctor asks a database about itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import text

from grading.store.database import Store, now


@dataclass(frozen=True)
class DatabaseFacts:
    """A database that answers: its kind and version, whether commits survive a power cut, and its time."""

    kind: str
    version: str
    durable: bool
    now: datetime


def file_of(store: Store) -> Path | None:
    """The file of an SQLite database."""
    url = store.engine.url
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def facts(store: Store) -> DatabaseFacts:
    """Ask the database. Raises SQLAlchemy's errors."""
    with store.read() as session:
        if file_of(store) is not None:
            version = str(session.scalar(text("select sqlite_version()")))
            durable = session.scalar(text("pragma journal_mode")) == "wal"
            return DatabaseFacts("SQLite", version, durable, now(session))
        version = str(session.scalar(text("show server_version")))
        settings = (session.scalar(text(f"show {name}")) for name in ("fsync", "synchronous_commit"))
        return DatabaseFacts("PostgreSQL", version, "off" not in settings, now(session))
