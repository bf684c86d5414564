"""Whether the database has the tables this version of the code expects."""

from __future__ import annotations

from pathlib import Path

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from grading.store.database import Store

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"


def at_head(store: Store) -> bool:
    """Whether every migration has been applied. Raises SQLAlchemy's errors when the database is away."""
    heads = set(ScriptDirectory(str(MIGRATIONS)).get_heads())
    with store.engine.connect() as connection:
        return set(MigrationContext.configure(connection).get_current_heads()) == heads
