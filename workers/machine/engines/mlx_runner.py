"""The one thread that owns mlx: loads models and runs every generation in mlx-lm's continuous batches.

A lane is one model with its batch. What a class shares is prefilled once: the cache at the end of the shared
prefix is kept, and each later prompt with the same prefix starts from it. Requests that come while their
prefix is being prefilled wait for it.
"""

from __future__ import annotations

import gc
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from grading.errors import EngineError
from workers.machine.engines.mlx_constraint import Constraint
from workers.machine.engines.mlx_model import LoadedModel, Prompt

Prefix = tuple[int, ...]


@dataclass
class Ticket:
    """One generation on its way through the thread. Times are of `time.monotonic`."""

    loaded: LoadedModel
    prompt: Prompt
    max_tokens: int
    temperature: float
    constraint: Constraint | None
    deadline: float
    begun: float = field(default_factory=time.monotonic)
    done: Future[str] = field(default_factory=Future)
    """The finish reason, or an EngineError."""
    output: list[int] = field(default_factory=list)
    cached: int = 0
    first_token_s: float | None = None
    cancelled: bool = False

    @property
    def prefix(self) -> Prefix:
        """The shared tokens."""
        return tuple(self.prompt.ids[: self.prompt.shared])

    @property
    def unwanted(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.cancelled or time.monotonic() >= self.deadline


class Lane:
    """One model's batch and its prefix caches. Used on the mlx thread only."""

    def __init__(self, loaded: LoadedModel, slots: int, prefill_step: int, keep_prefixes: int) -> None:
        import mlx.core as mx
        from mlx_lm.generate import BatchGenerator

        self._loaded = loaded
        self._keep = keep_prefixes
        self._batch = BatchGenerator(
            loaded.model,
            stop_tokens=[[i] for i in loaded.eos_ids],
            completion_batch_size=slots,
            prefill_batch_size=min(slots, 4),
            prefill_step_size=prefill_step,
            stream=mx.default_stream(mx.default_device()),
        )
        self._running: dict[int, Ticket] = {}
        self._building: dict[Prefix, int] = {}
        self._waiting: list[Ticket] = []
        self._prefixes: OrderedDict[Prefix, list[Any]] = OrderedDict()
        self._samplers: dict[float, Callable[[Any], Any]] = {}

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._running or self._waiting)

    def add(self, ticket: Ticket) -> None:
        """Take a generation into the batch, or let it wait for its prefix; a bad one fails alone."""
        if ticket.prefix and ticket.prefix in self._building:
            self._waiting.append(ticket)
            return
        if (error := _attempt(lambda: self._insert(ticket))) is not None:
            ticket.done.set_exception(error)

    def _insert(self, ticket: Ticket) -> None:
        prefix = ticket.prefix
        ids, shared = ticket.prompt.ids, ticket.prompt.shared
        cache, segments = None, [ids]
        if prefix and prefix in self._prefixes:
            self._prefixes.move_to_end(prefix)
            cache, segments, ticket.cached = self._copy(prefix), [ids[shared:]], shared
        elif prefix and self._keep:
            segments = [ids[:shared], ids[shared:]]
        (uid,) = self._batch.insert_segments(
            [segments],
            max_tokens=[ticket.max_tokens],
            caches=[cache],
            all_tokens=[ids[: ticket.cached]],
            samplers=[self._sampler(ticket.temperature)],
            logits_processors=[[ticket.constraint] if ticket.constraint else []],
        )
        self._running[uid] = ticket
        if len(segments) == 2:
            self._building[prefix] = uid

    def step(self) -> None:
        """Drop who is no longer waited for, then decode one token for all and prefill one chunk."""
        self._drop_unwanted()
        if not self._running:
            return
        prompts, generated = self._batch.next()
        for response in prompts:
            if response.end_of_segment and not response.end_of_prompt:
                self._keep_prefix(response.uid)
        for response in generated:
            self._take(response)

    def fail(self, error: EngineError) -> None:
        """Give up all of it."""
        for ticket in (*self._running.values(), *self._waiting):
            ticket.done.set_exception(error)
        self._running.clear()
        self._waiting.clear()
        self._building.clear()

    def close(self) -> None:
        """Give back what the batch holds."""
        self._batch.close()
        self._prefixes.clear()

    def _take(self, response: Any) -> None:
        ticket = self._running[response.uid]
        if ticket.first_token_s is None:
            ticket.first_token_s = time.monotonic() - ticket.begun
        if response.finish_reason != "stop":
            ticket.output.append(response.token)
        broken = ticket.constraint.error if ticket.constraint else ""
        if broken:
            if response.finish_reason is None:
                self._batch.remove([response.uid])
            ticket.done.set_exception(EngineError(f"The answer could not be bound to its schema: {broken}"))
        elif response.finish_reason is not None:
            ticket.done.set_result(response.finish_reason)
        else:
            return
        self._forget(response.uid)

    def _drop_unwanted(self) -> None:
        gone = [uid for uid, ticket in self._running.items() if ticket.unwanted]
        if gone:
            self._batch.remove(gone)
        for uid in gone:
            self._running[uid].done.cancel()
            self._forget(uid)
        self._waiting = [t for t in self._waiting if not (t.unwanted and t.done.cancel())]

    def _forget(self, uid: int) -> None:
        self._release(self._running.pop(uid).prefix, uid)

    def _keep_prefix(self, uid: int) -> None:
        """The shared prefix is prefilled: keep its cache and let go who waited for it."""
        import mlx.core as mx

        prefix = self._running[uid].prefix
        if self._building.get(prefix) != uid:
            return
        cache, tokens = self._batch.extract_cache([uid])[uid]
        if tuple(tokens) == prefix:
            mx.eval([layer.state for layer in cache])
            self._prefixes[prefix] = cache
            while len(self._prefixes) > self._keep:
                self._prefixes.popitem(last=False)
        self._release(prefix, uid)

    def _release(self, prefix: Prefix, uid: int) -> None:
        if self._building.get(prefix) == uid:
            del self._building[prefix]
            waiting, self._waiting = self._waiting, []
            for ticket in waiting:
                self.add(ticket)

    def _copy(self, prefix: Prefix) -> list[Any]:
        import copy

        return copy.deepcopy(self._prefixes[prefix])

    def _sampler(self, temperature: float) -> Callable[[Any], Any]:
        # one object a temperature: a batch that shares its sampler is sampled in one call
        if temperature not in self._samplers:
            from mlx_lm.sample_utils import make_sampler

            self._samplers[temperature] = make_sampler(temp=temperature)
        return self._samplers[temperature]


