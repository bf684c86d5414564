"""Whether an answer at temperature 0 depends on the batch that it is written in, and on what computes it.

Each way is compared with answers written alone. Up to the first token that differs, both have read the same
text, so their log-probabilities can be compared; from there on they are answers to different texts.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.batches.models import Ask, Device, Numbers, Watched
from workers.machine.engines.mlx.decode_loop import Shape as BatchShape
from workers.machine.engines.mlx.model import LoadedModel


@dataclass(frozen=True)
class Way:
    """How answers are written."""

    device: Device
    numbers: Numbers
    at_once: int

    def __str__(self) -> str:
        batch = "alone" if self.at_once == 1 else f"{self.at_once} at once"
        return f"{self.device} {self.numbers} {batch}"


@dataclass(frozen=True)
class Answer:
    """Tokens, and the log-probabilities that each was chosen by."""

    tokens: Sequence[int]
    logprobs: Sequence[Any]


@dataclass(frozen=True)
class Rounding:
    """Answers of one way beside those written alone; differences are of log-probabilities."""

    way: Way
    answers: int
    differ: int
    """Answers with another token somewhere."""
    first: tuple[int, ...]
    """Places of the first token that differs, from 1."""
    steps: int
    """Tokens that were chosen after the same text."""
    lead: float
    """Median distance of the two likeliest tokens, alone."""
    change: float
    """Median change of that distance."""
    largest_change: float
    largest: float
    """Of any token."""

    def __str__(self) -> str:
        places = f" at token {', '.join(map(str, self.first))}" if self.first else ""
        return (
            f"{self.way}: {self.differ} of {self.answers} answers differ{places} ({self.steps} tokens "
            f"compared); the best two {self.lead:.3f} apart, changed by {self.change:.4f}, "
            f"at most {self.largest_change:.3f}; any token by at most {self.largest:.3f}"
        )


def write(loaded: LoadedModel, asks: Sequence[Ask], at_once: int) -> list[Answer]:
    """All answers, so many at once; the shared beginning is read once and then kept."""
    driven = Watched(loaded, BatchShape(slots=at_once))
    made = list[Answer]()
    for begin in range(0, len(asks), at_once):
        asked = [driven.ask(one) for one in asks[begin : begin + at_once]]
        driven.finish()
        made += [Answer(tuple(one.ticket.output), driven.seen(one)) for one in asked]
    driven.loop.close()
    return made


def compare(way: Way, alone: Sequence[Answer], others: Sequence[Answer]) -> Rounding:
    """What of them differs."""
    import numpy as np

    first, lead, change, largest, steps = list[int](), list[float](), list[float](), 0.0, 0
    for one, other in zip(alone, others, strict=True):
        pairs = list(zip(one.tokens, other.tokens, strict=False))
        apart = next((at for at, (a, b) in enumerate(pairs) if a != b), None)
        common = len(pairs) if apart is None else apart + 1
        if apart is not None:
            first.append(common)
        steps += common
        for mine, theirs in zip(one.logprobs[:common], other.logprobs[:common], strict=True):
            second, best = (int(token) for token in np.argpartition(mine, -2)[-2:])
            lead.append(float(mine[best] - mine[second]))
            change.append(abs(float(theirs[best] - theirs[second]) - lead[-1]))
            largest = max(largest, float(np.abs(mine - theirs).max()))
    return Rounding(
        way=way,
        answers=len(alone),
        differ=len(first),
        first=tuple(sorted(first)),
        steps=steps,
        lead=statistics.median(lead),
        change=statistics.median(change),
        largest_change=max(change),
        largest=largest,
    )
