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
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal

REPEATS = 8
"""Runs of a submission a night."""
LEAST_LEVELS = 16
"""Levels of a submission a night: where a stage has one criterion, eight runs show too little."""
ALPHA = 3e-6
"""Chance of an alarm for nothing in one comparison. There are two a night, machine and stage: four machines
with two stages have one in fifty years."""
TRUNCATION = 0.02
STEP = 0.02
"""Of −ln p, for its distribution."""
LEAST_SHIFT = 0.75
"""Levels that the criteria of a submission moved in the mean, added up over submissions that moved."""
LEAST_SUBMISSIONS = 2
MOST_REFERENCE = 80
"""Runs of a submission that tonight's are compared with; more only cost time."""
MOST_WAYS = 20_000
"""Of choosing tonight's among them; where there are more, the oldest are left out."""

Levels = Mapping[str, int]
"""Criterion -> level, of one run."""
Runs = Mapping[str, Sequence[Levels]]
"""Submission -> its runs, the newest first."""
Compared = Literal["before", "others"]


def repeats(criteria: int) -> int:
    """How often a machine grades a golden submission each night: its spread separates noise from a change."""
    return max(REPEATS, math.ceil(LEAST_LEVELS / max(1, criteria)))


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
    """Chance to see at least this by sampling alone; 1 where it does not matter."""
    moved: tuple[Moved, ...]
    """Submissions that differ by themselves, the farthest first."""

    @property
    def shift(self) -> float:
        """Levels, added up over those."""
        return math.fsum(one.shift for one in self.moved)

    @property
    def matters(self) -> bool:
        """Whether it is large enough to be an alarm, if sampling does not explain it."""
        return len(self.moved) >= LEAST_SUBMISSIONS and self.shift >= LEAST_SHIFT

    @property
    def differs(self) -> bool:
        """Whether sampling does not explain it, and it matters."""
        return self.matters and self.p <= ALPHA


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
    moved = tuple(sorted((one for one, _ in known if one.p <= TRUNCATION), key=lambda one: -one.shift))
    compared = Comparison(1.0, moved)
    if not compared.matters:
        return compared
    return replace(compared, p=_together([one.p for one in moved], [chances for _, chances in known]))


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
    packing = _Packing.of(pool, len(tested))
    distance = _Distance(packing)
    ways: Counter[int] = Counter()
    for sums, count in _choices(pool, packing).items():
        ways[distance(sums)] += count
    seen, total = distance(packing.sums(chosen)), math.comb(pool.total(), len(tested))
    chances, p, so_far = dict[float, float](), 1.0, 0
    for value in sorted(ways, reverse=True):
        so_far += ways[value]
        chances[so_far / total] = ways[value] / total
        if value == seen:
            p = so_far / total
    return Moved(name, p, _shift(chosen, pool, len(criteria))), chances


Kind = tuple[int, ...]
"""The levels of a run; most runs of a submission are alike."""


def _pool(chosen: Counter[Kind], reference: Sequence[Kind], tested: int) -> Counter[Kind]:
    """Tonight's and the newest others, as many as can be gone through."""
    pool = chosen + Counter(reference)
    while _ways(pool, tested) > MOST_WAYS and len(reference) > tested:
        reference = reference[: len(reference) - tested]
        pool = chosen + Counter(reference)
    return pool


def _ways(pool: Counter[Kind], tested: int) -> int:
    """Choices that differ; equal runs are not distinguished."""
    ways = [1] + [0] * tested
    for count in pool.values():
        ways = [sum(ways[at - k] for k in range(min(at, count) + 1)) for at in range(tested + 1)]
    return ways[tested]


