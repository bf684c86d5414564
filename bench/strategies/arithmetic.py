"""What the strategies should take, by arithmetic: the one place of the formulas.

Two machines, `a` that reads fast and `b` that writes; two prompts, one of each stage. Times in seconds,
lengths in tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.cluster.cards import Card, Model, prefill_s, step_s

STEP = 1024
"""Tokens that the reading machine reads in one pass, unless config.toml says otherwise."""


@dataclass(frozen=True)
class Costs:
    """What one prompt and its answer cost on either machine."""

    passes: tuple[float, ...]
    """Reading on `a`, each pass."""
    sends: tuple[float, ...]
    """Sending what each pass added to the cache."""
    read_b: float
    write_a: float
    write_b: float
    rest: float = 0.0
    """What else a hand-off takes: from the last byte to the first token, mostly."""
    together: float = 1.0
    """How much longer `b` needs for a step of both answers than for a step of one."""

    @property
    def read_a(self) -> float:
        """Reading all of it on `a`."""
        return sum(self.passes)

    @property
    def serial(self) -> float:
        """Until the first token, when all is read before anything is sent."""
        return self.read_a + sum(self.sends) + self.rest

    @property
    def overlapped(self) -> float:
        """Until the first token, when each pass is sent while the next is read."""
        return arrivals(self.passes, self.sends)[-1] + self.rest


def arrivals(passes: Sequence[float], sends: Sequence[float]) -> list[float]:
    """When what each pass added has come: a pass follows the other, and so do their pieces on the link."""
    found, read, came = [], 0.0, 0.0
    for seconds, sending in zip(passes, sends, strict=True):
        read += seconds
        came = max(came, read) + sending
        found.append(came)
    return found


def sequential(first: Costs, second: Costs) -> float:
    """One machine does both, one after the other."""
    return sum(one.read_a + one.write_a for one in (first, second))


def direct(first: Costs, second: Costs) -> float:
    """Each machine does one of them."""
    return max(first.read_a + first.write_a, second.read_b + second.write_b)


def batched(first: Costs, second: Costs) -> float:
    """`b` does both in one batch: what it does when both come to it at once."""
    return first.read_b + second.read_b + _at_once(first.write_b, second.write_b, second.together)


def regenerate(first: Costs, second: Costs) -> float:
    """`a` reads, nothing is sent, and `b` reads again and writes."""
    return sum(one.read_a + one.read_b + one.write_b for one in (first, second))


def serial(first: Costs, second: Costs) -> float:
    """`a` reads all, then sends all, then `b` writes."""
    return sum(one.serial + one.write_b for one in (first, second))


def overlapped(first: Costs, second: Costs) -> float:
    """`a` sends while it reads; then `b` writes."""
    return sum(one.overlapped + one.write_b for one in (first, second))


def pipelined(first: Costs, second: Costs) -> float:
    """As `overlapped`, and `a` reads the second while `b` writes the first; then `b` writes both at once."""
    came = arrivals((*first.passes, *second.passes), (*first.sends, *second.sends))
    begins = came[len(first.passes) - 1] + first.rest, came[-1] + second.rest
    left = max(0.0, first.write_b - (begins[1] - begins[0]))
    return begins[1] + _at_once(left, second.write_b, second.together)


def _at_once(one: float, other: float, together: float) -> float:
    """Two answers in one batch, of which each alone would take so long."""
    return min(one, other) * together + abs(one - other)


STRATEGIES: Mapping[str, Callable[[Costs, Costs], float]] = {
    "sequential": sequential,
    "direct": direct,
    "batched": batched,
    "regenerate": regenerate,
    "serial": serial,
    "overlapped": overlapped,
    "pipelined": pipelined,
}
"""name → seconds until both answers are there."""


def even(seconds: float, parts: int) -> tuple[float, ...]:
    """Seconds in equal parts."""
    return (seconds / parts,) * parts


def on_cards(a: Card, b: Card, model: Model, prompt: int, output: int, link_bytes_s: float) -> Costs:
    """Of a model on real machines, by their peak figures and efficiencies with one answer at a time."""
    parts = math.ceil(prompt / STEP)
    cache = model.cache(prompt + output / 2)
    step = step_s(b, {model: 1}, {model: cache})
    return Costs(
        passes=even(prefill_s(a, model, prompt, 1), parts),
        sends=even(model.cache(prompt) / link_bytes_s, parts),
        read_b=prefill_s(b, model, prompt, 1),
        write_a=output * step_s(a, {model: 1}, {model: cache}),
        write_b=output * step,
        together=step_s(b, {model: 2}, {model: 2 * cache}) / step,
    )


def apart(costs: Costs) -> Costs:
    """Where the answers come from two models: a step of both reads the weights of both."""
    return replace(costs, together=2.0)


def an_hour(seconds: float) -> float:
    """Submissions an hour, one after the other."""
    return 3600 / seconds
