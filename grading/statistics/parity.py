"""Whether a machine still grades golden submissions as it did, and as the others do.

Each machine grades the same submissions several times a night. Under the hypothesis that nothing changed, the
runs of one submission are exchangeable: which of them are tonight's is chance. So the test is exact, whatever
a model's noise is, and however it differs from criterion to criterion:

1. For each submission, all ways to choose tonight's runs among all runs are ordered by how far the mean
   levels of those chosen lie from those of the rest; p is the share of ways that lie as far as what happened.
2. The submissions are put together by the truncated product of Zaykin et al. (2002): the sum of −ln p of
   those with p ≤ `TRUNCATION`, as a few submissions that moved a lot count more than many that moved a
   little. Its distribution is that of the exact ones of the p, rounded so that no p is too small.

A difference that is certain but too small to matter is none: `LEAST_SHIFT` and `LEAST_SUBMISSIONS`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

ALPHA = 3e-6
"""Chance of an alarm for nothing in one comparison. There are two a night, machine and stage: four machines
with two stages have one in fifty years."""
TRUNCATION = 0.02
STEP = 0.02
"""Of −ln p, for its distribution."""
LEAST_SHIFT = 0.75
"""Levels that the criteria of a submission moved in the mean, added up over submissions that moved."""
LEAST_SUBMISSIONS = 2
MOST_REFERENCE = 40
"""Runs of a submission that tonight's are compared with; more only cost time."""
MOST_WAYS = 20_000
"""Of choosing tonight's among them; where there are more, the oldest are left out."""

Levels = Mapping[str, float]
"""Criterion -> level, of one run."""
Runs = Mapping[str, Sequence[Levels]]
"""Submission -> its runs, the newest first."""
Compared = Literal["before", "others"]


@dataclass(frozen=True)
class Moved:
    """How one submission is graded now."""

    submission: str
    p: float
    shift: float
    """Mean over its criteria, in levels, of how far their means moved, up or down."""


@dataclass(frozen=True)
class Comparison:
    """Tonight's runs beside others of the same submissions."""

    p: float
    """Chance to see at least this by sampling alone."""
    moved: tuple[Moved, ...]
    """Submissions that differ by themselves, the farthest first."""

    @property
    def shift(self) -> float:
        """Levels, added up over those."""
        return math.fsum(one.shift for one in self.moved)

    @property
    def differs(self) -> bool:
        """Whether sampling does not explain it, and it matters."""
        enough = len(self.moved) >= LEAST_SUBMISSIONS and self.shift >= LEAST_SHIFT
        return enough and self.p <= ALPHA


@dataclass(frozen=True)
class Deviation:
    """A machine whose levels differ."""

    machine: str
    compared: Compared
    comparison: Comparison
    certain: bool = True
    """Else it may be the other one of two machines."""


def compare(tested: Runs, reference: Runs) -> Comparison | None:
    """Tonight's runs beside others; None where they have no submission in common."""
    found = [
        _submission(name, runs, reference[name])
        for name, runs in tested.items()
        if runs and reference.get(name)
    ]
    known = [one for one in found if one is not None]
    if not known:
        return None
    moved = sorted((one for one, _ in known if one.p <= TRUNCATION), key=lambda one: -one.shift)
    return Comparison(_together([one.p for one in moved], [chances for _, chances in known]), tuple(moved))


Chances = Mapping[float, float]
"""A value of p -> the chance of exactly it."""


def _submission(
    name: str, tested: Sequence[Levels], reference: Sequence[Levels]
) -> tuple[Moved, Chances] | None:
    reference = reference[:MOST_REFERENCE]
    criteria = sorted(set[str].intersection(*(set(run) for run in (*tested, *reference))))
    if not criteria:
        return None
    chosen = Counter(tuple(run[one] for one in criteria) for run in tested)
    pool = _pool(chosen, [tuple(run[one] for one in criteria) for run in reference], len(tested))
    distance = _distance(pool, len(tested))
    ways: Counter[float] = Counter()
    for taken, count in _choices(list(pool.values()), len(tested)):
        ways[distance(taken)] += count
    seen, total = distance(tuple(chosen[kind] for kind in pool)), math.comb(pool.total(), len(tested))
    chances, p, so_far = dict[float, float](), 1.0, 0
    for value in sorted(ways, reverse=True):
        so_far += ways[value]
        chances[so_far / total] = ways[value] / total
        if value == seen:
            p = so_far / total
    return Moved(name, p, _shift(chosen, pool, len(criteria))), chances


Kind = tuple[float, ...]
"""The levels of a run; most runs of a submission are alike."""


def _pool(chosen: Counter[Kind], reference: Sequence[Kind], tested: int) -> Counter[Kind]:
    """Tonight's and the newest others, as many as can be gone through."""
    pool = chosen + Counter(reference)
    while _ways(pool, tested) > MOST_WAYS and len(reference) > tested:
        reference = reference[: len(reference) - tested]
        pool = chosen + Counter(reference)
    return pool


