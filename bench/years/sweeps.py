"""One pass of the sweeper, part by part: seconds, and what the database does for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench.years import statements
from grading.config.settings import Config
from grading.store import Store
from workers.server.context import open_server
from workers.server.sweeper import Sweeper


@dataclass(frozen=True)
class Sweep:
    """A part of a sweep, or the whole."""

    what: str
    seconds: float
    queries: int
    buffers: int
    rows: int


def measure(config: Config, store: Store) -> Iterator[Sweep]:
    """A second sweep: the first one schedules tasks that are never due at once again."""
    server = open_server(config)
    sweeper = Sweeper(server)
    try:
        sweeper.step()
        whole = Sweep("whole", 0.0, 0, 0, 0)
        for part in sweeper.parts():
            with statements.sent(server.store) as asked:
                began = time.perf_counter()
                part()
                seconds = time.perf_counter() - began
            with store.autocommit_engine.connect() as connection:
                work = sum(statements.work_of(connection, asked), start=statements.Work())
            one = Sweep(part.__name__.strip("_"), seconds, len(asked), work.buffers, work.rows)
            whole = Sweep(
                "whole", whole.seconds + one.seconds, whole.queries + one.queries,
                whole.buffers + one.buffers, whole.rows + one.rows,
            )  # fmt: skip
            yield one
        yield whole
    finally:
        server.store.close()
