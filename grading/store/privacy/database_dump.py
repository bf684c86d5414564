"""A whole database as one file and back: SQLite by VACUUM INTO, PostgreSQL by pg_dump and psql."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, func, inspect, make_url, select, table, text
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, GraderError
from grading.store import schema
from grading.store.database import Store, now
from grading.store.learning_platforms import all_tables

COUNTED = {"submissions": "submissions", "grades": "grades", "files": "submission_files"}
POSTGRES_FOLDERS = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/opt/homebrew/bin")


class BackupFailed(GraderError):
    """The back-up could not be made or brought back."""

    code = "backup_failed"
    status = 500


@dataclass(frozen=True)
class State:
    """What a database held at one moment, by its own clock."""

    kind: str
    """`sqlite` or `postgresql`."""
    revision: str
    moment: datetime
    counts: dict[str, int]
    """Rows of submissions, grades and files."""


def dump(store: Store, to: Path) -> State:
    """Write a consistent copy while others go on working; `to` must not exist. Raises BackupFailed."""
    if schema.current(store) is None:
        raise BackupFailed("There are no tables to back up; `grader db upgrade` makes them.")
    return _dump_sqlite(store, to) if store.engine.dialect.name == "sqlite" else _dump_postgres(store, to)


def _dump_sqlite(store: Store, to: Path) -> State:
    with store.read() as session:
        moment = now(session)
    raw = store.engine.raw_connection()
    try:
        driver: Any = raw.driver_connection
        driver.execute("VACUUM INTO ?", (str(to),))
    except sqlite3.Error as error:
        raise BackupFailed(
            f"The copy of the database could not be written: {error}; nothing is left of it."
        ) from error
    finally:
        raw.close()
    with closing(sqlite3.connect(f"{to.resolve().as_uri()}?mode=ro", uri=True)) as copy:
        revision = copy.execute("select version_num from alembic_version").fetchone()[0]
        counts = {
            name: copy.execute(f"select count(*) from {source}").fetchone()[0]  # noqa: S608 - our names
            for name, source in COUNTED.items()
        }
    return State("sqlite", revision, moment, counts)


def _dump_postgres(store: Store, to: Path) -> State:
    engine = store.engine.execution_options(isolation_level="REPEATABLE READ")
    with Session(engine) as session:
        # it only waits for pg_dump, which sees exactly what it sees
        session.execute(text("set local idle_in_transaction_session_timeout = 0"))
        snapshot = session.execute(text("select pg_export_snapshot()")).scalar_one()
        revision = session.execute(text("select version_num from alembic_version")).scalar_one()
        counts = {
            name: session.execute(select(func.count()).select_from(table(source))).scalar_one()
            for name, source in COUNTED.items()
        }
        state = State("postgresql", revision, now(session), counts)
        keep = ("--format=custom", "--no-owner", "--no-privileges", f"--snapshot={snapshot}")
        _run("pg_dump", [*keep, "--file", str(to)], store.url)
    return state


def load(store: Store, content: Path) -> None:
    """Put a PostgreSQL dump in the place of all tables, in one transaction. Raises BackupFailed."""
    script = content.with_suffix(".sql")
    # psql's own restriction of the script stays within it; ours comes before
    _run("pg_restore", ["--no-owner", "--no-privileges", "--file", str(script), str(content)], None)
    drops = content.with_suffix(".drops.sql")
    names = [name for name in inspect(store.engine).get_table_names() if name in _ours()]
    quote = store.engine.dialect.identifier_preparer.quote_identifier
    drops.write_text("".join(f"drop table public.{quote(name)} cascade;\n" for name in names))
    store.engine.dispose()
    once = ["--no-psqlrc", "--quiet", "--single-transaction", "--set", "ON_ERROR_STOP=1"]
    _run("psql", [*once, "--output", os.devnull, "--file", str(drops), "--file", str(script)], store.url)


def _ours() -> set[str]:
    """Tables that a restore replaces; a PostgreSQL database may hold others."""
    return {*all_tables().tables, "alembic_version"}


def holds_rows(store: Store) -> bool:
    """Whether there is anything in the database that a restore would put an end to."""
    with store.engine.connect() as connection:
        names = _ours().intersection(inspect(connection).get_table_names()) - {"alembic_version"}
        return any(_has_rows(connection, name) for name in sorted(names))


def _has_rows(connection: Connection, name: str) -> bool:
    return connection.execute(select(text("1")).select_from(table(name)).limit(1)).first() is not None


def require_unused(engine: Engine) -> None:
    """Raise Conflict while other processes have the database open."""
    if engine.dialect.name == "postgresql":
        others = (
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
        with engine.connect() as connection:
            used = connection.execute(text(others)).scalar_one() > 0
    else:
        engine.dispose()  # or this process would be the one that uses it
        used = not _alone(Path(engine.url.database or ""))
    if used:
        raise Conflict("The database is in use; stop web, store and sweep first, then restore.")


def _alone(path: Path) -> bool:
    """Leaving WAL mode needs that nobody else has the file open; the log is emptied by it, too."""
    if not path.exists():
        return True
    with closing(sqlite3.connect(path, timeout=2, isolation_level=None)) as connection:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=DELETE").fetchone()
        except sqlite3.OperationalError:
            return False
    return str(mode) == "delete"


def _run(program: str, arguments: Sequence[str], url: str | None) -> None:
    environ = dict(os.environ)
    command = [find_program(program), *arguments]
    if url is not None:
        parts = make_url(url).set(drivername="postgresql")
        if parts.password:
            environ["PGPASSWORD"] = str(parts.password)  # the list of processes shows arguments
        clean = parts.set(password=None).render_as_string(hide_password=False)
        command += ["--dbname", clean]
    done = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise BackupFailed(f"{program} failed: {said[0] if said else 'it gave no reason'}.")


def find_program(name: str) -> str:
    """Path of a PostgreSQL program, of the newest version there is. Raises BackupFailed."""
    root = Path("/")
    # what is on the PATH may be a wrapper that chooses the version itself
    program = shutil.which(name)
    if program is None:
        installed = [path for folder in POSTGRES_FOLDERS for path in root.glob(f"{folder[1:]}/{name}")]
        newest = max(
            installed, key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))], default=None
        )
        program = str(newest) if newest else None
    if program is None:
        raise BackupFailed(f"{name} is not on this machine; install the PostgreSQL client programs.")
    return program
