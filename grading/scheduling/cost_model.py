"""What a job costs on a machine that nobody measured yet: reckoned from its data sheet and the model's size.

A step of a batch reads the weights once and each one's cache; a prompt is arithmetic, and holds up all others
while it is read. Efficiencies say how far from their sheets engines stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GB = 1e9
TFLOPS = 1e12
BATCHED = 8
"""From so many at once a card has its batched efficiency; below, it goes there in a straight line."""


@dataclass(frozen=True)
class Card:
    """A computer, by its data sheet."""

    bandwidth_gb_s: float
    tflops: float
    alone: float = 0.7
    """Part of the sheet it reaches with one at once."""
    batched: float = 0.7
    """The same from eight at once."""

    def efficiency(self, at_once: int) -> float:
        """Part of the sheet with so many at once."""
        return self.alone + (self.batched - self.alone) * min(1.0, max(0, at_once - 1) / (BATCHED - 1))


@dataclass(frozen=True)
class Weights:
    """A model. Each step reads `always_gb`, and of `experts_gb` those that the batch hits."""

    always_gb: float
    active_billions: float
    """Parameters multiplied a token."""
    experts_gb: float = 0.0
    hit: float = 0.0
    """Part of the experts that one token uses."""
    cache_bytes_token: float = 100_000.0
    """Cache of one more token of context."""
    cache_fixed_gb: float = 0.0
    """Cache that has a bound, as of sliding windows."""

    def read_gb(self, at_once: int) -> float:
        """What a step of so many reads: the more at once, the more distinct experts."""
        return self.always_gb + self.experts_gb * (1.0 - (1.0 - self.hit) ** at_once)


@dataclass(frozen=True)
class Size:
    """Tokens of a usual job; `shared` of its prompt are the same for the whole class and read once."""

    prompt: int = 5000
    shared: int = 4000
    output: int = 1000


CARDS: Mapping[str, Card] = {
    "gb10": Card(273, 100, 0.65, 0.95),
    "m3-ultra": Card(819, 26, 0.7, 0.55),
    "m4-max": Card(546, 17, 0.7, 0.55),
}
MODELS: Mapping[str, Weights] = {
    "qwen3-coder-30b": Weights(0.736, 3.3, 17.81, 8 / 128, 98_304),
    "gemma-3-27b-bf16": Weights(54, 26.4, cache_bytes_token=81_920, cache_fixed_gb=0.436),
    "gemma-3-27b-q4": Weights(16.2, 26.4, cache_bytes_token=81_920, cache_fixed_gb=0.436),
}


def job_s(card: Card, model: Weights, size: Size, at_once: int) -> float:
    """Seconds of a usual job among so many like it, in the long run."""
    efficiency = card.efficiency(at_once)
    context = size.prompt + size.output / 2
    cache_gb = model.cache_fixed_gb + model.cache_bytes_token * context / GB
    read_s = (model.read_gb(at_once) + at_once * cache_gb) / card.bandwidth_gb_s
    flop = 2e9 * model.active_billions
    step_s = max(read_s, at_once * flop / (card.tflops * TFLOPS)) / efficiency
    new = max(0, size.prompt - size.shared)
    prompt_s = flop * new / (card.tflops * TFLOPS * efficiency)
    return size.output * step_s + at_once * prompt_s


def rate(card: Card, model: Weights, size: Size, at_once: int) -> float:
    """Jobs a second with always so many at once."""
    return at_once / job_s(card, model, size, at_once)
