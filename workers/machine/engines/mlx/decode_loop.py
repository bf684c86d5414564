"""The thread that owns mlx: loads models, and decodes every generation in mlx-lm's continuous batches.

What a class shares is prefilled once: the cache at the end of the shared prefix is kept, and each later
prompt with the same prefix starts from it. Requests that come while their prefix is being prefilled wait for
it without taking a slot; when its builder leaves early, the next of them goes on from where it was.
A loop is one model with its batch; loops that have something to do take turns, a step each.
"""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from grading.domain.errors import EngineError
from workers.machine.engines.base import METRICS, Metric
from workers.machine.engines.mlx.constraint import hand_out
from workers.machine.engines.mlx.generation import Samplers, Ticket
from workers.machine.engines.mlx.model import LoadedModel
from workers.machine.engines.mlx.prefix_caches import Layers, Prefix, PrefixCaches
from workers.machine.messages import ENGINE_CLOSED

BATCH_METRICS: Mapping[str, Metric] = {
    **METRICS,
    "waiting": Metric("gauge", "Generations waiting for memory or for their prefix."),
    "cache_bytes": Metric("gauge", "Size of the prefix caches in bytes."),
    "prefill_chunks": Metric("counter", "Prefill chunks of prompts."),
    "decode_steps": Metric("counter", "Decode steps of the batch; each writes one token per generation."),
    "prefix_lookups": Metric("counter", "Lookups in the prefix cache."),
    "prefix_hits": Metric("counter", "Hits of the prefix cache."),
}
"""What an engine reports that decodes in batches of its own."""
COUNTED = tuple(name for name, one in BATCH_METRICS.items() if one.kind == "counter")


class Counters:
    """Counts since the start; `more` beside those of all engines."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._counts = dict.fromkeys((*COUNTED, *more), 0.0)
        self._lock = threading.Lock()

    def add(self, **counts: int) -> None:
        """Count more, by name."""
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count

    def read(self) -> Mapping[str, float]:
        """All counts."""
        with self._lock:
            return dict(self._counts)


READ_AT_ONCE = 8
"""The most prompts that are read in one pass."""
LEAST_CHUNK = 32
"""Tokens of one prompt that are read in a pass at the least."""


@dataclass(frozen=True)
class Shape:
    """How a batch works: generations in it, prompt tokens read between two steps, Metal's wired limit."""

    slots: int = 8
    prefill_step: int = 1024
    wired: bool = False


