"""What metrics are made of: all that ever finished, read from SQL bit by bit, and not waited for long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from grading.store import Store
from grading.store.reporting import metrics
from grading.store.reporting.metrics import NOTHING, Open, Totals

T = TypeVar("T")
PATIENCE_S = 5.0
"""For the database and for Redis each; Prometheus waits longer than for both."""


class Bounded(Generic[T]):
    """Reads in a thread of its own, for which one waits a while; who asks meanwhile waits for the same.

    A database or Redis that hangs, rather than refuses, must not take one thread of the web app a scrape.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._running: Future[T] | None = None

    def __call__(self) -> T:
        """What was read, or what reading raised. Raises TimeoutError after PATIENCE_S."""
        with self._lock:
            if self._running is None or self._running.done():
                self._running = Future()
                threading.Thread(target=self._fulfil, args=(self._running,), daemon=True).start()
            running = self._running
        return running.result(PATIENCE_S)

    def _fulfil(self, running: Future[T]) -> None:
        try:
            running.set_result(self._read())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            running.set_exception(error)


@dataclass
class History:
    """Totals since ever: read once, then only what finished since the last look."""

    store: Store
    _settled: Totals = NOTHING
    _until: datetime | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _highest: dict[tuple[str, ...], int] = field(default_factory=dict)

    def read(self) -> tuple[Totals, Open]:
        """Totals, and what is open. Raises SQLAlchemyError."""
        with self._lock, self.store.read() as session:
            until = metrics.settled_until(session)
            if self._until is None or until > self._until:
                self._settled = self._settled + metrics.totals(session, self._until, until)
                self._until = until
            recent = metrics.totals(session, self._until, None)
            return self._settled + recent, metrics.count_open(session)

    def rising(self, counted: Mapping[tuple[str, ...], int]) -> dict[tuple[str, ...], int]:
        """The counts, never lower than before: a lost run may answer late and change its state."""
        with self._lock:
            for key, count in counted.items():
                self._highest[key] = max(self._highest.get(key, 0), count)
            return dict(self._highest)
