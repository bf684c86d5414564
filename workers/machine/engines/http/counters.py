"""What an engine over HTTP does now and did since its start, and the end of it all."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from grading.domain.errors import BudgetExceeded, Cancelled, EngineError
from grading.domain.jobs import Tokens
from workers.machine.engines.http.watch import Watch

CLOSED = "The engine was closed."


class Tally:
    """Counts generations and their tokens; thread-safe. Closed, it ends what runs and lets nothing begin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._running: set[Watch] = set()
        self._counts = dict.fromkeys(("requests", "cancelled", "prompt_tokens", "output_tokens"), 0)
        self._cached = 0

    def open(self) -> None:
        """Raises EngineError when closed."""
        if self._closed:
            raise EngineError(CLOSED)

    @contextmanager
    def generation(self, watch: Watch) -> Iterator[None]:
        """Around one generation."""
        with self._lock:
            self.open()
            self._running.add(watch)
            self._counts["requests"] += 1
        try:
            yield
        except (Cancelled, BudgetExceeded):
            with self._lock:
                self._counts["cancelled"] += 1
            raise
        finally:
            with self._lock:
                self._running.discard(watch)

    def answered(self, tokens: Tokens) -> None:
        """The tokens of an answer."""
        with self._lock:
            self._counts["prompt_tokens"] += tokens.prompt
            self._cached += tokens.cached
            self._counts["output_tokens"] += tokens.output

    def close(self) -> None:
        """End every generation with an EngineError."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for watch in running:
            watch.end(EngineError(CLOSED))

    def counters(self) -> Mapping[str, float]:
        """By the names of `base.COUNTERS`; tokens from a cache only once a server told of some."""
        with self._lock:
            cached = {"cached_tokens": self._cached} if self._cached else {}
            return {"running": len(self._running), **self._counts, **cached}
