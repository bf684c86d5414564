"""Schema of the database: upgrades to the newest revision, and its present revision."""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from grading.domain.errors import GraderError
from grading.store.database import Store

_ONE_AT_A_TIME = threading.Lock()
"""Alembic keeps its context in its module: two threads would change each other's database."""
MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"


_UNKNOWN = "The database is at revision {}, which is of another version of Grader; this one knows up to {}."


class StoreOutdated(GraderError):
    """The database's tables are not those of this code."""

    code = "store_outdated"
    status = 503


def _config(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def upgrade(url: str, revision: str = "head") -> None:
    """Migrate up to a revision. Raises StoreOutdated when the database is at one that is not known."""
    with _ONE_AT_A_TIME:
        _require_known(url)
        command.upgrade(_config(url), revision)


def downgrade(url: str, revision: str) -> None:
    """Migrate down to a revision; `base` empties the database."""
    with _ONE_AT_A_TIME:
        command.downgrade(_config(url), revision)


def _require_known(url: str) -> None:
    store = Store(url)
    try:
        at = current_revision(store)
    finally:
        store.close()
    if at is not None and at not in known_revisions():
        raise StoreOutdated(_UNKNOWN.format(at, newest_revision()))


def newest_revision() -> str:
    """The revision this code needs."""
    head = ScriptDirectory.from_config(_config("sqlite://")).get_current_head()
    return head or ""


def known_revisions() -> frozenset[str]:
    """All revisions of this code."""
    script = ScriptDirectory.from_config(_config("sqlite://"))
    return frozenset(revision.revision for revision in script.walk_revisions())


def current_revision(store: Store) -> str | None:
    """The revision the database is at; nothing when it is empty."""
    with store.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def require_newest(store: Store) -> None:
    """Raise StoreOutdated, with the remedy, unless the tables are those of this code."""
    at = current_revision(store)
    if at is not None and at not in known_revisions():
        raise StoreOutdated(_UNKNOWN.format(at, newest_revision()))
    if at != newest_revision():
        is_at = f"is at revision {at}" if at else "has no tables yet"
        raise StoreOutdated(
            f"The database {is_at}, this code needs {newest_revision()}; run `grader db upgrade`."
        )
