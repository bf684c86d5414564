"""How far two who judge the same work agree: mean difference with its interval, weighted kappa.

Quadratic weighted kappa is 1 − (what the squared differences are) / (what they would be if the levels of
the one had been dealt out to the other's at random). It needs no classes: for levels as they are, fractions
of a level among them, it is 1 − n Σ (a − b)² / Σᵢ Σⱼ (aᵢ − bⱼ)², which is the usual one for whole levels.

Krippendorff's alpha (2011, Computing Krippendorff's Alpha-Reliability; interval metric) does the same for any
number of people and with missing marks. Intervals are those of the jackknife: each work is left out once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from grading.statistics.distribution import spread
from grading.statistics.items import TINY
from grading.statistics.students_t import t_quantile

FEWEST = 10
"""Pairs below which figures are a hint at most."""
CLOSE = 0.5
"""Levels that two may differ by and still count as agreeing."""
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Agreement:
    """Of `n` pairs of levels, (model, person) or (person, person)."""

    n: int
    difference: float | None
    """Mean of second − first, in levels."""
    interval: tuple[float, float] | None
    """Where the mean difference lies with 95 % confidence; nothing for fewer than two pairs."""
    absolute: float | None
    """Mean of |second − first|."""
    close: float | None
    """The part of pairs at most half a level apart."""
    kappa: float | None
    """Quadratic weighted; nothing where all levels are the same, or for fewer than two pairs."""
    kappa_interval: tuple[float, float] | None = None
    """Where it lies with 95 % confidence; nothing for fewer than three pairs."""

    @property
    def few(self) -> bool:
        """Whether there are too few pairs to lean on."""
        return self.n < FEWEST


def agreement(pairs: Sequence[tuple[float, float]]) -> Agreement:
    """How far the second of each pair agrees with the first."""
    found = spread([second - first for first, second in pairs])
    if found is None:
        return Agreement(0, None, None, None, None, None)
    interval = None
    if found.deviation is not None:
        reach = t_quantile((1 + CONFIDENCE) / 2, found.n - 1) * found.deviation / math.sqrt(found.n)
        interval = (found.mean - reach, found.mean + reach)
    apart = [abs(second - first) for first, second in pairs]
    return Agreement(
        n=found.n,
        difference=found.mean,
        interval=interval,
        absolute=math.fsum(apart) / found.n,
        close=sum(one <= CLOSE + TINY for one in apart) / found.n,
        kappa=weighted_kappa(pairs),
        kappa_interval=_kappa_interval(pairs),
    )


def weighted_kappa(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Quadratic weighted kappa of pairs of levels, from −1 to 1."""
    return _Sums.of(pairs).kappa


class _Sums(NamedTuple):
    """Of pairs (a, b): all that kappa needs, so that a pair is left out in one step."""

    n: int = 0
    a: float = 0.0
    b: float = 0.0
    aa: float = 0.0
    bb: float = 0.0
    ab: float = 0.0

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> _Sums:
        return cls(
            len(pairs),
            math.fsum(a for a, _ in pairs),
            math.fsum(b for _, b in pairs),
            math.fsum(a * a for a, _ in pairs),
            math.fsum(b * b for _, b in pairs),
            math.fsum(a * b for a, b in pairs),
        )

    def without(self, a: float, b: float) -> _Sums:
        """Without one pair."""
        return _Sums(
            self.n - 1, self.a - a, self.b - b, self.aa - a * a, self.bb - b * b, self.ab - a * b
        )  # fmt: skip

    @property
    def kappa(self) -> float | None:
        """Quadratic weighted kappa."""
        if self.n < 2:
            return None
        # Σᵢ Σⱼ (aᵢ − bⱼ)² / n, without going through all pairs of pairs
        by_chance = self.aa + self.bb - 2 * self.a * self.b / self.n
        if by_chance <= TINY:
            return None
        return max(-1.0, min(1.0, 1.0 - (self.aa + self.bb - 2 * self.ab) / by_chance))


