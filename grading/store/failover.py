"""PostgreSQL with a successor: addresses of several hosts, a primary that changed, numbers never given twice.

A promotion and a recovery to a moment begin a new history ("timeline") of the database. What the old primary
had committed and not sent is not in it, so its sequences may give numbers again that other systems, links and
caches know for other rows. The first connection in a new history moves all sequences on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.errors import ReadOnlySqlTransaction
from sqlalchemy import URL, Engine, event, make_url
from sqlalchemy.engine import ExceptionContext

from grading.config.database_url import split_hosts

log = logging.getLogger(__name__)
READ_WRITE = "read-write"
SEVERAL_HOSTS = {"target_session_attrs": READ_WRITE, "connect_timeout": 3}
"""Of several hosts only the primary is used; one that is cut off delays a new connection this long."""
SKIPPED_NUMBERS = 100_000
"""How far sequences move in a new history: more rows than a replica or an archive lags behind."""
TABLE = "database_histories"
_HISTORY = (
    "SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE (pg_control_system()).system_identifier || '/' || "
    "substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END"
)
_NOTE = "INSERT INTO database_histories (identifier, since) VALUES (%s, now()) ON CONFLICT DO NOTHING"
_OTHERS = "SELECT count(*) FROM database_histories WHERE identifier <> %s"
_SKIP = (
    "SELECT setval(format('%%I.%%I', schemaname, sequencename)::regclass, "
    "least(max_value, coalesce(last_value, 0) + %s)) FROM pg_sequences WHERE schemaname = current_schema()"
)


def parse_url(address: str) -> URL:
    """An address for SQLAlchemy: with psycopg, and of several hosts only the primary. Raises ValueError."""
    rest, hosts = split_hosts(address)
    url = make_url(rest)
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    if hosts:
        names, ports = zip(*hosts, strict=True)
        named = {"host": ",".join(names), "port": ",".join(str(port) for port in ports)}
        url = url.update_query_dict(named)
    several = url.get_backend_name() == "postgresql" and len(hosts_of(url)) > 1
    if several and "target_session_attrs" not in url.query:
        url = url.update_query_dict({"target_session_attrs": READ_WRITE})
    return url


def hosts_of(url: URL) -> list[tuple[str, str]]:
    """Host and port of each server that an address of `parse_url` names; empty texts for the local one."""
    _, given = url.get_dialect()().create_connect_args(url)
    hosts, ports = str(given.get("host", "")).split(","), str(given.get("port", "")).split(",")
    if len(ports) != len(hosts):  # libpq: one port for all
        ports = ports[:1] * len(hosts)
    return list(zip(hosts, ports, strict=True))


@dataclass
class Successors:
    """What this process knows of a database whose primary may change; shared by the engines of a `Store`."""

    first: tuple[str, str] | None = None
    """Host and port of the last primary: asked first, as another may be cut off and delay each connection."""
    newest: dict[str, int] = field(default_factory=dict)
    """Identifier of a database cluster → its newest timeline that was seen."""
    _checked: set[str] = field(default_factory=set)
    _refused: set[str] = field(default_factory=set)
    """Why the database did not let its history be read, or its sequences be moved: each is told of once."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watch(self, engine: Engine) -> None:
        """Apply this to all connections of an engine."""
        hosts = hosts_of(engine.url)
        if len(hosts) > 1:
            event.listen(engine, "do_connect", self._order(hosts))
        event.listen(engine, "connect", self._connected)
        event.listen(engine, "handle_error", _demoted)

    def _order(self, hosts: Sequence[tuple[str, str]]) -> Any:
        def ordered(_dialect: Any, _record: Any, _arguments: Any, given: dict[str, Any]) -> None:
            turn = sorted(hosts, key=lambda one: one != self.first)
            given["host"] = ",".join(host for host, _ in turn)
            given["port"] = ",".join(port for _, port in turn)

        return ordered

    def _connected(self, connection: Any, _record: Any) -> None:
        """Refuse an old primary that came back; move sequences on if the history is a new one."""
        try:
            row = connection.execute(_HISTORY).fetchone()
            if row is not None and row[0] is not None:
                self._require_newest(row[0])
                self._note(connection, row[0])
            connection.commit()
        except psycopg.OperationalError:
            connection.close()
            raise
        except (psycopg.ProgrammingError, psycopg.NotSupportedError) as error:
            connection.rollback()  # a service that hides its log has promotions of its own
            self._warn(str(error))
        self.first = (connection.info.host, str(connection.info.port))

    def _warn(self, why: str) -> None:
        with self._lock:
            known = why in self._refused
            self._refused.add(why)
        if not known:
            log.warning(
                "after a promotion numbers may be given twice, as the database refuses what prevents it: %s",
                why,
            )

    def _require_newest(self, history: str) -> None:
        cluster, _, timeline = history.partition("/")
        number = int(timeline, 16)
        with self._lock:
            newest = self.newest[cluster] = max(number, self.newest.get(cluster, 0))
        if number < newest:
            raise psycopg.OperationalError(
                f"this server is an old primary (timeline {number}; {newest} was seen): stop it"
            )

    def _note(self, connection: Any, history: str) -> None:
        if history in self._checked:
            return
        if connection.execute("SELECT to_regclass(%s)", [TABLE]).fetchone() == (None,):
            return  # an upgrade makes the table
        with connection.transaction():
            # a second connection waits here until the first has moved the sequences
            new = connection.execute(_NOTE, [history]).rowcount > 0
            if new and connection.execute(_OTHERS, [history]).fetchone() != (0,):
                connection.execute(_SKIP, [SKIPPED_NUMBERS])
        self._checked.add(history)


def _demoted(context: ExceptionContext) -> None:
    """A server that only reads is not the primary any more: look for that with new connections."""
    if not isinstance(context.original_exception, ReadOnlySqlTransaction):
        return
    ours = context.connection is not None and context.connection.get_execution_options().get(
        "postgresql_readonly"
    )
    if not ours:
        context.is_disconnect = True