Job = Callable[[], None]


class Runner:
    """The thread. `call` runs a function on it, `submit` takes a generation; both from any thread."""

    def __init__(self, *, slots: int, prefill_step: int, keep_prefixes: int) -> None:
        self._shape = (slots, prefill_step, keep_prefixes)
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lanes: dict[int, Lane] = {}
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="mlx", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Run a function on the thread."""
        future: Future[Any] = Future()

        def job() -> None:
            if (error := _attempt(lambda: future.set_result(function()))) is not None:
                future.set_exception(error)

        self._put(job)
        return future

    def submit(self, ticket: Ticket) -> None:
        """Take a generation; `ticket.done` tells its end."""
        self._put(lambda: self._admit(ticket))

    def close(self, seconds: float) -> None:
        """End the thread and every generation; waits for it at most so long."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._inbox.put(None)
        self._thread.join(seconds)

    def _put(self, job: Job) -> None:
        with self._lock:
            if self._closed:
                raise EngineError("The engine was closed.")
            self._inbox.put(job)

    def _admit(self, ticket: Ticket) -> None:
        if (error := _attempt(lambda: self._lane(ticket.loaded).add(ticket))) is not None:
            ticket.done.set_exception(error)

    def _lane(self, loaded: LoadedModel) -> Lane:
        if id(loaded) not in self._lanes:
            self._lanes[id(loaded)] = Lane(loaded, *self._shape)
        return self._lanes[id(loaded)]

    def _run(self) -> None:
        while self._serve_inbox():
            for key, lane in list(self._lanes.items()):
                if lane.busy and (error := _attempt(lane.step)) is not None:
                    # a broken batch is dropped, with all in it; the next request begins a new one
                    lane.fail(error)
                    lane.close()
                    del self._lanes[key]
        self._leave()

    def _serve_inbox(self) -> bool:
        """Do what was asked for; waits only when no lane is busy. False when the end was asked for."""
        block = not any(lane.busy for lane in self._lanes.values())
        while True:
            try:
                job = self._inbox.get(block=block)
            except queue.Empty:
                return True
            if job is None:
                return False
            job()
            block = False

    def _leave(self) -> None:
        for lane in self._lanes.values():
            lane.fail(EngineError("The engine was closed."))
            lane.close()
        self._lanes.clear()
        gc.collect()
        try:
            import mlx.core as mx
        except ImportError:
            return
        mx.clear_streams()  # else the interpreter aborts at its exit


def _attempt(function: Callable[[], Any]) -> EngineError | None:
    """Run a function; what it raises comes back as an EngineError."""
    try:
        function()
    except EngineError as exc:
        return exc
    except Exception as exc:  # noqa: BLE001 - whatever mlx raises, the one thread must outlive it
        return EngineError(f"mlx failed: {type(exc).__name__}: {str(exc)[:300]}")
    return None
