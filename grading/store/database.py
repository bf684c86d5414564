"""The database: engines, transactions and the clock, alike on SQLite and PostgreSQL."""

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
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import DBAPIError, InterfaceError, InvalidatePoolError, OperationalError, TimeoutError
from sqlalchemy.orm import Session, sessionmaker

from grading.config.settings import Config
from grading.store import change_tracking
from grading.store.failover import SEVERAL_HOSTS, Successors, parse_url
from grading.store.object_store import ObjectStore, open_objects

LOCK_TIMEOUT_S = 30.0
"""Seconds that a write waits for the lock."""
POSTGRES = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    # a host that lost its network answers nothing: else a statement would wait for a quarter of an hour
    "tcp_user_timeout": 20_000,
    # a process that stands still in a transaction must not hold its rows against all others
    "options": "-c idle_in_transaction_session_timeout=60s -c lock_timeout=30s",
}
PREPARED_STATEMENTS = 400
"""Prepared statements cached for a connection of `read_autocommit`; the driver's default of 100 is too
small."""
PREPARE_THRESHOLD = 2
"""Executions of a statement on a connection before it is prepared."""
PING_AFTER_S = 1.0
"""Seconds after its last use from which a pooled connection is pinged before it is used."""
_WAL_ATTEMPTS = 20
"""Attempts to switch a new database to WAL mode: others may write between a wait and the switch."""


class _WriterLock:
    """A lock between threads; raises the error of a locked database when the wait times out."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._wait_s):
            raise OperationalError("BEGIN IMMEDIATE", None, sqlite3.OperationalError("database is locked"))

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Store:
    """A database and its sessions: `write()` and `read()` are transactions, `read_autocommit()` is for pages.

    SQLite runs in WAL mode; a write takes the lock at its start, so that it never fails half way for want
    of it, and waits for it up to `wait_s` seconds. `clock_offset_s` shifts `now`, for tests. Sessions
    read the files that are in `objects` there.
    """

    def __init__(
        self,
        url: str,
        *,
        clock_offset_s: float = 0.0,
        wait_s: float = LOCK_TIMEOUT_S,
        objects: ObjectStore | None = None,
    ) -> None:
        self.url = url
        self.clock_offset_s = clock_offset_s
        self.objects = objects
        successors = Successors()
        self.engine = _engine(url, wait_s, successors)
        postgresql = self.engine.dialect.name == "postgresql"
        self.async_commit_engine = (
            _async_commit_engine(self.engine.url, successors) if postgresql else self.engine
        )
        """The engine of `write(derived=True)`."""
        self._write, self._write_derived = (
            sessionmaker(engine.execution_options(write=True, derived=derived), expire_on_commit=False)
            for engine, derived in ((self.engine, False), (self.async_commit_engine, True))
        )
        for writing in (self._write, self._write_derived):
            change_tracking.track_changes(writing)
        # SQLite has one writer; threads that wait here take turns at once, those that wait there sleep
        self._writer_lock: AbstractContextManager[object] = (
            _WriterLock(wait_s) if self.engine.dialect.name == "sqlite" else nullcontext()
        )
        # What only reads cannot write. So it may end with COMMIT, after which statements stay prepared: the
        # driver forgets those of a connection at a ROLLBACK.
        self._read = sessionmaker(
            self.engine.execution_options(postgresql_readonly=True), expire_on_commit=False
        )
        self.autocommit_engine = self.engine
        """The engine of `read_autocommit`."""
        self._autocommit = self._read
        if postgresql:
            # at "read committed" a transaction shows no more than each query by itself, and costs more ways
            self.autocommit_engine = _autocommit_engine(self.engine.url, successors)
            self._autocommit = sessionmaker(self.autocommit_engine, expire_on_commit=False)

    @contextmanager
    def write(self, *, derived: bool = False) -> Iterator[Session]:
        """A session that commits at the end, or rolls back on an error.

        Data are `derived` if they can be computed again from what was written before. Their commit is
        asynchronous: a power failure may undo the last of these transactions, each as a whole. The next
        synchronous commit makes all before it durable.
        """
        with self._writer_lock, (self._write_derived if derived else self._write).begin() as session:
            session.info.update(offset=self.clock_offset_s, objects=self.objects)
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session in a read-only transaction."""
        with self._read() as session:
            session.info.update(offset=self.clock_offset_s, objects=self.objects, reads=True)
            yield session
            if self.engine.dialect.name == "postgresql":
                session.commit()

    @contextmanager
    def read_autocommit(self) -> Iterator[Session]:
        """A read-only session, on PostgreSQL without a transaction:

        for pages with a few short queries, not for streaming.
        """
        with self._autocommit() as session:
            session.info.update(offset=self.clock_offset_s, objects=self.objects, reads=True)
            yield session

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()
        self.autocommit_engine.dispose()
        self.async_commit_engine.dispose()


