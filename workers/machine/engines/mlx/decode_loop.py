"""One model's running batch: who is in it, who waits, and what they share.

What a class shares is prefilled once: the cache at the end of the shared prefix is kept, and each later
prompt with the same prefix starts from it. Requests that come while their prefix is being prefilled wait for
it without taking a slot; when its builder leaves early, the next of them goes on from where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from grading.domain.errors import EngineError
from workers.machine.engines.mlx.constraint import hand_out
from workers.machine.engines.mlx.counters import Tally
from workers.machine.engines.mlx.generation import Ticket
from workers.machine.engines.mlx.model import LoadedModel
from workers.machine.engines.mlx.prefix_caches import Layers, Prefix, Prefixes
from workers.machine.engines.mlx.sampling import Samplers

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


class Lane:
    """One model's batch. Used on the mlx thread only, but for `running` and `waiting`."""

    def __init__(self, loaded: LoadedModel, shape: Shape, prefixes: Prefixes, tally: Tally) -> None:
        self._key = id(loaded)
        self._shape = shape
        self._prefixes = prefixes
        self._tally = tally
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
        self._tally.add(
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
        self._tally.add(cancelled=len(gone) + len(late))
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
        self._tally.add(
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
            error = EngineError(f"The answer could not be bound to its schema: {broken}")
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
