"""Schema of the database: upgrades to the newest revision, and its present revision."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import OperationalError

from grading.domain.errors import GraderError
from grading.store.away import first_line, refuses_password
from grading.store.database import Store

QUOTED = "in its password write @ as %40, / as %2F, # as %23 and % as %25"
_ONE_AT_A_TIME = threading.Lock()
"""Alembic keeps its context in its module: two threads would change each other's database."""
MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"


SINCE = "_since_"
"""In the name of a revision that only adds: `0004_since_0002` also suits code that ends at 0002 or later.

A revision without it suits no code that is older than itself. See docs/contributing/development.md.
"""
Fit = Literal["same", "older", "newer", "unknown"]
"""Of a database beside this code. Code works with one that is the same, or newer and made to suit it."""


@dataclass(frozen=True)
class Revisions:
    """The revisions of this code."""

    newest: str
    known: frozenset[str]


class StoreOutdated(GraderError):
    """The database's tables are not those of this code."""

    code = "store_outdated"
    status = 503


class DatabaseAway(GraderError):
    """Nothing answers at the database's address, or it lets nobody in."""

    code = "database_away"
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
        at = reached_revision(store)
    finally:
        store.close()
    if fit_of(at) in ("newer", "unknown"):
        raise StoreOutdated(sentence(at))


@cache
def revisions() -> Revisions:
    """Those of this code, read once: an update puts newer ones into the folder while this process runs."""
    script = ScriptDirectory.from_config(_config("sqlite://"))
    known = frozenset(revision.revision for revision in script.walk_revisions())
    return Revisions(script.get_current_head() or "", known)


def newest_revision() -> str:
    """The revision this code needs."""
    return revisions().newest


def current_revision(store: Store) -> str | None:
    """The revision the database is at; nothing when it is empty."""
    with store.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def fit_of(at: str | None) -> Fit:
    """How a database at this revision fits this code."""
    if at == newest_revision():
        return "same"
    if at is None or at in revisions().known:
        return "older"
    return "newer" if at.partition(SINCE)[2] in revisions().known else "unknown"


def sentence(at: str | None) -> str:
    """How a database at this revision fits this code, in words, with what to do."""
    newest = newest_revision()
    match fit_of(at):
        case "same":
            return f"The database is at revision {at}, the one of this code."
        case "older":
            is_at = f"is at revision {at}" if at else "has no tables"
            return f"The database {is_at}. This code needs revision {newest}: run `grader db upgrade`."
        case "newer":
            return (
                f"The database is at revision {at}, newer than this code ({newest}) but compatible. {UPDATE}"
            )
    return (
        f"The database is at revision {at}, which belongs to another version of Grader. "
        f"This code supports up to {newest}. {UPDATE}"
    )


UPDATE = "Update this code (`git pull`, `scripts/bootstrap sandbox`) and restart its services."


def require_usable(store: Store) -> None:
    """Raise StoreOutdated, with the remedy, unless this code works with the tables."""
    at = reached_revision(store)
    if fit_of(at) not in ("same", "newer"):
        raise StoreOutdated(sentence(at))


def reached_revision(store: Store) -> str | None:
    """The revision of the database. Raises DatabaseAway, with the remedy, where there is no way to it."""
    try:
        return current_revision(store)
    except OperationalError as error:
        reason = first_line(error)
        if refuses_password(error):
            raise DatabaseAway(
                f"The database refuses the password of GRADER_DATABASE_URL ({reason}). Put the right one "
                f"there; {QUOTED}."
            ) from None
        raise DatabaseAway(
            f"The database does not answer ({reason}). Start it, or correct GRADER_DATABASE_URL; {QUOTED}."
        ) from None
