"""How far two who judge the same work agree: mean difference with its interval, weighted kappa.

Quadratic weighted kappa is 1 − (what the squared differences are) / (what they would be if the levels of
the one had been dealt out to the other's at random). It needs no classes: for levels as they are, fractions
of a level among them, it is 1 − n Σ (a − b)² / Σᵢ Σⱼ (aᵢ − bⱼ)², which is the usual one for whole levels.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

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
    )


def weighted_kappa(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Quadratic weighted kappa of pairs of levels, from −1 to 1."""
    n = len(pairs)
    if n < 2:
        return None
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    mean_a, mean_b = math.fsum(first) / n, math.fsum(second) / n
    # Σᵢ Σⱼ (aᵢ − bⱼ)² / n, without going through all pairs of pairs
    by_chance = math.fsum((a - mean_a) ** 2 for a in first) + math.fsum((b - mean_b) ** 2 for b in second)
    by_chance += n * (mean_a - mean_b) ** 2
    if by_chance <= TINY:
        return None
    return max(-1.0, 1.0 - math.fsum((a - b) ** 2 for a, b in pairs) / by_chance)


@dataclass(frozen=True)
class Between:
    """How far people agree with each other where several marked the same work: what a model is held to."""

    pairs: Agreement
    """`difference` and its interval say nothing here, as nobody comes first; they are nothing."""
    people: int
    works: int
    """Submissions that two or more people marked."""


def between_people(marks: Iterable[tuple[str, int, float]]) -> Between:
    """From (work, person, level): all pairs of people on the same work.

    Kappa is worked out for each two people by themselves and weighted by how much both marked.
    """
    by_work: dict[str, dict[int, float]] = defaultdict(dict)
    for work, person, level in marks:
        by_work[work][person] = level
    shared = {work: levels for work, levels in by_work.items() if len(levels) > 1}
    by_two = _by_two(shared)
    everything = agreement([pair for pairs in by_two.values() for pair in pairs])
    known = [(len(pairs), kappa) for pairs in by_two.values() if (kappa := weighted_kappa(pairs)) is not None]
    together = sum(n for n, _ in known)
    return Between(
        pairs=Agreement(
            n=everything.n,
            difference=None,
            interval=None,
            absolute=everything.absolute,
            close=everything.close,
            kappa=math.fsum(n * kappa for n, kappa in known) / together if together else None,
        ),
        people=len({person for levels in shared.values() for person in levels}),
        works=len(shared),
    )


def _by_two(
    shared: Mapping[str, Mapping[int, float]],
) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """For each two people the levels they gave the same works."""
    found: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for work in sorted(shared):
        for one, other in combinations(sorted(shared[work]), 2):
            found[one, other].append((shared[work][one], shared[work][other]))
    return found
