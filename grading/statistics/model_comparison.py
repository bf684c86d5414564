"""Two models beside people: agreement of each with the same levels by people, and of their difference.

Intervals are percentiles of a bootstrap over submissions, as the criteria of one submission belong together
(Efron and Tibshirani 1993, chapter 13). The same draws are used for both models, so that what a submission
has of its own falls out of their difference.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grading.statistics.agreement import CLOSE, FEWEST, weighted_kappa
from grading.statistics.distribution import quantile

DRAWS = 1000
TAIL = 0.025
Interval = tuple[float, float]
Verdict = Literal["few", "better", "worse", "alike"]


@dataclass(frozen=True)
class Level:
    """A criterion of a submission as a person, the model of now and the new one graded it."""

    submission: str
    criterion: str
    person: float
    now: float
    new: float


@dataclass(frozen=True)
class Distances:
    """How far levels of a model are from those of people."""

    same: int
    """At most half a level."""
    far: int
    """More than one level."""


@dataclass(frozen=True)
class Compared:
    """Of one criterion, or of all together. Agreement is quadratic weighted kappa."""

    n: int
    submissions: int
    now: float | None
    now_interval: Interval | None
    new: float | None
    new_interval: Interval | None
    difference: Interval | None
    """Where the new one's agreement less that of now lies, with 95 % confidence."""
    now_distances: Distances
    new_distances: Distances

    @property
    def verdict(self) -> Verdict:
        """What these levels show."""
        if self.submissions < FEWEST or self.difference is None:
            return "few"
        low, high = self.difference
        return "better" if low > 0 else "worse" if high < 0 else "alike"


def compare_models(levels: Sequence[Level]) -> Compared:
    """Both models beside people."""
    by_work: dict[str, list[Level]] = defaultdict(list)
    for one in levels:
        by_work[one.submission].append(one)
    works = [by_work[name] for name in sorted(by_work)]
    drawn = random.Random(len(levels))
    draws = [_both([one for _ in works for one in drawn.choice(works)]) for _ in range(DRAWS if works else 0)]
    known = [(now, new) for now, new in draws if now is not None and new is not None]
    now, new = _both(levels)
    return Compared(
        n=len(levels),
        submissions=len(works),
        now=now,
        now_interval=_interval([one for one, _ in known]),
        new=new,
        new_interval=_interval([one for _, one in known]),
        difference=_interval([after - before for before, after in known]),
        now_distances=_distances([abs(one.now - one.person) for one in levels]),
        new_distances=_distances([abs(one.new - one.person) for one in levels]),
    )


def by_criterion(levels: Sequence[Level]) -> Mapping[str, Compared]:
    """The same for each criterion."""
    found: dict[str, list[Level]] = defaultdict(list)
    for one in levels:
        found[one.criterion].append(one)
    return {name: compare_models(some) for name, some in found.items()}


def _distances(apart: Sequence[float]) -> Distances:
    return Distances(sum(one <= CLOSE for one in apart), sum(one > 1 for one in apart))


def _both(levels: Sequence[Level]) -> tuple[float | None, float | None]:
    now = weighted_kappa([(one.now, one.person) for one in levels])
    return now, weighted_kappa([(one.new, one.person) for one in levels])


def _interval(values: Sequence[float]) -> Interval | None:
    """Between the 2.5th and the 97.5th percentile; nothing where most draws have no agreement at all."""
    if len(values) < DRAWS / 2:
        return None
    ordered = sorted(values)
    return quantile(ordered, TAIL), quantile(ordered, 1 - TAIL)
