"""Models of the size of real ones, with random weights, and a decode loop that is driven by hand.

Real models know many more tokens than the tests' ones: of more tokens, more are nearly as likely as the best.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from bench.tiny_models import SMALL, TINY, Shape, make_model
from workers.machine.engines.base import Cancel, Phase
from workers.machine.engines.mlx.decode_loop import Counters, DecodeLoop
from workers.machine.engines.mlx.decode_loop import Shape as BatchShape
from workers.machine.engines.mlx.generation import Sampling, Ticket
from workers.machine.engines.mlx.model import LoadedModel, Prompt
from workers.machine.engines.mlx.prefix_caches import PrefixCaches

Numbers = Literal["bfloat16", "4bit", "float32"]
"""How a model computes: bfloat16, the same weights in 4 bits, or the same weights in float32."""
NUMBERS: tuple[Numbers, ...] = get_args(Numbers)
Device = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class Size:
    """A model's sizes, and how many tokens it knows."""

    shape: Shape
    tokens: int


SIZES: Mapping[str, Size] = {
    "tiny": Size(TINY, 0),
    "24m": Size(SMALL, 32_000),
    "0.5b": Size(Shape(896, 24, 14, 2, 64, 4864), 151_936),
    "1.5b": Size(Shape(1536, 28, 12, 2, 128, 8960), 151_936),
    "3b": Size(Shape(2048, 36, 16, 2, 128, 11_008), 151_936),
}
"""The last three as Qwen2.5's of these names, but with an output layer of its own."""
CONTEXT = 32_768


def write_model(folder: Path, size: str) -> Path:
    """A qwen3 in bfloat16."""
    made = SIZES[size]
    return make_model(folder, "qwen3", made.shape, context=CONTEXT, dtype="bfloat16", tokens=made.tokens)


def load(folder: Path, device: Device, numbers: Numbers) -> LoadedModel:
    """Load it for a device, which all that follows runs on."""
    import mlx.core as mx
    from mlx import nn
    from mlx_lm.utils import load as read

    mx.set_default_device(mx.gpu if device == "gpu" else mx.cpu)
    model, tokenizer, config = read(str(folder), return_config=True)
    if numbers == "4bit":
        nn.quantize(model, group_size=64, bits=4)
    elif numbers == "float32":
        model.set_dtype(mx.float32)
    mx.eval(model.parameters())
    return LoadedModel(model, tokenizer, config, None)


@dataclass(frozen=True)
class Ask:
    """Tokens of a request: what a class shares, its own, and how many are written at most."""

    shared: Sequence[int]
    own: Sequence[int]
    most: int


def asks(loaded: LoadedModel, count: int, shared: int, own: int, most: int) -> list[Ask]:
    """Requests with one shared beginning, and rests that differ in length by up to a half."""
    drawn = random.Random(1)
    words = range(3, min(loaded.vocabulary, len(loaded.tokenizer.get_vocab())))
    beginning = drawn.choices(words, k=shared)
    lengths = [own - number % 5 * own // 10 for number in range(count)]
    return [Ask(beginning, drawn.choices(words, k=length), most) for length in lengths]


@dataclass
class Asked:
    """A ticket, what cancels it, and what tells that a phase began."""

    ticket: Ticket
    cancel: Cancel
    news: threading.Event

    def wait_for(self, phase: Phase, seconds: float) -> None:
        """Until it has begun, or nothing was heard for so long."""
        while phase not in self.ticket.phases and self.news.wait(seconds):
            self.news.clear()


def ticket(loaded: LoadedModel, ask: Ask) -> Asked:
    """One generation at temperature 0."""
    cancel, news = Cancel(), threading.Event()
    made = Ticket(
        loaded=loaded,
        prompt=Prompt([*ask.shared, *ask.own], len(ask.shared)),
        max_tokens=ask.most,
        sampling=Sampling(0.0),
        constraint=None,
        over=lambda: cancel.cancelled,
        wake=news.set,
    )
    return Asked(made, cancel, news)


@dataclass
class Driven:
    """The engine's own loop of one model, a step at a time, with a prefix cache."""

    loaded: LoadedModel
    shape: BatchShape
    loop: DecodeLoop = field(init=False)

    def __post_init__(self) -> None:
        self.loop = self.made(PrefixCaches(4 * 10**9), Counters())

    def made(self, prefixes: PrefixCaches, counters: Counters) -> DecodeLoop:
        """The loop."""
        return DecodeLoop(self.loaded, self.shape, prefixes, counters)

    def ask(self, ask: Ask) -> Asked:
        """Submit one."""
        asked = ticket(self.loaded, ask)
        self.loop.add(asked.ticket)
        return asked

    def until_written(self, asked: Sequence[Asked], tokens: int) -> None:
        """Steps until each has written so many tokens."""
        while any(len(one.ticket.output) < tokens and not one.ticket.done.done() for one in asked):
            self.loop.step()

    def finish(self) -> None:
        """Steps until nothing is left to do."""
        while self.loop.running or self.loop.waiting:
            self.loop.step()


class WatchedLoop(DecodeLoop):
    """A loop that keeps the log-probabilities of each token."""

    def __init__(
        self, loaded: LoadedModel, shape: BatchShape, prefixes: PrefixCaches, counters: Counters
    ) -> None:
        super().__init__(loaded, shape, prefixes, counters)
        self.seen: dict[Ticket, list[Any]] = {}

    def _take(self, response: Any) -> None:
        import mlx.core as mx
        import numpy as np

        logprobs = np.array(response.logprobs.astype(mx.float32))
        self.seen.setdefault(self._running[response.uid], []).append(logprobs)
        super()._take(response)


@dataclass
class Watched(Driven):
    """Also keeps the log-probabilities."""

    def made(self, prefixes: PrefixCaches, counters: Counters) -> DecodeLoop:
        """The loop that keeps them."""
        return WatchedLoop(self.loaded, self.shape, prefixes, counters)

    def seen(self, asked: Asked) -> list[Any]:
        """Those of one request."""
        assert isinstance(self.loop, WatchedLoop)
        return self.loop.seen[asked.ticket]
