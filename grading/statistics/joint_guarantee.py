"""What may be released unread of submissions with several criteria, by random samples of whole submissions.

A submission is released as a whole, so the guarantee must hold for the levels released together, for each
criterion: what is proven of every criterion's own set does not hold for their intersection. Therefore all
criteria are tested along one order, that of the highest chance of a wrong level in a submission. A part from
the front is released where the limits of its draw hold for each criterion.
No risk is shared between criteria, however many there are; the limits are wider than those of
`grading.statistics.release_guarantee` where some are found wrong, as the criterion that has too many wrong
ones may be another one in each part (`joint_limits`). As each criterion has at most the allowed share of
wrong levels, all together have.

Submissions of the part that are not released unread (a person found a level wrong, or did not mark it yet, or
it left the class) are not counted among those that are: the limit must be allowed for fewer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from math import comb

from grading.statistics.release_guarantee import (
    Draw,
    Gain,
    Item,
    Reason,
    Rule,
    Target,
    gain,
    limits,
    next_sample,
    reason,
    samples_reaching,
    walk_on,
)

FIRST = 3
"""Of so many counts at most the chance is computed for all criteria in one; for larger ones it costs more."""
NO_LIMIT = Draw((), frozenset(), (), (0,))
"""A try that was made and says nothing about these submissions."""


@dataclass(frozen=True)
class Work:
    """A submission as a whole."""

    key: str
    scores: Mapping[str, float]
    """Criterion -> the predicted chance that its level is wrong."""
    wrong: Mapping[str, bool | None]
    """Criterion -> whether a person found its level wrong; nothing where nobody marked it."""
    here: bool = True
    """Whether it still has the grade that was drawn; else it is not released."""

    @property
    def score(self) -> float:
        """How many of its levels are predicted to be wrong."""
        return sum(self.scores.values())

    @property
    def found(self) -> bool | None:
        """Whether any of its levels was found wrong; nothing while some are not marked."""
        return _found(self.wrong.values())


@dataclass(frozen=True)
class CriterionResult:
    """What the draw that proves most says of one criterion."""

    marked: int
    """Of the sample."""
    found_wrong: int
    """Of these."""
    alone: int
    """How many submissions it would release unread or read, were there no other criterion."""


@dataclass(frozen=True)
class JointGuarantee:
    """What may be released. Figures are those of the draw that proves most."""

    target: Target
    released: tuple[str, ...]
    """Keys, safest first: unread ones, and those whose levels a person marked and found right."""
    unread: frozenset[str]
    """Those of `released` that nobody marked."""
    threshold: float | None
    """Highest score among `released`."""
    at_most_wrong: int
    """With the target's confidence no more levels of any criterion are wrong among `released`."""
    sample: int
    marked: int
    """Of the sample, by each criterion."""
    not_marked: tuple[str, ...]
    """Keys of the sample that are to be marked, in order."""
    criteria: Mapping[str, CriterionResult]
    reason: Reason
    tries: int


def joint_guarantee(works: Iterable[Work], target: Target, draws: Sequence[Draw]) -> JointGuarantee:
    """What the draws prove with what is marked of them by now; `draws` are all, as for `guarantee`."""
    by_key = {work.key: work for work in works}
    return most_proven((_proven(by_key, target, draw, tries) for tries, draw in enumerate(draws)), target)


def most_proven(found: Iterable[JointGuarantee], target: Target) -> JointGuarantee:
    """What the draw proves that proves most; the last of equal ones, as it says what is to be marked now."""
    nothing = JointGuarantee(target, (), frozenset(), None, 0, 0, 0, (), {}, Reason.NOTHING_DRAWN, 0)
    return max(reversed(list(found)), key=lambda one: len(one.released), default=nothing)


def next_joint_sample(
    works: Iterable[Work], target: Target, how_many: int, seed: int, draws: Sequence[Draw] = ()
) -> Draw:
    """The submissions to mark next, as `next_sample` plans it for submissions with any level wrong."""
    listed = list(works)
    return next_sample(_items(listed, target, draws), target, how_many, seed, draws, _rule(listed))


def joint_gain(works: Iterable[Work], target: Target, more: int, draws: Sequence[Draw] = ()) -> Gain:
    """What so many more marked submissions would bring, in a further draw."""
    listed = list(works)
    return gain(_items(listed, target, draws), target, more, draws, _rule(listed))


def _rule(works: Iterable[Work]) -> Rule:
    """For as many criteria as there are."""
    return partial(joint_limits, criteria=len(_criteria(works)))


def _criteria(works: Iterable[Work]) -> list[str]:
    return list(dict.fromkeys(name for work in works for name in work.wrong))


@lru_cache(maxsize=8_192)
def joint_limits(unread: int, marks: int, counts: int, risk: Fraction, criteria: int) -> tuple[int, ...]:
    """As `limits`, for so many criteria at once: the value at k is for at most k found wrong in each.

    The first few counts are tested for all criteria in one, the others for each criterion by itself, by
    a part of the risk. Of the ways to divide the counts, the one with the lowest limits is taken.
    """
    if criteria <= 1:
        return limits(unread, marks, counts, risk)
    counts = min(counts, marks + 1)
    ways = [
        _limits(unread, marks, counts, risk, criteria, first) for first in range(1, min(counts, FIRST) + 1)
    ]
    return min(ways, key=sum)


