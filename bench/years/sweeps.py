"""Passes of the sweeper, whole and part by part: seconds, and what the database does for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import select, update

from bench.years import statements
from grading.config.settings import Config
from grading.domain.round_states import RoundState
from grading.store import Store, tables
from workers.server.context import Server, open_server
from workers.server.sweeper import Sweeper

WHOLE = 10
"""Passes that are timed in one piece, of which the slowest counts."""


@dataclass(frozen=True)
class Sweep:
    """A part of a sweep, all parts together, or one in one piece."""

    what: str
    seconds: float
    processor_s: float
    """Of this process and of PostgreSQL's."""
    queries: int
    buffers: int
    rows: int


@contextmanager
def open_rounds(store: Store, count: int) -> Iterator[None]:
    """So many of the newest rounds wait meanwhile, as if they had just been submitted."""
    newest = select(tables.Round.id).order_by(tables.Round.created_at.desc()).limit(count)
    with store.read() as session:
        ids = session.scalars(newest).all()
    _set(store, ids, {"state": RoundState.QUEUED, "priority": "interactive"}, "waiting")
    try:
        yield
    finally:
        _set(store, ids, {"state": RoundState.GRADED}, "done")


def _set(store: Store, ids: Sequence[str], round_: Mapping[str, str], stage: str) -> None:
    with store.write() as session:
        session.execute(update(tables.Round).where(tables.Round.id.in_(ids)).values(**round_))
        of_them = tables.RoundStage.round_id.in_(ids)
        session.execute(update(tables.RoundStage).where(of_them).values(state=stage))


def measure(config: Config, store: Store) -> Iterator[Sweep]:
    """Sweeps after the first one, which schedules tasks that are never due at once again."""
    server = open_server(config)
    sweeper, processor = Sweeper(server), statements.processor_clock(server.store)
    try:
        sweeper.step()
        pieces = [_timed(server, sweeper.step, processor) for _ in range(WHOLE)]
        seconds, processor_s = map(max, zip(*pieces, strict=True))
        yield Sweep("in one piece", seconds, processor_s, 0, 0, 0)
        whole = Sweep("all parts", 0.0, 0.0, 0, 0, 0)
        for part in sweeper.parts():
            with statements.sent(server.store) as asked:
                seconds, used = _timed(server, part, processor)
            with store.autocommit_engine.connect() as connection:
                work = sum(statements.work_of(connection, asked), start=statements.Work())
            one = Sweep(part.__name__.strip("_"), seconds, used, len(asked), work.buffers, work.rows)
            whole = Sweep(
                whole.what, whole.seconds + one.seconds, whole.processor_s + one.processor_s,
                whole.queries + one.queries, whole.buffers + one.buffers, whole.rows + one.rows,
            )  # fmt: skip
            yield one
        yield whole
    finally:
        server.store.close()


def _timed(server: Server, work: Callable[[], None], processor: Callable[[], float]) -> tuple[float, float]:
    """Seconds, and those of the processor, when what waits was not counted just now."""
    server.told.at = float("-inf")
    used, began = processor(), time.perf_counter()
    work()
    return time.perf_counter() - began, processor() - used