class DecodeLoop:
    """One model's batch. Used on the mlx thread only, but for `running` and `waiting`."""

    def __init__(self, loaded: LoadedModel, shape: Shape, prefixes: PrefixCaches, counters: Counters) -> None:
        self._key = id(loaded)
        self._shape = shape
        self._prefixes = prefixes
        self._counters = counters
        self._batch = _batch(loaded, shape)
        self._running: dict[int, Ticket] = {}
        self._queue: list[Ticket] = []
        self._building: dict[Prefix, int] = {}
        self._begun: dict[Prefix, tuple[Layers, int]] = {}
        self._samplers = Samplers()

    @property
    def running(self) -> int:
        """Generations in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Generations that wait for a slot or for their prefix."""
        return len(self._queue)

    def add(self, ticket: Ticket) -> None:
        """Take a generation; it joins the batch at the next step that has room for it."""
        self._queue.append(ticket)

    def step(self) -> None:
        """Let go who is no longer waited for, take in who can come, decode a token for all, read a chunk."""
        self._drop()
        self._admit()
        if not self._running:
            return
        reading = sum(t.first_token is None for t in self._running.values())
        # a step with many prompts must not take longer than one with a single prompt
        self._batch.prefill_step_size = max(LEAST_CHUNK, self._shape.prefill_step // max(1, reading))
        hand_out(self._batch, {uid: one.constraint for uid, one in self._running.items()})
        prompts, generated = self._batch.next()
        self._counters.add(
            decode_steps=bool(generated),
            prefill_chunks=not all(response.end_of_prompt for response in prompts),
            output_tokens=sum(response.finish_reason != "stop" for response in generated),
        )
        for response in prompts:
            if response.end_of_segment and not response.end_of_prompt:
                self._keep_prefix(response.uid)
        for response in generated:
            self._take(response)

    def fail(self, error: EngineError) -> None:
        """Give up all of it."""
        for ticket in (*self._running.values(), *self._queue):
            ticket.end(error)
        for held in (self._running, self._queue, self._building, self._begun):
            held.clear()

    def close(self) -> None:
        """Give back what the batch holds."""
        self._batch.close()
        self._prefixes.forget(self._key)

    def _drop(self) -> None:
        gone = [uid for uid, ticket in self._running.items() if ticket.over()]
        late = [ticket for ticket in self._queue if ticket.over()]
        if not gone and not late:
            return
        self._counters.add(cancelled=len(gone) + len(late))
        for uid in gone:
            self._hand_on(uid)
        if gone:
            self._batch.remove(gone)
        for uid in gone:
            self._forget(uid).end(None)
        if late:
            self._queue = [ticket for ticket in self._queue if ticket not in late]
        for ticket in late:
            ticket.end(None)

    def _admit(self) -> None:
        left = []
        for ticket in self._queue:
            if len(self._running) >= self._shape.slots or ticket.prefix in self._building:
                ticket.tell("queued")
                left.append(ticket)
            elif (error := attempt(partial(self._insert, ticket))) is not None:
                ticket.end(error)  # a bad one fails alone
        self._queue = left
        # a partly read prefix is of use only to who comes next
        self._begun.clear()

    def _insert(self, ticket: Ticket) -> None:
        ids, shared, prefix = ticket.prompt.ids, ticket.prompt.shared, ticket.prefix
        cache = self._prefixes.get(self._key, prefix) if prefix else None
        hit, known, segments = cache is not None, shared, [ids[shared:]]
        builds = bool(prefix) and not hit and self._prefixes.takes(self._key, prefix)
        if not hit:
            cache, known = self._begun.pop(prefix, (None, 0)) if builds else ticket.warm or (None, 0)
            segments = [ids[known:shared], ids[shared:]] if builds else [ids[known:]]
        (uid,) = self._batch.insert_segments(
            [segments],
            max_tokens=[ticket.max_tokens],
            caches=[cache],
            all_tokens=[ids[:known]],
            samplers=[self._samplers.sampler(ticket.sampling)],
            logits_processors=[[ticket.constraint] if ticket.constraint else []],
        )
        ticket.cached, ticket.admitted = known, time.monotonic()
        self._running[uid] = ticket
        if builds:
            self._building[prefix] = uid
        self._counters.add(
            prompt_tokens=len(ids), cached_tokens=known, prefix_lookups=bool(prefix), prefix_hits=hit
        )
        ticket.tell("reading")

    def _take(self, response: Any) -> None:
        ticket = self._running[response.uid]
        if ticket.first_token is None:
            ticket.first_token = time.monotonic()
        if response.finish_reason != "stop":
            ticket.output.append(response.token)
        if len(ticket.output) == 1:
            ticket.tell("generating")
        broken = ticket.constraint.error if ticket.constraint else ""
        if broken and response.finish_reason is None:
            self._batch.remove([response.uid])
        if broken:
            error = EngineError(f"Constrained decoding failed: {broken}")
            self._forget(response.uid).end(error)
        elif response.finish_reason is not None:
            self._forget(response.uid).end(response.finish_reason)

    def _forget(self, uid: int) -> Ticket:
        ticket = self._running.pop(uid)
        if self._building.get(ticket.prefix) == uid:
            del self._building[ticket.prefix]
        return ticket

    def _keep_prefix(self, uid: int) -> None:
        """The shared prefix is prefilled: keep its cache; who waited for it comes in at the next step."""
        prefix = self._running[uid].prefix
        if self._building.get(prefix) != uid:
            return
        cache, tokens = self._batch.extract_cache([uid])[uid]
        if tuple(tokens) == prefix:
            self._prefixes.keep(self._key, prefix, cache)
        del self._building[prefix]

    def _hand_on(self, uid: int) -> None:
        """Keep what the builder of a prefix has read so far for the next who waits for it."""
        prefix = self._running[uid].prefix
        if self._building.get(prefix) != uid or all(t.prefix != prefix for t in self._queue):
            return
        cache, tokens = self._batch.extract_cache([uid])[uid]
        if 0 < len(tokens) < len(prefix) and tuple(tokens) == prefix[: len(tokens)]:
            self._begun[prefix] = (cache, len(tokens))


def _batch(loaded: LoadedModel, shape: Shape) -> Any:
    import mlx.core as mx
    from mlx_lm.generate import BatchGenerator

    with _wired_limit_untouched(shape.wired):
        return BatchGenerator(
            loaded.model,
            stop_tokens=[[i] for i in loaded.eos_ids],
            completion_batch_size=shape.slots,
            prefill_batch_size=min(shape.slots, READ_AT_ONCE),
            prefill_step_size=shape.prefill_step,
            stream=mx.default_stream(mx.default_device()),
        )


@contextmanager
def _wired_limit_untouched(wired: bool) -> Iterator[None]:
    """Keep mlx-lm from raising Metal's wired limit for its batch, unless it is wanted.

    Macs have panicked with it under changing caches. Raising it and taking it back would already wire the
    weights, so it must not happen at all.
    """
    generate: Any = import_module("mlx_lm.generate")  # the package has a function of that name
    raises = generate.maybe_set_recommended_wired_limit
    if not wired:
        generate.maybe_set_recommended_wired_limit = lambda: None
    try:
        yield
    finally:
        generate.maybe_set_recommended_wired_limit = raises


def attempt(function: Callable[[], Any]) -> EngineError | None:
    """Run a function; what it raises comes back as an EngineError."""
    try:
        function()
    except EngineError as exc:
        return exc
    except Exception as exc:  # noqa: BLE001 - whatever mlx raises, the one thread must outlive it
        return EngineError(f"mlx failed: {type(exc).__name__}: {str(exc)[:300]}")
    return None


Job = Callable[[], None]
NewDecodeLoop = Callable[[LoadedModel, Shape, PrefixCaches, Counters], DecodeLoop]


class DecodeLoops:
    """Which decode loop each loaded model gets: its own. `speculative` has loops with draft models."""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """What these loops count beside what all do."""
        return {}

    def places(self, _name: str) -> int:
        """How many loaded models a model makes."""
        return 1

    def join(self, model: LoadedModel, _name: str) -> LoadedModel:
        """Load what a model's loop needs beside it, on the thread that will generate. Gives the model."""
        return model

    def loop(
        self, loaded: LoadedModel, shape: Shape, prefixes: PrefixCaches, counters: Counters
    ) -> DecodeLoop:
        """The loop of a model."""
        return DecodeLoop(loaded, shape, prefixes, counters)


IDLE_S = 10.0
"""After so long without work, memory is given back to the system."""


def _NOTHING() -> None:
    """No job."""


class Runner:
    """The thread. `call` runs a function on it, `submit` takes a generation; both from any thread."""

    def __init__(
        self, shape: Shape, prefixes: PrefixCaches, counters: Counters, loop: NewDecodeLoop = DecodeLoop
    ) -> None:
        self.prefixes = prefixes
        self._shape = shape
        self._counters = counters
        self._new_loop = loop
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._coming = 0
        self._unloaded = False
        self._loops: dict[int, DecodeLoop] = {}
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
        self._counters.add(requests=1)

    def unload(self, loaded: LoadedModel) -> None:
        """Let go of a model that nobody uses any more, with its prefix caches."""

        def job() -> None:
            self._unloaded = True
            self._drop_loop(id(loaded), EngineError("The model was unloaded."))

        self._put(job)

    def gauges(self) -> Mapping[str, float]:
        """How many generations run and wait now, and the bytes of the prefix caches."""
        loops = list(self._loops.values())
        return {
            "running": sum(loop.running for loop in loops),
            "waiting": self._coming + sum(loop.waiting for loop in loops),
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
                raise EngineError(ENGINE_CLOSED)
            self._coming += coming
            self._inbox.put(job)

    def _admit(self, ticket: Ticket) -> None:
        with self._lock:
            self._coming -= 1
        if (error := attempt(lambda: self._loop(ticket.loaded).add(ticket))) is not None:
            ticket.end(error)

    def _loop(self, loaded: LoadedModel) -> DecodeLoop:
        if id(loaded) not in self._loops:
            self._loops[id(loaded)] = self._new_loop(loaded, self._shape, self.prefixes, self._counters)
        return self._loops[id(loaded)]

    def _drop_loop(self, key: int, error: EngineError) -> None:
        if (loop := self._loops.pop(key, None)) is not None:
            loop.fail(error)
            loop.close()

    def _run(self) -> None:
        while self._serve_inbox():
            for key, loop in list(self._loops.items()):
                if _busy(loop) and (error := attempt(loop.step)) is not None:
                    # a broken batch is dropped, with all in it; the next request begins a new one
                    self._drop_loop(key, error)
        self._leave()

    def _serve_inbox(self) -> bool:
        """Do what was asked for; waits only when no loop is busy. False when the end was asked for."""
        waits = not any(map(_busy, self._loops.values()))
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
            if self._loops:
                clear_memory()
            return self._inbox.get()

    def _leave(self) -> None:
        for key in list(self._loops):
            self._drop_loop(key, EngineError(ENGINE_CLOSED))
        gc.collect()
        try:
            import mlx.core as mx
        except ImportError:
            return
        mx.clear_streams()  # else the interpreter aborts at its exit


def _busy(loop: DecodeLoop) -> bool:
    return bool(loop.running or loop.waiting)


def clear_memory() -> None:
    """Give the buffers that mlx keeps for later back to the system."""
    import mlx.core as mx

    gc.collect()
    mx.clear_cache()
