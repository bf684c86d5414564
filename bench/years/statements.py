"""What PostgreSQL does for statements that were sent: buffers and rows, by EXPLAIN ANALYZE."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event, text

from grading.store import Store

READS = ("select", "with")
"""How statements begin that may be run again."""


@dataclass(frozen=True)
class Sent:
    """A statement as it was sent to the database."""

    statement: str
    parameters: Any


@dataclass(frozen=True)
class Work:
    """What the database did for one statement, or for several together."""

    buffers: int = 0
    """Pages of 8 KiB that were read, from memory or from disk."""
    rows: int = 0
    """Rows that scans looked at, those that a filter removed included."""
    milliseconds: float = 0.0
    statement: str = ""

    def __add__(self, other: Work) -> Work:
        """Both together, with the statement that looked at more pages."""
        larger = max((self, other), key=lambda one: one.buffers).statement
        return Work(
            self.buffers + other.buffers,
            self.rows + other.rows,
            self.milliseconds + other.milliseconds,
            larger,
        )


@contextmanager
def sent(store: Store) -> Iterator[list[Sent]]:
    """The statements that are sent meanwhile by all engines of the store."""
    found: list[Sent] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        found.append(Sent(statement, parameters))

    engines = _engines(store)
    for engine in engines:
        event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        for engine in engines:
            event.remove(engine, "before_cursor_execute", note)


def _engines(store: Store) -> set[Engine]:
    return {store.engine, store.autocommit_engine, store.async_commit_engine}


def processor_clock(store: Store) -> Callable[[], float]:
    """Counts the processor seconds of this process and of PostgreSQL's that answer it, on this machine.

    Linux only; a process of PostgreSQL counts from when it is asked the first time.
    """
    servers: set[int] = set()

    def note(connection: Any, *_: Any) -> None:
        servers.add(connection.info.backend_pid)

    for engine in _engines(store):
        event.listen(engine, "checkout", note)

    def count() -> float:
        nanoseconds = 0
        for pid in tuple(servers):
            with suppress(FileNotFoundError):  # ended meanwhile, or on another machine
                nanoseconds += int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])
        return time.process_time() + nanoseconds / 1e9

    return count


def work_of(connection: Connection, asked: Iterable[Sent]) -> list[Work]:
    """Run each statement that only reads again, under EXPLAIN; the others are left out. PostgreSQL only."""
    return [
        _explained(connection, one)
        for one in asked
        if one.statement.lstrip().lower().startswith(READS) and "update" not in one.statement.lower()
    ]


def _explained(connection: Connection, one: Sent) -> Work:
    explain = f"explain (analyze, buffers, timing off, format json) {one.statement}"
    plan = connection.exec_driver_sql(explain, one.parameters).scalar_one()
    (found,) = json.loads(plan) if isinstance(plan, str) else plan
    top = found["Plan"]
    buffers = top.get("Shared Hit Blocks", 0) + top.get("Shared Read Blocks", 0)
    return Work(buffers, _rows_looked_at(top), found["Execution Time"], one.statement)


def _rows_looked_at(node: Mapping[str, Any]) -> int:
    """Rows that the scans below a node gave or removed, in all their loops."""
    below = sum(_rows_looked_at(one) for one in node.get("Plans", ()))
    if "Scan" not in node["Node Type"] or node["Node Type"] in ("CTE Scan", "Subquery Scan"):
        return below
    each = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    return below + int((each + node.get("Rows Removed by Index Recheck", 0)) * node["Actual Loops"])


def sizes(connection: Connection) -> Sequence[tuple[str, int, int, int]]:
    """Table, rows as PostgreSQL estimates them, bytes of rows with long values, bytes of indexes."""
    return [
        (row.name, row.rows, row.data, row.indexes)
        for row in connection.execute(
            text(
                "select relname as name, greatest(reltuples, 0)::bigint as rows,"
                " pg_table_size(oid) as data, pg_indexes_size(oid) as indexes from pg_class"
                " where relkind = 'r' and relnamespace = 'public'::regnamespace"
                " order by pg_total_relation_size(oid) desc"
            )
        )
    ]
