"""What may be released unread of submissions with several criteria, by random samples of single levels.

The guarantee is for the levels of all criteria together: at most so many of the released levels are wrong,
whichever criteria they are of. `grading.statistics.joint_guarantee` says it of each criterion.

The sample is drawn from the levels of all criteria, and each is marked by itself. Levels stand in the order
of their submissions, safest first, so the limits of `grading.statistics.release_guarantee` hold for each part
from the front: nothing of its proof depends on what a level belongs to. Of these parts, those that end with a
whole submission are compared, and the longest that the limits allow is released.

A submission with a level that was found wrong is not released, so its levels are not counted among those that
are: the limit must be allowed for fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from grading.statistics.joint_guarantee import JointGuarantee, Work, most_proven
from grading.statistics.release_guarantee import Draw, Gain, Item, Target, draw_of, gain_of, reason


def level_key(submission: str, criterion: str) -> str:
    """The key of a level in draws of single levels."""
    return f"{submission}/{criterion}"


def level_of(key: str) -> tuple[str, str]:
    """The submission and the criterion of a key."""
    submission, _, criterion = key.partition("/")
    return submission, criterion


def pooled_guarantee(works: Iterable[Work], target: Target, draws: Sequence[Draw]) -> JointGuarantee:
    """What the draws prove with what is marked of them by now; the keys of `draws` are those of levels.

    `sample` and `marked` of the result count levels; `at_most_wrong` is of all criteria together.
    """
    by_key = {work.key: work for work in works}
    return most_proven((_proven(by_key, target, draw, tries) for tries, draw in enumerate(draws)), target)


def next_level_sample(
    works: Iterable[Work], target: Target, how_many: int, seed: int, draws: Sequence[Draw] = ()
) -> Draw:
    """The levels to mark next: a simple random sample that is expected to prove most."""
    plan = _ordered(works, target, draws)
    return draw_of(plan.items, plan.least, target, how_many, seed, len(draws), unit=plan.unit)


def pooled_gain(works: Iterable[Work], target: Target, more: int, draws: Sequence[Draw] = ()) -> Gain:
    """What so many more marked levels would bring: how many submissions may be released then."""
    plan = _ordered(works, target, draws)
    found = gain_of(plan.items, plan.least, target, more, len(draws), unit=plan.unit)
    now = plan.least // plan.unit
    # marked levels are released with the others in proportion, as the sample is random
    share = found.candidates / found.most / plan.unit if found.most else 0.0
    most = found.candidates // plan.unit if found.most else 0
    return replace(found, expected=max(found.expected * share, now), most=max(most, now))


@dataclass(frozen=True)
class _Order:
    """Levels, the safest submissions first."""

    items: Sequence[Item]
    least: int
    """How many levels of these are proven by now."""
    unit: int
    """Levels of a submission."""


def _ordered(works: Iterable[Work], target: Target, draws: Sequence[Draw]) -> _Order:
    """What is proven by now, then the others by score; last what is not released any more."""
    listed = list(works)
    proven = {key: at for at, key in enumerate(pooled_guarantee(listed, target, draws).released)}
    drawn = {level_of(key)[0] for draw in draws for key in draw.candidates}
    last = len(proven)
    there = sorted(
        (one for one in listed if one.here or one.key in drawn),
        key=lambda one: (not _may_be_released(one), proven.get(one.key, last), one.score, one.key),
    )
    items = [item for one in there for item in _items(one)]
    unit = max((len(one.wrong) for one in there), default=1)
    return _Order(items, sum(len(one.wrong) for one in there if one.key in proven), unit)


def _may_be_released(work: Work) -> bool:
    return work.here and work.found is not True


def _items(work: Work) -> Iterator[Item]:
    for name, wrong in work.wrong.items():
        # of what is not released any more nothing is drawn: it is as if it were wrong
        known = wrong if _may_be_released(work) else wrong is not False
        yield Item(level_key(work.key, name), work.scores.get(name, 0.0), known)


@dataclass(frozen=True)
class _Group:
    """The candidates of a submission."""

    work: Work | None
    """Nothing where it was deleted."""
    names: frozenset[str]
    """Criteria whose levels are candidates."""
    read: frozenset[str]
    """Of them those that are in the sample, or could not be drawn as they were read before."""
    found: int
    """Levels of the sample that count as found wrong: those not marked yet, and deleted ones, as well."""

    @property
    def released(self) -> bool:
        """Whether it is released with its part: nobody found a level wrong, and it waits for no mark."""
        work = self.work
        if work is None or not work.here or True in work.wrong.values() or work.wrong.keys() - self.names:
            return False
        return all(work.wrong[name] is False for name in self.read & work.wrong.keys())


def _groups(works: Mapping[str, Work], draw: Draw) -> list[_Group]:
    """The candidates by submission, in their order."""
    sample = frozenset(draw.keys)
    groups = []
    for submission, keys in groupby(draw.candidates, key=lambda one: level_of(one)[0]):
        listed, work = list(keys), works.get(submission)
        drawn = [level_of(key)[1] for key in listed if key in sample]
        groups.append(
            _Group(
                work=work,
                names=frozenset(level_of(key)[1] for key in listed),
                read=frozenset(level_of(key)[1] for key in listed if key in sample or key in draw.known),
                # what is no criterion of it any more was graded by people
                found=sum(work is None or work.wrong.get(name, False) is not False for name in drawn),
            )
        )
    return groups


def _longest(groups: Sequence[_Group], target: Target, draw: Draw) -> tuple[int, int]:
    """How many submissions the longest part from the front has that the limits allow, and its limit."""
    found = levels = 0
    best = (0, 0)
    for place, group in enumerate(groups, start=1):
        found += group.found
        if group.released and group.work is not None:
            levels += len(group.work.wrong)
        if found < len(draw.limits) and levels and draw.limits[found] <= target.allowed(levels):
            best = (place, draw.limits[found])
    return best


def _proven(works: Mapping[str, Work], target: Target, draw: Draw, tries: int) -> JointGuarantee:
    """What one draw proves by itself."""
    groups = _groups(works, draw)
    size, bound = _longest(groups, target, draw)
    released = [one.work for one in groups[:size] if one.work is not None and one.released]
    given = [
        (key, work.wrong[name])
        for key, (submission, name) in zip(draw.keys, map(level_of, draw.keys), strict=True)
        if (work := works.get(submission)) is not None and name in work.wrong
    ]
    waiting = [key for key, wrong in given if wrong is None]
    not_marked = tuple(key for key in waiting if works[level_of(key)[0]].here)
    return JointGuarantee(
        target=target,
        released=tuple(one.key for one in released),
        unread=frozenset(one.key for one in released if one.found is None),
        threshold=max((one.score for one in released), default=None),
        at_most_wrong=bound if released else 0,
        sample=len(draw.keys),
        marked=len(given) - len(waiting),
        not_marked=not_marked,
        criteria={},
        reason=reason(draw, target, size == len(groups), bool(not_marked)),
        tries=tries + 1,
    )
