"""Cost model of the emulated clusters: cards, language models, and seconds of a decode step and of a prompt.

The figures are those of published sheets; efficiencies say how far from them real engines stay. `own`
and `other` are two cost models of the same four machines, on which rules are tuned; the other clusters differ
from them as much as they can.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

GB = 1e9
TFLOPS = 1e12
WINDOW = 1024
BATCHED = 8
"""From this many at once on a card has its batched efficiency; below, it goes there in a straight line."""


@dataclass(frozen=True)
class Card:
    """A computer: memory bandwidth in bytes/s, arithmetic in FLOP/s, memory in bytes."""

    name: str
    bandwidth: float
    flops: float
    memory: float
    alone: float = 1.0
    """Part of the ideal it reaches with one at once."""
    batched: float = 1.0
    """The same from eight at once."""
    reads: float = 0.0
    """Part of its arithmetic it reaches while it reads a prompt; 0: as while it writes."""
    gains: int = 0
    """A larger batch than this brings nothing more, its step takes as long as several; 0: none is."""
    apart: bool = False
    """Models in one batch step one after the other, each as well as a batch of its own part does."""

    def efficiency(self, at_once: float) -> float:
        """Part of the ideal with so many in the batch."""
        part = min(1.0, max(0, at_once - 1) / (BATCHED - 1))
        return self.alone + (self.batched - self.alone) * part

    def ideal(self) -> Card:
        """The same card with nothing lost."""
        return Card(self.name, self.bandwidth, self.flops, self.memory)

    def read_power(self, at_once: int) -> float:
        """FLOP a second while it reads a prompt with so many in its slots."""
        return self.flops * (self.reads or self.efficiency(at_once))


@dataclass(frozen=True)
class Model:
    """Weights and caches of a model, in bytes. A step reads `always`, and the experts that the batch hits."""

    name: str
    always: float
    experts: float
    hit: float
    """Part of the experts that one token uses."""
    active: float
    """Parameters multiplied a token; an embedding table is observed up."""
    kv_token: float
    """Cache of one more token of context."""
    kv_fixed: float = 0.0
    """Cache that has a bound, as of sliding windows."""
    reading: float = 0.0
    """Parameters a token of a prompt is multiplied by; 0: as many as one of an answer."""
    attention: float = 0.0
    """FLOP of a prompt's token for each token before it."""
    window: float = 0.0
    """The same in layers that see no more than `WINDOW` tokens."""

    @property
    def size(self) -> float:
        """Bytes in memory."""
        return self.always + self.experts

    def weights(self, at_once: float) -> float:
        """Bytes of weights that a step of so many reads: the more at once, the more distinct experts."""
        return self.always + self.experts * (1 - (1 - self.hit) ** at_once) if at_once else 0.0

    def cache(self, tokens: float) -> float:
        """Bytes of cache for a context of so many tokens."""
        return self.kv_fixed + self.kv_token * tokens

    def read_flop(self, new: float, cached: float = 0.0) -> float:
        """Arithmetic of a prompt's new tokens after those that are kept."""
        middle = cached + new / 2
        seen = self.attention * middle + self.window * min(middle, WINDOW)
        return new * (2 * (self.reading or self.active) + seen)


@dataclass(frozen=True)
class Work:
    """A usual job of a stage: prompt tokens, those the class shares, output tokens."""

    stage: str
    model: Model
    prompt: int
    shared: int
    output: int


GB10 = Card("GB10", 273 * GB, 100 * TFLOPS, 128 * GB, 0.65, 0.95)
M3_ULTRA = Card("M3 Ultra", 819 * GB, 26 * TFLOPS, 256 * GB, 0.7, 0.55)
M4_MAX = Card("M4 Max", 546 * GB, 17 * TFLOPS, 128 * GB, 0.7, 0.55)
CARDS: Mapping[str, Card] = {
    "dgx-spark-1": GB10,
    "mac-studio-1": M3_ULTRA,
    "dgx-spark-2": GB10,
    "mac-studio-2": M4_MAX,
}
"""machine -> card, as in config.toml."""

QWEN = Model("qwen3-coder:30b", 0.736 * GB, 17.81 * GB, 8 / 128, 3.3e9, 98_304)
# 27.4e9 parameters less the embedding table; ten global layers, the others see 1,024 tokens
GEMMA = Model("gemma-3-27b", 54 * GB, 0, 0, 26.4e9, 81_920, 436e6)
MODELS: Mapping[str, Model] = {m.name: m for m in (QWEN, GEMMA)}
ANALYSIS = Work("analysis", QWEN, 5000, 4000, 1200)
FEEDBACK = Work("feedback", GEMMA, 5000, 4000, 800)
STAGES: Mapping[str, Work] = {w.stage: w for w in (ANALYSIS, FEEDBACK)}


