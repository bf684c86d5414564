"""Opening the store, its transactions and its clock, alike on SQLite and PostgreSQL."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    ColumnElement,
    Engine,
    Integer,
    create_engine,
    event,
    literal_column,
    make_url,
    text,
)
from sqlalchemy.exc import DBAPIError, InterfaceError, InvalidatePoolError, OperationalError, TimeoutError
from sqlalchemy.orm import Session, sessionmaker

from grading.store import change_tracking

LOCK_TIMEOUT_S = 30.0
"""Seconds a write waits for others to finish theirs."""
POSTGRES = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    # a process that stands still in a transaction must not hold its rows against all others
    "options": "-c idle_in_transaction_session_timeout=60s -c lock_timeout=30s",
}
PREPARED_STATEMENTS = 400
"""Statements that stay prepared on a connection pages look through: with the driver's 100 few ever would."""
PREPARE_THRESHOLD = 2
"""Times a page asks something before it is prepared."""
PING_AFTER_S = 1.0
"""Seconds for which a connection that was used is taken to be alive."""
_WAL_ATTEMPTS = 20
"""Attempts to switch a new database to WAL mode: others may write between a wait and the switch."""


class _WriterLock:
    """A lock for one thread at a time; who waits too long gets the error of a locked database."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._wait_s):
            raise OperationalError("BEGIN IMMEDIATE", None, sqlite3.OperationalError("database is locked"))

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Store:
    """A database and the two ways to use it: `write()` and `read()`, each one transaction.

    SQLite runs in WAL mode; a write takes its lock at the start, so that it never fails half way for want of
    one, and waits for it up to `wait_s`. `clock_offset_s` shifts `now`, for tests.
    """

    def __init__(self, url: str, *, clock_offset_s: float = 0.0, wait_s: float = LOCK_TIMEOUT_S) -> None:
        self.url = url
        self.clock_offset_s = clock_offset_s
        self.engine = _engine(url, wait_s)
        postgresql = self.engine.dialect.name == "postgresql"
        self.deriving = _async_commit_engine(self.engine.url) if postgresql else self.engine
        """Whose connections `write(derived=True)` uses."""
        self._write, self._write_derived = (
            sessionmaker(engine.execution_options(write=True, derived=derived), expire_on_commit=False)
            for engine, derived in ((self.engine, False), (self.deriving, True))
        )
        for writing in (self._write, self._write_derived):
            change_tracking.track_changes(writing)
        # SQLite has one writer; threads that wait here take turns at once, those that wait there sleep
        self._turn: AbstractContextManager[object] = (
            _WriterLock(wait_s) if self.engine.dialect.name == "sqlite" else nullcontext()
        )
        # What only reads cannot write. So it may end with COMMIT, after which statements stay prepared: the
        # driver forgets those of a connection at a ROLLBACK.
        self._read = sessionmaker(
            self.engine.execution_options(postgresql_readonly=True), expire_on_commit=False
        )
        self.looking = self.engine
        """Whose connections `look` uses."""
        self._look = self._read
        if postgresql:
            # at "read committed" a transaction shows no more than each query by itself, and costs more ways
            self.looking = _autocommit_engine(self.engine.url)
            self._look = sessionmaker(self.looking, expire_on_commit=False)

    @contextmanager
    def write(self, *, derived: bool = False) -> Iterator[Session]:
        """A session that commits at the end, or rolls back on an error.

        What is `derived` can be made again from what was written before. Its commit does not wait for the
        disk: when the computer loses its power, the last of it may be undone, in whole transactions. The next
        commit that does wait takes all before it along.
        """
        with self._turn, (self._write_derived if derived else self._write).begin() as session:
            session.info["offset"] = self.clock_offset_s
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that only reads."""
        with self._read() as session:
            session.info["offset"] = self.clock_offset_s
            yield session
            if self.engine.dialect.name == "postgresql":
                session.commit()

    @contextmanager
    def look(self) -> Iterator[Session]:
        """A session that only reads, for pages with a few short queries; nothing is streamed from it."""
        with self._look() as session:
            session.info["offset"] = self.clock_offset_s
            yield session

    def close(self) -> None:
        """Give back all connections."""
        self.engine.dispose()
        self.looking.dispose()
        self.deriving.dispose()


_SQLITE_CLOCK, _POSTGRESQL_CLOCK = "strftime('%Y-%m-%dT%H:%M:%f', 'now')", "clock_timestamp()"
_POSTGRESQL_TIME = text(f"select {_POSTGRESQL_CLOCK}")


def now(session: Session) -> datetime:
    """The database's time when the session first asked, aware, in UTC: the one clock that decides."""
    if "now" not in session.info:
        moment = _fetch_time(session) + timedelta(seconds=session.info.get("offset", 0.0))
        session.info["now"] = moment
    known: datetime = session.info["now"]
    return known


def clock_column(dialect: str) -> ColumnElement[Any]:
    """The time as a column, for a query that reads something else, too; `told` understands it."""
    return literal_column(_SQLITE_CLOCK if dialect == "sqlite" else _POSTGRESQL_CLOCK).label("clock")


