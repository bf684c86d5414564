"""The one thread that owns mlx: loads models and runs every generation in mlx-lm's continuous batches.

A lane is one model with its batch; lanes that have something to do take turns, a step each.
"""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from grading.domain.errors import EngineError
from workers.machine.engines.mlx.counters import Tally
from workers.machine.engines.mlx.decode_loop import Lane, Shape, attempt
from workers.machine.engines.mlx.generation import Ticket
from workers.machine.engines.mlx.model import LoadedModel
from workers.machine.engines.mlx.prefix_caches import Prefixes

Job = Callable[[], None]
NewLane = Callable[[LoadedModel, Shape, Prefixes, Tally], Lane]
IDLE_S = 10.0
"""After so long without work, memory is given back to the system."""


def _NOTHING() -> None:
    """No job."""


class Runner:
    """The thread. `call` runs a function on it, `submit` takes a generation; both from any thread."""

    def __init__(self, shape: Shape, prefixes: Prefixes, tally: Tally, lane: NewLane = Lane) -> None:
        self.prefixes = prefixes
        self._shape = shape
        self._tally = tally
        self._new_lane = lane
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._coming = 0
        self._unloaded = False
        self._lanes: dict[int, Lane] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="mlx", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Run a function on the thread."""
        future: Future[Any] = Future()

        def job() -> None:
            if (error := attempt(lambda: future.set_result(function()))) is not None:
                future.set_exception(error)

        self._put(job)
        return future

    def load(self, function: Callable[[], LoadedModel]) -> Future[LoadedModel]:
        """Load a model on the thread, after what was unloaded before has given its memory back."""

        def loading() -> LoadedModel:
            if self._unloaded:
                self._unloaded = False
                clear_memory()
            return function()

        return self.call(loading)

    def submit(self, ticket: Ticket) -> None:
        """Take a generation; `ticket.done` tells its end."""
        self._put(lambda: self._admit(ticket), coming=1)
        self._tally.add(requests=1)

    def unload(self, loaded: LoadedModel) -> None:
        """Let go of a model that nobody uses any more, with its prefix caches."""

        def job() -> None:
            self._unloaded = True
            self._unlane(id(loaded), EngineError("The model was unloaded."))

        self._put(job)

    def gauges(self) -> Mapping[str, float]:
        """How many generations run and wait now, and the bytes of the prefix caches."""
        lanes = list(self._lanes.values())
        return {
            "running": sum(lane.running for lane in lanes),
            "waiting": self._coming + sum(lane.waiting for lane in lanes),
            "cache_bytes": self.prefixes.bytes,
        }

    def close(self, seconds: float) -> None:
        """End the thread and every generation; waits for it at most so long."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._inbox.put(None)
        self._thread.join(seconds)

    def _put(self, job: Job, coming: int = 0) -> None:
        with self._lock:
            if self._closed:
                raise EngineError("The engine was closed.")
            self._coming += coming
            self._inbox.put(job)

    def _admit(self, ticket: Ticket) -> None:
        with self._lock:
            self._coming -= 1
        if (error := attempt(lambda: self._lane(ticket.loaded).add(ticket))) is not None:
            ticket.end(error)

    def _lane(self, loaded: LoadedModel) -> Lane:
        if id(loaded) not in self._lanes:
            self._lanes[id(loaded)] = self._new_lane(loaded, self._shape, self.prefixes, self._tally)
        return self._lanes[id(loaded)]

    def _unlane(self, key: int, error: EngineError) -> None:
        if (lane := self._lanes.pop(key, None)) is not None:
            lane.fail(error)
            lane.close()

    def _run(self) -> None:
        while self._serve_inbox():
            for key, lane in list(self._lanes.items()):
                if _busy(lane) and (error := attempt(lane.step)) is not None:
                    # a broken batch is dropped, with all in it; the next request begins a new one
                    self._unlane(key, error)
        self._leave()

    def _serve_inbox(self) -> bool:
        """Do what was asked for; waits only when no lane is busy. False when the end was asked for."""
        waits = not any(map(_busy, self._lanes.values()))
        job = self._next_when_idle() if waits else self._next()
        while job is not _NOTHING:
            if job is None:
                return False
            job()
            job = self._next()
        return True

    def _next(self) -> Job | None:
        try:
            return self._inbox.get_nowait()
        except queue.Empty:
            return _NOTHING

    def _next_when_idle(self) -> Job | None:
        """The next job, whenever it comes; before a long wait, spare memory is given back."""
        try:
            return self._inbox.get(timeout=IDLE_S)
        except queue.Empty:
            if self._lanes:
                clear_memory()
            return self._inbox.get()

    def _leave(self) -> None:
        for key in list(self._lanes):
            self._unlane(key, EngineError("The engine was closed."))
        gc.collect()
        try:
            import mlx.core as mx
        except ImportError:
            return
        mx.clear_streams()  # else the interpreter aborts at its exit


def _busy(lane: Lane) -> bool:
    return bool(lane.running or lane.waiting)


def clear_memory() -> None:
    """Give the buffers that mlx keeps for later back to the system."""
    import mlx.core as mx

    gc.collect()
    mx.clear_cache()