def step_s(card: Card, batch: Mapping[Model, int], cache: Mapping[Model, float]) -> float:
    """Seconds of a decode step, a token for each in the batch. Each model is read; `cache` is in bytes."""
    if card.apart and len(batch) > 1:
        return sum(step_s(card, {m: n}, {m: cache[m]}) for m, n in batch.items())
    at_once = sum(batch.values())
    if card.gains and at_once > card.gains:
        part = card.gains / at_once
        return _step_s(card, {m: n * part for m, n in batch.items()}, sum(cache.values()) * part) / part
    return _step_s(card, batch, sum(cache.values()))


def _step_s(card: Card, batch: Mapping[Model, float], cache: float) -> float:
    read = sum(m.weights(n) for m, n in batch.items()) + cache
    flop = sum(2 * m.active * n for m, n in batch.items())
    return max(read / card.bandwidth, flop / card.flops) / card.efficiency(sum(batch.values()))


def prefill_s(card: Card, model: Model, tokens: float, at_once: int, kept: float = 0.0) -> float:
    """Seconds to read so many new tokens of a prompt after those kept; decoding pauses meanwhile."""
    return model.read_flop(tokens, kept) / card.read_power(at_once)


def rate(card: Card, work: Work, at_once: int, cached: bool = True) -> float:
    """Jobs a second in the long run with always so many usual jobs of one stage at once."""
    return at_once / job_s(card, work, at_once, cached)


def job_s(card: Card, work: Work, at_once: int, cached: bool = True) -> float:
    """Seconds of a usual job among so many like it, in the long run: a prompt holds up all others."""
    context = work.model.cache(work.prompt + work.output / 2)
    kept = work.shared if cached else 0
    step = step_s(card, {work.model: at_once}, {work.model: at_once * context})
    return work.output * step + at_once * prefill_s(card, work.model, work.prompt - kept, at_once, kept)


@dataclass(frozen=True)
class ClusterModel:
    """Machines, what stages cost on them, and how much answers differ in length."""

    name: str
    about: str
    cards: Mapping[str, Card] = field(default_factory=lambda: dict(CARDS))
    works: Mapping[str, Work] = field(default_factory=lambda: dict(STAGES))
    spread: float = 0.25
    """Of the logarithm of output lengths; of their range where they are `even`."""
    even: bool = False
    """Lengths are equally likely between both ends, not lognormal."""
    longest: float = 4.0
    """No answer is longer than so many usual ones: a stage has a limit."""

    def output(self, rng: random.Random, stage: str) -> int:
        """Tokens of one answer."""
        typical = self.works[stage].output
        if self.even:
            return round(typical * rng.uniform(1 - self.spread, 1 + self.spread))
        return round(typical * min(self.longest, rng.lognormvariate(-(self.spread**2) / 2, self.spread)))


def _other() -> ClusterModel:
    """Another emulator's formulas: prompts at 60 % of the arithmetic, attention counts, models step apart."""
    a_byte = 18.56 / 30.53
    experts = 128 * 3 * 2048 * 768 * 48 * a_byte
    always = (48 * (2 * 2048 * 4096 + 2 * 2048 * 512) + 151_936 * 2048) * a_byte
    qwen = Model("qwen3-coder:30b", always, experts, 8 / 128, 3.03e9, 98_304, 0, 2.7e9, 4 * 32 * 128 * 48)
    window = 4 * 4096 * 52
    gemma = Model("gemma-3-27b", 54 * GB, 0, 0, 27e9, 81_920, 436e6, 25.6e9, 4 * 4096 * 10, window)
    works = {
        "analysis": Work("analysis", qwen, 1813, 1008, 1200),
        "feedback": Work("feedback", gemma, 1813, 1008, 800),
    }
    cards = {name: replace(card, reads=0.6, apart=True) for name, card in CARDS.items()}
    return ClusterModel("other", "another emulator's costs, short prompts", cards, works, 0.2, even=True)


def _flat() -> ClusterModel:
    cards = {name: replace(card, gains=4) for name, card in CARDS.items()}
    return ClusterModel("flat", "batches gain nothing beyond four", cards)


def _one_mac() -> ClusterModel:
    sparks = {f"dgx-spark-{n}": GB10 for n in (1, 2, 3)}
    return ClusterModel("one-mac", "three DGX Sparks, one M3 Ultra", {**sparks, "mac-studio-1": M3_ULTRA})


def _long() -> ClusterModel:
    """Feedback five times as long as analysis; one answer in twenty is three times as long as usual."""
    works = {
        "analysis": replace(STAGES["analysis"], output=400),
        "feedback": replace(STAGES["feedback"], output=2000),
    }
    small = Card("a small card", 1000 * GB, 80 * TFLOPS, 96 * GB, 0.5, 0.7)
    cards = {"dgx-spark-1": GB10, "mac-studio-1": M3_ULTRA, "mac-studio-2": M4_MAX, "workstation": small}
    return ClusterModel("long", "feedback five times as long, lengths with a long tail", cards, works, 0.7)


OWN = ClusterModel("own", "this project's costs, long prompts")
CLUSTER_MODELS: Mapping[str, ClusterModel] = {
    one.name: one for one in (OWN, _other(), _flat(), _one_mac(), _long())
}
TUNED = ("own", "other")
"""Worlds on which rules may be tuned; the others only judge."""