def literal_limit(count: int) -> ColumnElement[int]:
    """A limit that is part of the query itself: with one that comes later no plan is kept."""
    return literal_column(str(count), Integer)


def cache_now(session: Session, value: Any) -> datetime:
    """What `now` is, by a `clock` that a query of this session brought along; an earlier one stays."""
    if "now" not in session.info:
        session.info["now"] = _time_of(value) + timedelta(seconds=session.info.get("offset", 0.0))
    return now(session)


def _fetch_time(session: Session) -> datetime:
    if session.get_bind().dialect.name == "sqlite":
        # SQLite's clock is that of this computer, in whole milliseconds; a statement would only cost more
        moment = datetime.now(UTC)
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    return _time_of(session.execute(_POSTGRESQL_TIME).scalar_one())


def _time_of(value: Any) -> datetime:
    return parse_timestamp(value) if isinstance(value, str) else value.astimezone(UTC)  # text of SQLite


def parse_timestamp(told: str) -> datetime:
    """An instant that the database wrote as text; SQLite knows of no time zones."""
    moment = datetime.fromisoformat(told)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _engine(url: str, wait_s: float) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        return _postgresql_engine(parsed, **_connect_options(parsed))
    if parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        parsed, connect_args={"timeout": wait_s}, pool_size=10, max_overflow=10, hide_parameters=True
    )
    event.listen(engine, "connect", _sqlite_connect)
    event.listen(engine, "begin", _sqlite_begin)
    return engine


def _postgresql_engine(url: URL, *, isolation_level: Any = None, **connect: Any) -> Engine:
    """Connections that are tried before they are used, but for those that were used a moment ago."""
    engine = create_engine(
        url,
        isolation_level=isolation_level,
        pool_size=10,
        max_overflow=10,
        pool_use_lifo=True,  # few connections that know the statements are faster than many that do not
        connect_args=connect,
        hide_parameters=True,  # errors end up in logs, students' work must not
    )

    def used(_connection: Any, record: Any) -> None:
        record.info["used"] = time.monotonic()

    def alive(connection: Any, record: Any, _proxy: Any) -> None:
        if time.monotonic() - record.info["used"] < PING_AFTER_S:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error

    event.listen(engine, "connect", used)
    event.listen(engine, "checkin", used)
    event.listen(engine, "checkout", alive)
    return engine


def _autocommit_engine(url: URL) -> Engine:
    """For queries outside of transactions, on connections of their own."""
    options = {**_connect_options(url), "prepare_threshold": PREPARE_THRESHOLD}
    engine = _postgresql_engine(url, isolation_level="AUTOCOMMIT", **options)

    def made(connection: Any, _record: Any) -> None:
        connection.prepared_max = PREPARED_STATEMENTS

    event.listen(engine, "connect", made)
    return engine


def _async_commit_engine(url: URL) -> Engine:
    """For writes whose commit does not wait for the disk."""
    given = url.query.get("options", POSTGRES["options"])
    return _postgresql_engine(
        url, **{**_connect_options(url), "options": f"{given} -c synchronous_commit=off"}
    )


def _connect_options(url: URL) -> dict[str, Any]:
    return {key: value for key, value in POSTGRES.items() if key not in url.query}


def _sqlite_connect(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions are begun below, not by the driver
    _to_wal(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _to_wal(connection: Any) -> None:
    """Switch a database to WAL mode, or find it there.

    While another connection writes to a new database, SQLite refuses the switch at once, whatever the busy
    timeout; the lock asked for in between does wait, for as long as a write may.
    """
    for attempt in range(_WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if attempt == _WAL_ATTEMPTS - 1:
                raise
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")


def _sqlite_begin(connection: Any) -> None:
    options = connection.get_execution_options()
    if not options.get("write"):
        connection.exec_driver_sql("BEGIN")
        return
    connection.exec_driver_sql(f"PRAGMA synchronous={'NORMAL' if options.get('derived') else 'FULL'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")


POSTGRES_FULL = "53100"
MIN_FREE_BYTES = 1024 * 1024
"""Bytes; below, a file that SQLite cannot write or make is a matter of room."""
_PRIMARY = 0xFF


def is_disk_full(error: BaseException, store: Store) -> bool:
    """Whether the database had no room; what it was asked to write is rolled back."""
    if not isinstance(error, DBAPIError):
        return False
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is None:
        return getattr(error.orig, "sqlstate", None) == POSTGRES_FULL
    if code == sqlite3.SQLITE_FULL:
        return True
    # without room for its -wal or -shm file, SQLite only knows that it could not write or open it
    return code & _PRIMARY in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _has_no_room(store)


def _has_no_room(store: Store) -> bool:
    path = make_url(store.url).database
    try:
        return path is not None and shutil.disk_usage(path).free < MIN_FREE_BYTES
    except OSError:
        return False


def is_unavailable(error: BaseException) -> bool:
    """Whether the database is restarting, locked or out of connections: the same may work in a while."""
    if isinstance(error, DBAPIError):
        return isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
    return isinstance(error, TimeoutError)
