"""Clusters and classes that are as unlike as they can be, so that no rule is made for one of them.

`own` and `other` are two cost models of the same four machines; a rule is tuned on these two. The others have
batches that gain little, another mix of machines, and stages of very different lengths.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bench.cluster.cards import CARDS, GB, GB10, M3_ULTRA, M4_MAX, STAGES, TFLOPS, Card, Model, Work


@dataclass(frozen=True)
class World:
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
        usual = self.works[stage].output
        if self.even:
            return round(usual * rng.uniform(1 - self.spread, 1 + self.spread))
        return round(usual * min(self.longest, rng.lognormvariate(-(self.spread**2) / 2, self.spread)))


def _other() -> World:
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
    return World("other", "another emulator's costs, short prompts", cards, works, 0.2, even=True)


def _flat() -> World:
    cards = {name: replace(card, gains=4) for name, card in CARDS.items()}
    return World("flat", "batches gain nothing beyond four", cards)


def _one_mac() -> World:
    sparks = {f"dgx-spark-{n}": GB10 for n in (1, 2, 3)}
    return World("one-mac", "three DGX Sparks, one M3 Ultra", {**sparks, "mac-studio-1": M3_ULTRA})


def _long() -> World:
    """Feedback five times as long as analysis; one answer in twenty is three times as long as usual."""
    works = {
        "analysis": replace(STAGES["analysis"], output=400),
        "feedback": replace(STAGES["feedback"], output=2000),
    }
    small = Card("a small card", 1000 * GB, 80 * TFLOPS, 96 * GB, 0.5, 0.7)
    cards = {"dgx-spark-1": GB10, "mac-studio-1": M3_ULTRA, "mac-studio-2": M4_MAX, "workstation": small}
    return World("long", "feedback five times as long, lengths with a long tail", cards, works, 0.7)


OWN = World("own", "this project's costs, long prompts")
WORLDS: Mapping[str, World] = {one.name: one for one in (OWN, _other(), _flat(), _one_mac(), _long())}
TUNED = ("own", "other")
"""Worlds on which rules may be tuned; the others only judge."""