@dataclass(frozen=True)
class _Packing:
    """The levels of chosen runs, added up by criterion and written as one number: a digit a criterion.

    So most choices are gone through together with all others of the same sums. Criteria in which all runs are
    alike have no digit.
    """

    tested: int
    size: int
    """Of the pool."""
    columns: tuple[int, ...]
    """Places of the criteria with a digit."""
    lowest: tuple[int, ...]
    """Their lowest levels."""
    bases: tuple[int, ...]
    totals: tuple[int, ...]
    """Their digits of the whole pool."""

    @staticmethod
    def of(pool: Counter[Kind], tested: int) -> _Packing:
        """For the runs of a pool."""
        given = list(zip(*pool, strict=True))
        columns = [at for at, levels in enumerate(given) if min(levels) < max(levels)]
        lowest = [min(given[at]) for at in columns]
        bases = [tested * (max(given[at]) - low) + 1 for at, low in zip(columns, lowest, strict=True)]
        pairs = list(zip(columns, lowest, strict=True))
        totals = [sum((kind[at] - low) * count for kind, count in pool.items()) for at, low in pairs]
        return _Packing(tested, pool.total(), *map(tuple, (columns, lowest, bases, totals)))

    def sums(self, runs: Counter[Kind]) -> int:
        """Of these runs."""
        return sum(self.kind(kind) * count for kind, count in runs.items())

    def kind(self, kind: Kind) -> int:
        """The number of one run."""
        packed = 0
        for at, low, base in zip(self.columns, self.lowest, self.bases, strict=True):
            packed = packed * base + kind[at] - low
        return packed


class _Distance:
    """How far the means of chosen runs lie from those of the rest: each criterion, and all together.

    Both, as a machine may be stricter throughout or only differ. Times the pool's size: whole numbers.
    """

    def __init__(self, packing: _Packing) -> None:
        middle = len(packing.bases) // 2
        self._span = math.prod(packing.bases[middle:])
        self._high = _Digits(packing, slice(0, middle))
        self._low = _Digits(packing, slice(middle, None))

    def __call__(self, sums: int) -> int:
        high, low = divmod(sums, self._span)
        (one, far), (other, farther) = self._high[high], self._low[low]
        return abs(one + other) + far + farther


class _Digits(dict[int, tuple[int, int]]):
    """Some digits of sums -> how far apart they are together, and each; kept, as few of them differ."""

    def __init__(self, packing: _Packing, which: slice) -> None:
        super().__init__()
        self._tested, self._size = packing.tested, packing.size
        self._digits = tuple(reversed(list(zip(packing.bases[which], packing.totals[which], strict=True))))

    def __missing__(self, sums: int) -> tuple[int, int]:
        left, together, each = sums, 0, 0
        for base, total in self._digits:
            left, digit = divmod(left, base)
            apart = self._size * digit - self._tested * total
            together, each = together + apart, each + abs(apart)
        found = self[sums] = together, each
        return found


_Ways = Mapping[int, int]
"""Sums -> the number of ways to choose runs with them."""


def _choices(pool: Counter[Kind], packing: _Packing) -> _Ways:
    """Sums of the runs that may be chosen -> the number of ways to choose such runs."""
    *others, (last, count) = sorted(pool.items(), key=lambda one: one[1])
    taken: list[dict[int, int]] = [{0: 1}, *({} for _ in range(packing.tested))]
    left = pool.total()
    for kind, many in others:
        left -= many
        taken = _with_kind(taken, packing.kind(kind), many, packing.tested - left)
    packed, found = packing.kind(last), dict[int, int]()
    for chosen, sums in enumerate(taken):
        rest = packing.tested - chosen
        ways, more = math.comb(count, rest), packed * rest
        for before, known in sums.items() if ways else ():
            found[before + more] = found.get(before + more, 0) + known * ways
    return found


def _with_kind(taken: Sequence[_Ways], packed: int, many: int, least: int) -> list[dict[int, int]]:
    """Ways by number of chosen runs, at least `least`, and sums: with up to so many runs of one more kind."""
    found: list[dict[int, int]] = [{} for _ in taken]
    for chosen, sums in enumerate(taken):
        for k in range(min(many, len(taken) - 1 - chosen) + 1):
            if chosen + k < least:
                continue
            into, ways, more = found[chosen + k], math.comb(many, k), packed * k
            for before, known in sums.items():
                into[before + more] = into.get(before + more, 0) + known * ways
    return found


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