def _ways(pool: Counter[Kind], tested: int) -> int:
    """Choices that differ; runs that are alike are not told apart."""
    ways = [1] + [0] * tested
    for count in pool.values():
        ways = [sum(ways[at - k] for k in range(min(at, count) + 1)) for at in range(tested + 1)]
    return ways[tested]


def _distance(pool: Counter[Kind], tested: int) -> _Distance:
    kinds, size = list(pool), pool.total()
    totals = [math.fsum(kind[c] * pool[kind] for kind in kinds) for c in range(len(kinds[0]))]
    return _Distance(tuple(zip(*kinds, strict=True)), tuple(totals), size, tested)


@dataclass(frozen=True)
class _Distance:
    """How far the means of chosen runs lie from those of the rest: each criterion, and all together.

    Both, as a machine may be stricter throughout or only differ.
    """

    columns: tuple[tuple[float, ...], ...]
    totals: tuple[float, ...]
    size: int
    tested: int

    def __call__(self, taken: Sequence[int]) -> float:
        apart = [
            self.size * sum(k * level for k, level in zip(taken, column, strict=True)) - self.tested * total
            for column, total in zip(self.columns, self.totals, strict=True)
        ]
        return round(abs(sum(apart)) + sum(abs(one) for one in apart), 6)


def _choices(counts: Sequence[int], wanted: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """How many of each kind are chosen, with the number of ways to do so."""
    if len(counts) == 1:
        if wanted <= counts[0]:
            yield (wanted,), math.comb(counts[0], wanted)
        return
    for here in range(min(wanted, counts[0]) + 1):
        ways = math.comb(counts[0], here)
        for rest, count in _choices(counts[1:], wanted - here):
            yield (here, *rest), ways * count


def _shift(chosen: Counter[Kind], pool: Counter[Kind], criteria: int) -> float:
    rest = pool - chosen
    apart = (abs(_mean(chosen, at) - _mean(rest, at)) for at in range(criteria))
    return math.fsum(apart) / criteria


def _mean(kinds: Counter[Kind], at: int) -> float:
    return math.fsum(kind[at] * count for kind, count in kinds.items()) / kinds.total()


def _together(moved: Sequence[float], chances: Sequence[Chances]) -> float:
    """The chance that the truncated product is at least as extreme. Rounded up, never down."""
    seen = math.floor(math.fsum(-math.log(p) for p in moved) / STEP)
    if seen == 0:
        return 1.0
    known: dict[int, float] = {0: 1.0}
    for one in chances:
        steps: dict[int, float] = defaultdict(float)
        for p, chance in one.items():
            steps[min(seen, math.ceil(-math.log(p) / STEP)) if p <= TRUNCATION else 0] += chance
        total: dict[int, float] = defaultdict(float)
        for before, chance in known.items():
            for step, more in steps.items():
                total[min(seen, before + step)] += chance * more
        known = total
    return min(1.0, known.get(seen, 0.0))


def deviations(
    tonight: Mapping[str, Runs], before: Mapping[str, Runs], out: Set[str] = frozenset()
) -> tuple[Deviation, ...]:
    """The machines whose levels differ from their own of earlier nights, or from those of the others.

    `out` are machines that are none to compare with. Whoever changed is found first, so that the others are
    not blamed for it; then whoever is farthest from all others, one at a time. Of only two machines that
    differ it is not certain which one is wrong.
    """
    found: list[Deviation] = []
    for machine in sorted(tonight):
        compared = compare(tonight[machine], before.get(machine, {}))
        if compared is not None and compared.differs:
            found.append(Deviation(machine, "before", compared))
    left = [machine for machine in sorted(tonight) if machine not in {one.machine for one in found}]
    while len(left) > 1:
        against = {m: [one for one in left if one != m and one not in out] for m in left}
        compared_with = {
            m: compare(tonight[m], merged([tonight[o] for o in others] + [before.get(o, {}) for o in others]))
            for m, others in against.items()
            if others
        }
        apart = {m: one for m, one in compared_with.items() if one is not None and one.differs}
        if not apart:
            break
        if len(left) == 2:
            return (*found, *(Deviation(m, "others", one, certain=False) for m, one in apart.items()))
        worst = min(apart, key=lambda m: (apart[m].p, m))
        found.append(Deviation(worst, "others", apart[worst]))
        left.remove(worst)
    return tuple(found)


def merged(runs: Sequence[Runs]) -> dict[str, list[Levels]]:
    """The runs of several machines or nights, those of the first ones first."""
    found: dict[str, list[Levels]] = defaultdict(list)
    for one in runs:
        for submission, some in one.items():
            found[submission] += some
    return found