def open_store(config: Config) -> Store:
    """The database of the configuration, with its object store. Raises ConfigError without its keys."""
    return Store(config.database.url, objects=open_objects(config.files))


_SQLITE_CLOCK, _POSTGRESQL_CLOCK = "strftime('%Y-%m-%dT%H:%M:%f', 'now')", "clock_timestamp()"
_POSTGRESQL_TIME = text(f"select {_POSTGRESQL_CLOCK}")


def now(session: Session) -> datetime:
    """The database's time at the session's first call, aware, in UTC. Only this clock decides."""
    if "now" not in session.info:
        moment = _fetch_time(session) + timedelta(seconds=session.info.get("offset", 0.0))
        session.info["now"] = moment
    known: datetime = session.info["now"]
    return known


def clock_column(dialect: str) -> ColumnElement[Any]:
    """The database's time as a column, for queries that read other columns too; see `cache_now`."""
    return literal_column(_SQLITE_CLOCK if dialect == "sqlite" else _POSTGRESQL_CLOCK).label("clock")


def insert_into(session: Session, table: Any) -> Any:
    """An INSERT of the session's dialect, which has `on_conflict_do_nothing` and `on_conflict_do_update`."""
    insert = sqlite_insert if session.get_bind().dialect.name == "sqlite" else postgresql_insert
    return insert(table)


def literal_limit(count: int) -> ColumnElement[int]:
    """A limit as a literal in the statement: planners use no index order for a bound one."""
    return literal_column(str(count), Integer)


def cache_now(session: Session, value: Any) -> datetime:
    """Set what `now` returns from a value of `clock_column`, unless the session has a time already."""
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


def parse_timestamp(value: str) -> datetime:
    """An instant that the database returned as text; SQLite stores UTC without a zone."""
    moment = datetime.fromisoformat(value)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _engine(url: str, wait_s: float, successors: Successors) -> Engine:
    parsed = parse_url(url)
    if parsed.get_backend_name() == "postgresql":
        return _postgresql_engine(parsed, successors, **_connect_options(parsed))
    if parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        parsed, connect_args={"timeout": wait_s}, pool_size=10, max_overflow=10, hide_parameters=True
    )
    event.listen(engine, "connect", _sqlite_connect)
    event.listen(engine, "begin", _sqlite_begin)
    return engine


def _postgresql_engine(
    url: URL, successors: Successors, *, isolation_level: Any = None, **connect: Any
) -> Engine:
    """An engine that pings pooled connections before use, unless used less than PING_AFTER_S ago."""
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
    successors.watch(engine)
    return engine


def _autocommit_engine(url: URL, successors: Successors) -> Engine:
    """An engine in autocommit mode, with connections of its own."""
    options = {**_connect_options(url), "prepare_threshold": PREPARE_THRESHOLD}
    engine = _postgresql_engine(url, successors, isolation_level="AUTOCOMMIT", **options)

    def made(connection: Any, _record: Any) -> None:
        connection.prepared_max = PREPARED_STATEMENTS

    event.listen(engine, "connect", made)
    return engine


def _async_commit_engine(url: URL, successors: Successors) -> Engine:
    """An engine whose commits do not wait for the disk."""
    given = url.query.get("options", POSTGRES["options"])
    return _postgresql_engine(
        url, successors, **{**_connect_options(url), "options": f"{given} -c synchronous_commit=off"}
    )


def _connect_options(url: URL) -> dict[str, Any]:
    defaults = {**POSTGRES, **SEVERAL_HOSTS} if "target_session_attrs" in url.query else POSTGRES
    return {key: value for key, value in defaults.items() if key not in url.query}


def _sqlite_connect(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions are begun below, not by the driver
    _to_wal(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _to_wal(connection: Any) -> None:
    """Switch a database to WAL mode, or find it there.

    While another connection writes to a new database, SQLite refuses the switch at once, whatever the busy
    timeout; the lock that is requested in between does wait, for as long as a write may.
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
"""Free bytes below which an error of SQLite's files counts as a full disk."""
_PRIMARY = 0xFF


def is_disk_full(error: BaseException, store: Store) -> bool:
    """Whether a statement failed because the disk is full; its transaction is rolled back."""
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
    """Whether the database is restarting, locked or out of connections, so that a later try may succeed."""
    if isinstance(error, DBAPIError):
        return isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated
    return isinstance(error, TimeoutError)