def _limits(
    unread: int, marks: int, counts: int, risk: Fraction, criteria: int, first: int
) -> tuple[int, ...]:
    """The limits where the `first` counts are tested for all criteria in one.

    For one of these counts, k: let a part have at most k found wrong in each criterion, and in one of them
    more than the limit a wrong and unread. Then it has the first a + 1 wrong levels of the criterion that
    comes to so many first in the order, and at most k of them are in the sample. Which levels these are does
    not depend on the sample, so the chance is hypergeometric.

    For a larger k: a criterion with more than the limit unread has at most k read itself, so its own walk
    (as in `limits`) passed that limit, or that of the smallest of these counts while fewer were read.
    """
    samples = comb(unread, marks)
    walks: list[int] = []
    found: list[int] = []
    passed = 0
    for k in range(counts):
        before = found[-1] if found else 0
        most = risk * samples * (k + 1) / counts
        reach = partial(_samples_reaching, unread, marks, criteria, first, walks, k)
        limit = bisect_left(range(unread), True, lo=before, key=lambda one: passed + reach(one + 1) <= most)
        passed += reach(limit + 1)
        found.append(limit)
        if k == first:
            walks = [comb(limit + read, read) for read in range(counts)]
        elif k > first:
            walks = walk_on(walks, limit - before, k)
    return tuple(found)


def _samples_reaching(
    unread: int, marks: int, criteria: int, first: int, walks: Sequence[int], k: int, left: int
) -> int:
    """Samples with which some criterion, at worst, comes to so many left unread with at most k read."""
    if k < first:
        return _samples_with_few(unread, marks, k, left)
    if k == first:
        return criteria * _samples_with_few(unread, marks, k, left + k)
    return criteria * samples_reaching(unread, marks, walks[k], k, left)


def _samples_with_few(unread: int, marks: int, few: int, wrong: int) -> int:
    """Samples in which at most few of so many wrong levels are."""
    wrong = min(wrong, unread)
    return sum(comb(wrong, one) * comb(unread - wrong, marks - one) for one in range(min(few, marks) + 1))


def _items(works: Iterable[Work], target: Target, draws: Sequence[Draw]) -> list[Item]:
    """Submissions as items that are wrong with any wrong level; what is proven by now comes first."""
    listed = list(works)
    place = {key: at for at, key in enumerate(joint_guarantee(listed, target, draws).released)}
    drawn = {key for draw in draws for key in draw.candidates}
    names = _criteria(listed)
    last = float(len(names) + 1)
    items = []
    for one in listed:
        if one.here:
            # proven ones stay in their order before all others
            score = place[one.key] * 1e-9 / len(listed) if one.key in place else one.score + 1e-9
            items.append(Item(one.key, score, one.found, _chances(one, names)))
        elif one.key in drawn:
            # what is not released any more stands last, as if it were wrong
            items.append(Item(one.key, last, one.found is not False, _chances(one, names)))
    return items


def _chances(work: Work, names: Sequence[str]) -> tuple[float, ...]:
    return tuple(work.scores.get(name, 0.0) for name in names)


def _proven(works: Mapping[str, Work], target: Target, draw: Draw, tries: int) -> JointGuarantee:
    """What one draw proves by itself."""
    sample = [works[key] for key in draw.keys if key in works]
    names = list(dict.fromkeys(name for key in draw.candidates if key in works for name in works[key].wrong))
    whole = _longest(works, target, draw, names)
    part = [works[key] for key in draw.candidates[: whole.size] if key in works]
    read = draw.known | frozenset(draw.keys)
    released = [one for one in part if _released(one, read, names)]
    not_marked = tuple(one.key for one in sample if one.found is None and one.here)
    return JointGuarantee(
        target=target,
        released=tuple(one.key for one in released),
        unread=frozenset(one.key for one in released if one.found is None),
        threshold=max((one.score for one in released), default=None),
        at_most_wrong=whole.bound if released else 0,
        sample=len(sample),
        marked=sum(one.found is not None for one in sample),
        not_marked=not_marked,
        criteria={name: _alone(works, target, draw, name, sample) for name in names},
        reason=reason(draw, target, whole.size == len(draw.candidates), bool(not_marked)),
        tries=tries + 1,
    )


def _found(values: Collection[bool | None]) -> bool | None:
    return True if True in values else None if None in values else False


def _alone(
    works: Mapping[str, Work], target: Target, draw: Draw, name: str, sample: Sequence[Work]
) -> CriterionResult:
    given = [one.wrong.get(name) for one in sample]
    return CriterionResult(
        marked=sum(one is not None for one in given),
        found_wrong=sum(one is True for one in given),
        alone=_longest(works, target, draw, [name]).released,
    )


@dataclass(frozen=True)
class _Part:
    """A part from the front: its candidates, those of them that are released, the limit of wrong ones."""

    size: int = 0
    released: int = 0
    bound: int = 0


def _longest(works: Mapping[str, Work], target: Target, draw: Draw, names: Sequence[str]) -> _Part:
    """The longest part from the front whose limits allow it for each of these criteria."""
    sample = frozenset(draw.keys)
    read = draw.known | sample
    found = dict.fromkeys(names, 0)
    released, best = 0, _Part()
    for place, key in enumerate(draw.candidates, start=1):
        work = works.get(key)
        if key in sample:
            for name in names:
                # what is not marked, or was erased, counts as found wrong
                given = None if work is None else work.wrong.get(name, False)
                found[name] += given is not False
        released += work is not None and _released(work, read, names)
        most = max(found.values(), default=0)
        if most < len(draw.limits) and released and draw.limits[most] <= target.allowed(released):
            best = _Part(place, released, draw.limits[most])
    return best


def _released(work: Work, read: frozenset[str], names: Sequence[str]) -> bool:
    """Whether it is released with its part: nobody found it wrong, and it does not wait for its marks.

    What a person had read at the draw, or what could not be released then, was not among those that the
    sample was drawn from: without a mark nothing is known of it.
    """
    found = _found([work.wrong[name] for name in names if name in work.wrong])
    return work.here and found is not True and not (work.key in read and found is None)
