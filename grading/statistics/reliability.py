"""How far stated chances can be believed: a reliability diagram and the expected calibration error (ECE).

Judgements are put in order of the chance that they are right and cut into bins of about the same size, as
most chances are high; equal chances stay in one bin. ECE is the mean distance between the chance stated and
the share that was right, over the bins, weighted by their size (Naeini et al. 2015). It is never 0 for few
judgements, even of chances that are exactly right: `ece_of_perfect` says how large it then is.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from grading.statistics.agreement import FEWEST
from grading.statistics.confidence import Tried
from grading.statistics.distribution import quantile

Verdict = Literal["few", "too sure", "too careful", "fits"]
MOST_BINS = 10
FEWEST_IN_BIN = 20
REPLICATES = 300
"""Draws for the interval of the ECE."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Bin:
    """Judgements with about the same chance to be right."""

    n: int
    low: float
    """The lowest chance in it."""
    high: float
    stated: float
    """Mean chance that they are right."""
    right: float
    """The share that people found right."""
    interval: tuple[float, float]
    """Where that share lies with 95 % confidence, by Wilson."""


@dataclass(frozen=True)
class Reliability:
    """Of `n` judgements that people judged, too."""

    n: int
    right: int
    submissions: int
    bins: tuple[Bin, ...]
    ece: float | None
    interval: tuple[float, float] | None
    """Of the ECE, 95 %: percentiles of draws with replacement, without their bias."""
    ece_of_perfect: float | None
    """What a score that is exactly right would show in the mean with so few judgements."""

    @property
    def few(self) -> bool:
        """Whether there are too few to lean on."""
        return self.n < FEWEST

    @property
    def stated(self) -> float:
        """The share that is right by the chances stated."""
        return math.fsum(one.n * one.stated for one in self.bins) / self.n if self.n else 0.0

    @property
    def expected_wrong(self) -> float:
        """Wrong ones by the chances stated."""
        return self.n * (1 - self.stated)

    @property
    def right_interval(self) -> tuple[float, float]:
        """Where the share that people find right lies with 95 % confidence."""
        return wilson(self.right, self.n)

    @property
    def verdict(self) -> Verdict:
        """What there is to say of the chances as a whole."""
        if self.few:
            return "few"
        low, high = self.right_interval
        return "too sure" if self.stated > high else "too careful" if self.stated < low else "fits"


def reliability(tried: Sequence[Tried]) -> Reliability:
    """The reliability of these scores, whatever their weight."""
    if not tried:
        return Reliability(0, 0, 0, (), None, None, None)
    parts = _parts(sorted(tried, key=lambda one: -one.score))
    chance = random.Random(len(tried))
    found = _ece([[(1 - one.score, not one.wrong) for one in part] for part in parts])
    drawn = sorted(_ece([_again(part, chance) for part in parts]) for _ in range(REPLICATES))
    # draws of a sample lie further from the stated chances than the sample does, by about this
    bias = math.fsum(drawn) / len(drawn) - found
    perfect = [_ece([_exact(part, chance) for part in parts]) for _ in range(REPLICATES)]
    tail = (1 - CONFIDENCE) / 2
    return Reliability(
        n=len(tried),
        right=sum(not one.wrong for one in tried),
        submissions=len({one.label.group for one in tried}),
        bins=tuple(_bin(part) for part in parts),
        ece=found,
        interval=(max(0.0, quantile(drawn, tail) - bias), max(0.0, quantile(drawn, 1 - tail) - bias)),
        ece_of_perfect=math.fsum(perfect) / len(perfect),
    )


@dataclass(frozen=True)
class Evaluation:
    """How far scores of error can be believed, beside the models' own confidence."""

    blind: bool
    """Only levels that people gave without knowing the graded one; all look better than they are."""
    score: Reliability
    own: Reliability
    """Of the models' own confidence, as they state it."""


def evaluate(tried: Sequence[Tried]) -> Evaluation:
    """From scores that were fitted without the judgements they are of."""
    blind = [one for one in tried if one.label.blind]
    chosen = blind if len(blind) >= FEWEST else tried
    own = [
        Tried(one.label, one.label.features.doubt) for one in chosen if one.label.features.doubt is not None
    ]
    return Evaluation(len(blind) >= FEWEST, reliability(chosen), reliability(own))


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The interval of a share, 95 %: Wilson's, which stays within 0 and 1 and holds for few, too."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    middle = (hits + z * z / 2) / (n + z * z)
    reach = z / (n + z * z) * math.sqrt(hits * (n - hits) / n + z * z / 4)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def _parts(ordered: Sequence[Tried]) -> list[list[Tried]]:
    """About equal parts, at least one; equal scores are not parted."""
    wanted = min(MOST_BINS, max(1, len(ordered) // FEWEST_IN_BIN))
    parts: list[list[Tried]] = [[]]
    done = 0
    for at, one in enumerate(ordered):
        full = done + len(parts[-1]) >= len(ordered) * len(parts) / wanted
        if parts[-1] and full and len(parts) < wanted and one.score != ordered[at - 1].score:
            done += len(parts[-1])
            parts.append([])
        parts[-1].append(one)
    return parts


def _bin(part: Sequence[Tried]) -> Bin:
    right, chances = sum(not one.wrong for one in part), [1 - one.score for one in part]
    return Bin(
        n=len(part),
        low=min(chances),
        high=max(chances),
        stated=math.fsum(chances) / len(part),
        right=right / len(part),
        interval=wilson(right, len(part)),
    )


_Pairs = list[tuple[float, bool]]
"""The chance stated and whether it was right."""


def _ece(parts: Sequence[_Pairs]) -> float:
    total = sum(len(part) for part in parts)
    return math.fsum(abs(math.fsum(stated - right for stated, right in part)) for part in parts) / total


def _again(part: Sequence[Tried], chance: random.Random) -> _Pairs:
    return [(1 - one.score, not one.wrong) for one in chance.choices(part, k=len(part))]


def _exact(part: Sequence[Tried], chance: random.Random) -> _Pairs:
    return [(1 - one.score, chance.random() >= one.score) for one in part]
