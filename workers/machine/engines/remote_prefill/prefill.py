"""Reading prompts for others: several at once, a chunk of each in turn, handed out while the next is read.

mlx-lm's own batches do the reading. What a class shares is read once and kept, as in the mlx engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from workers.machine.engines.mlx.decode_loop import LEAST_CHUNK, READ_AT_ONCE
from workers.machine.engines.mlx.model import LoadedModel
from workers.machine.engines.mlx.prefix_caches import Prefix, PrefixCaches
from workers.machine.engines.remote_prefill.cache import CacheChunk, Layout, Want, cut, span_in
from workers.machine.engines.remote_prefill.protocol import TransferError


@dataclass(eq=False)
class Prompt:
    """One prompt on its way. Times are of `time.monotonic`."""

    ids: list[int]
    """The tokens to read; not the last one of the prompt, with which the answer begins."""
    shared: int
    """How many of them the class shares."""
    want: Want
    bits: int | None
    hand: Callable[[list[CacheChunk]], None]
    """Takes evaluated pieces; waits while too much is on its way. Raises TransferErrors."""
    over: Callable[[], bool]
    """Whether nobody waits for it any more."""
    done: Future[None] = field(default_factory=Future)
    cached: int = 0
    """Tokens that did not have to be read."""
    at: int = 0
    """Tokens read."""
    asked: float = field(default_factory=time.monotonic)
    begun: float | None = None
    ended: float | None = None
    handing_s: float = 0.0
    """Seconds it was held up because too much was on its way."""

    @property
    def prefix(self) -> Prefix:
        """The tokens that the class shares."""
        return tuple(self.ids[: self.shared])


class PrefillBatch:
    """One model's prompts. On the mlx thread only; `round` does one chunk of all of them."""

    def __init__(self, loaded: LoadedModel, layout: Layout, prefixes: PrefixCaches, step: int) -> None:
        self._loaded = loaded
        self._layout = layout
        self._prefixes = prefixes
        self._step = step
        self._batch: Any = None
        self._now: list[Prompt] = []
        self._waiting: list[Prompt] = []
        self._building: dict[Prefix, Prompt] = {}

    def add(self, prompt: Prompt) -> None:
        """Take a prompt; it is read from the next round on that has room for it."""
        self._waiting.append(prompt)

    @property
    def busy(self) -> bool:
        """Whether there is anything to read."""
        return bool(self._now or self._waiting)

    def round(self) -> None:
        """Take in who can come, read a chunk of each prompt, hand it out, let go of who is done."""
        self._leave([one for one in self._now if one.over()])
        self._waiting = [one for one in self._waiting if not self._left(one)]
        self._admit()
        if not self._now:
            return
        each = max(LEAST_CHUNK, self._step // len(self._now))
        chunks = [one.ids[one.at : min(one.at + each, self._bound(one))] for one in self._now]
        self._batch.prompt([list(chunk) for chunk in chunks])
        for place, (one, chunk) in enumerate(zip(self._now, chunks, strict=True)):
            one.at += len(chunk)
            self._hand_out(one, place, len(chunk))
        self._leave([one for one in self._now if one.at == len(one.ids) or one.done.done()])

    def fail(self, error: TransferError) -> None:
        """Give up all of it."""
        for one in (*self._now, *self._waiting):
            if not one.done.done():
                one.done.set_exception(error)
        self._batch = None
        for held in (self._now, self._waiting, self._building):
            held.clear()

    def _left(self, one: Prompt) -> bool:
        if one.over():
            one.done.cancel()
        return one.done.done()

    def _bound(self, one: Prompt) -> int:
        """Where a chunk of it has to end: at the end of a prefix that is to be kept, or of all."""
        return one.shared if self._building.get(one.prefix) is one else len(one.ids)

    def _admit(self) -> None:
        left = []
        for one in self._waiting:
            if len(self._now) >= READ_AT_ONCE or one.prefix in self._building:
                left.append(one)
            else:
                self._begin(one)
        self._waiting = left

    def _begin(self, one: Prompt) -> None:
        from mlx_lm.generate import PromptProcessingBatch
        from mlx_lm.models.cache import make_prompt_cache

        key, model = id(self._loaded), self._loaded.model
        cache = self._prefixes.get(key, one.prefix) if one.shared else None
        one.begun = time.monotonic()
        if cache is not None:
            one.cached = one.at = one.shared
            self._hand(one, [(n, layer.keys, layer.values) for n, layer in enumerate(cache)], 0, one.shared)
        elif one.shared and one.shared < len(one.ids) and self._prefixes.takes(key, one.prefix):
            self._building[one.prefix] = one
        if one.at == len(one.ids) or one.done.done():
            self._end(one)
            return
        batch = PromptProcessingBatch(
            model=model,
            uids=[id(one)],
            caches=[cache if cache is not None else make_prompt_cache(model)],
            tokens=[one.ids[: one.at]],
            samplers=[None],
            logits_processors=[[]],
            max_tokens=[1],
        )
        if self._batch is None or not self._now:
            self._batch = batch
        else:
            self._batch.extend(batch)
        self._now.append(one)

    def _hand_out(self, one: Prompt, place: int, count: int) -> None:
        """What of the last `count` tokens has to be sent, and the prefix, if it ends here."""
        if one.at == one.shared and self._building.pop(one.prefix, None) is one:
            self._prefixes.keep(id(self._loaded), one.prefix, self._batch.extract_cache(place))
        slices = []
        for number, layer in enumerate(self._batch.prompt_cache):
            if self._layout.layers[number].window is None:
                low, high = layer._idx - count, layer._idx
                keys, values = (part[place : place + 1, :, low:high] for part in (layer.keys, layer.values))
            else:
                own = layer.extract(place)
                keys, values = own.keys[..., -count:, :], own.values[..., -count:, :]
            slices.append((number, keys, values))
        self._hand(one, slices, one.at - count, one.at)

    def _hand(self, one: Prompt, slices: Sequence[tuple[int, Any, Any]], lo: int, hi: int) -> None:
        """Give out what is wanted of these slices (1, heads, n, dim), which end with token `hi`."""
        import mlx.core as mx

        pieces = []
        for number, keys, values in slices:
            for a, b in span_in(self._layout.layers[number].spans(one.want), lo, hi):
                # slices are counted from their end: a window has fewer tokens than were read
                end = keys.shape[2] if keys.shape[2] < hi else hi
                part = slice(end - (hi - a), end - (hi - b))
                pieces.append(
                    CacheChunk(number, a, b, cut(keys[..., part, :], values[..., part, :], one.bits))
                )
        mx.eval([piece.parts for piece in pieces])
        begun = time.monotonic()
        try:
            if pieces:
                one.hand(pieces)
        except TransferError as error:
            one.done.set_exception(error)
        one.handing_s += time.monotonic() - begun

    def _leave(self, gone: list[Prompt]) -> None:
        """Let go of prompts; those that are read are done."""
        for one in gone:
            self._end(one)
        if gone and (keep := [n for n, one in enumerate(self._now) if one not in gone]) != list(
            range(len(self._now))
        ):
            self._batch.filter(keep)
            self._now = [self._now[n] for n in keep]

    def _end(self, one: Prompt) -> None:
        if self._building.get(one.prefix) is one:
            del self._building[one.prefix]
        one.ended = time.monotonic()
        if one.done.done():
            return
        if one.at == len(one.ids):
            one.done.set_result(None)
        else:
            one.done.cancel()
