"""Drives a batch of the mlx engine by hand, a step at a time, and generates the same alone with mlx-lm."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.machine.engines.base import Cancel
from workers.machine.engines.mlx.decode_loop import Counters, DecodeLoop, Shape
from workers.machine.engines.mlx.generation import Sampling, Ticket
from workers.machine.engines.mlx.model import LoadedModel, Prompt
from workers.machine.engines.mlx.prefix_caches import PrefixCaches

GREEDY = Sampling(0.0)


def words(loaded: LoadedModel, count: int, seed: int) -> list[int]:
    """Random tokens that the model knows, none of them special."""
    draw = random.Random(seed)
    return [draw.randrange(3, loaded.vocabulary) for _ in range(count)]


@dataclass
class Asked:
    """A ticket, and what cancels it."""

    ticket: Ticket
    cancel: Cancel


@dataclass
class Driven:
    """A loop with counters and prefixes of its own."""

    loaded: LoadedModel
    shape: Shape = field(default_factory=lambda: Shape(slots=4, prefill_step=64))
    prefixes: PrefixCaches = field(default_factory=lambda: PrefixCaches(10**9))

    def __post_init__(self) -> None:
        self.counters = Counters()
        self.loop = DecodeLoop(self.loaded, self.shape, self.prefixes, self.counters)

    def ask(
        self, prefix: Sequence[int], rest: Sequence[int], most: int, sampling: Sampling = GREEDY, **more: Any
    ) -> Asked:
        """Submit a prompt of a shared prefix and a rest, for at most so many tokens."""
        cancel = Cancel()
        ticket = Ticket(
            loaded=self.loaded,
            prompt=Prompt([*prefix, *rest], len(prefix)),
            max_tokens=most,
            sampling=sampling,
            constraint=None,
            over=lambda: cancel.cancelled,
            wake=lambda: None,
        )
        self.loop.add(ticket)
        return Asked(ticket, cancel)

    def steps(self, count: int) -> None:
        """So many steps."""
        for _ in range(count):
            self.loop.step()

    def finish(self) -> None:
        """Steps until nothing is left to do."""
        while self.loop.running or self.loop.waiting:
            self.loop.step()

    def count(self, name: str) -> int:
        """A counter."""
        return int(self.counters.read()[name])


def alone(loaded: LoadedModel, ids: Sequence[int], most: int) -> list[int]:
    """What mlx-lm itself generates for these tokens at temperature 0, one prompt and no cache."""
    from mlx_lm import stream_generate

    made = stream_generate(loaded.model, loaded.tokenizer, list(ids), max_tokens=most)
    return [response.token for response in made if response.token not in loaded.eos_ids]