def _kappa_interval(pairs: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    sums = _Sums.of(pairs)
    return jackknife(sums.kappa, [sums.without(a, b).kappa for a, b in pairs])


def jackknife(whole: float | None, without: Sequence[float | None]) -> tuple[float, float] | None:
    """The 95 % interval of a coefficient from −1 to 1, from it without each work; nothing for under three."""
    known = [one for one in without if one is not None]
    n = len(known)
    if whole is None or n < 3 or n < len(without):
        return None
    mean = math.fsum(known) / n
    error = math.sqrt((n - 1) / n * math.fsum((one - mean) ** 2 for one in known))
    reach = t_quantile((1 + CONFIDENCE) / 2, n - 1) * error
    return max(-1.0, whole - reach), min(1.0, whole + reach)


@dataclass(frozen=True)
class Between:
    """How far people agree with each other where several marked the same work: what a model is held to."""

    pairs: Agreement
    """`difference` and its interval say nothing here, as nobody comes first; they are nothing."""
    people: int
    works: int
    """Submissions that two or more people marked."""
    alpha: float | None = None
    """Krippendorff's, interval metric; nothing where all levels are the same, or without pairs."""
    alpha_interval: tuple[float, float] | None = None


def between_people(marks: Iterable[tuple[str, int, float]]) -> Between:
    """From (work, person, level): all pairs of people on the same work.

    Kappa is worked out for each two people by themselves and weighted by how much both marked.
    """
    by_work: dict[str, dict[int, float]] = defaultdict(dict)
    for work, person, level in marks:
        by_work[work][person] = level
    shared = {work: levels for work, levels in by_work.items() if len(levels) > 1}
    by_two = _by_two(shared)
    everything = agreement([pair for pairs in by_two.values() for pair in pairs.values()])
    kappa, kappa_interval = _mean_kappa(by_two, list(shared))
    alpha, alpha_interval = krippendorff([list(levels.values()) for levels in shared.values()])
    return Between(
        pairs=Agreement(
            n=everything.n,
            difference=None,
            interval=None,
            absolute=everything.absolute,
            close=everything.close,
            kappa=kappa,
            kappa_interval=kappa_interval,
        ),
        people=len({person for levels in shared.values() for person in levels}),
        works=len(shared),
        alpha=alpha,
        alpha_interval=alpha_interval,
    )


def krippendorff(units: Sequence[Sequence[float]]) -> tuple[float | None, tuple[float, float] | None]:
    """Alpha of the levels of each work, and its interval; works with one level say nothing."""
    parts = [_Unit.of(levels) for levels in units if len(levels) > 1]
    whole = _Unit(*(math.fsum(column) for column in zip(*parts, strict=True))) if parts else _Unit()
    without = [_Unit(*(a - b for a, b in zip(whole, part, strict=True))).alpha for part in parts]
    return whole.alpha, jackknife(whole.alpha, without)


class _Unit(NamedTuple):
    """Of the levels of one work, or of several together: all that alpha needs."""

    n: float = 0.0
    sum: float = 0.0
    squares: float = 0.0
    apart: float = 0.0
    """Σ (v − w)² over its ordered pairs, divided by the levels less 1."""

    @classmethod
    def of(cls, levels: Sequence[float]) -> _Unit:
        n, total, squares = len(levels), math.fsum(levels), math.fsum(v * v for v in levels)
        return cls(n, total, squares, 2 * (n * squares - total * total) / (n - 1))

    @property
    def alpha(self) -> float | None:
        """1 − observed / expected disagreement."""
        if self.n < 2:
            return None
        expected = 2 * (self.n * self.squares - self.sum**2) / (self.n - 1)
        return None if expected <= TINY else max(-1.0, 1.0 - self.apart / expected)


_ByTwo = Mapping[tuple[int, int], Mapping[str, tuple[float, float]]]
"""Two people -> work -> their levels."""


def _mean_kappa(by_two: _ByTwo, works: Sequence[str]) -> tuple[float | None, tuple[float, float] | None]:
    """The kappas of each two people, weighted by how much both marked, and the interval of that mean."""
    sums = {two: _Sums.of(list(pairs.values())) for two, pairs in by_two.items()}
    of_work: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for two, pairs in by_two.items():
        for work in pairs:
            of_work[work].append(two)
    whole = [_weighed(one) for one in sums.values()]
    weight, total = math.fsum(n for n, _ in whole), math.fsum(found for _, found in whole)
    without: list[float | None] = []
    for work in works:
        before = [_weighed(sums[two]) for two in of_work[work]]
        after = [_weighed(sums[two].without(*by_two[two][work])) for two in of_work[work]]
        n = weight + math.fsum(n for n, _ in after) - math.fsum(n for n, _ in before)
        left = total + math.fsum(k for _, k in after) - math.fsum(k for _, k in before)
        without.append(left / n if n else None)
    mean = total / weight if weight else None
    return mean, jackknife(mean, without)


def _weighed(sums: _Sums) -> tuple[int, float]:
    """Its weight and its kappa times that; nothing where it has no kappa."""
    return (0, 0.0) if sums.kappa is None else (sums.n, sums.n * sums.kappa)


def _by_two(shared: Mapping[str, Mapping[int, float]]) -> _ByTwo:
    """For each two people the levels they gave the same works."""
    found: dict[tuple[int, int], dict[str, tuple[float, float]]] = defaultdict(dict)
    for work in sorted(shared):
        for one, other in combinations(sorted(shared[work]), 2):
            found[one, other][work] = (shared[work][one], shared[work][other])
    return found
