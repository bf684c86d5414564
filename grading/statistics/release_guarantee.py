"""Which levels of a class may be released unread: an exact guarantee from a random sample of marks.

A level is wrong when it is more than one level from the person's. The guarantee is about the levels released
together: the machine's that nobody read, and those a person read. Of these a wrong one is released as the
person marked it, or, in a release of whole submissions (`joint_guarantee`), left to a person. "At most 5 %
wrong" means: the wrong ones among the unread are at most 5 % of all released together.

The candidates are put in the order of their score, safest first, and a simple random sample of them is
marked. The result is the longest part from the front in which few enough of the sample are wrong. It holds
for all such parts at once: walk over the wrong levels in that order. Each is in the sample or not, and as
the sample is random, these labels are drawn from an urn without replacement, wherever the wrong levels are.
A part is released wrongly only where the walk passes a point (so many unread, so few read). The chance of
that is a sum of hypergeometric terms, worked out in whole numbers (`limits`): nothing is assumed of
scores or errors, and nothing is asymptotic. It is fixed-sequence testing along the score, as in Learn then
Test (Angelopoulos et al., arXiv 2110.01052), with the multiplicity of the thresholds worked out exactly.

A further draw is a further try. The first try may be wrong in 4/5 of the cases that the target allows, the
second in 4/5 of what is left, and so on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate
from math import comb, exp, inf, lgamma, log, prod
from random import Random

FIRST_TRY = Fraction(4, 5)
"""The part of the allowed risk that each try takes of what the tries before it left."""
SIZES = 20
"""So many sizes of the candidates are compared before a sample is drawn."""
COUNTS = (1, 2, 3, 4, 6, 9, 13)
"""For so many numbers of wrong ones found a limit is worked out; what is expected to prove most is taken."""

PLACES = 200
"""So many places, evenly spread, are compared as the end of what is released: for planning only."""
ROUNDING = 1e-6
"""Logarithms of chances that differ by less are compared in whole numbers."""
UNSEEN = 0.01
"""The chance of an error that no score sees: for planning only, as scores may promise too much."""


@dataclass(frozen=True)
class Item:
    """A judgement: the machine's level of one criterion of one submission."""

    key: str
    score: float
    """Predicted chance that the level is wrong, from 0 (safe) to 1: the order, not what is proven."""
    wrong: bool | None = None
    """Whether a person found it wrong; nothing where nobody marked it."""
    chances: tuple[float, ...] = ()
    """Where it has several criteria: predicted chance of a wrong level in each, for planning only."""


@dataclass(frozen=True)
class Target:
    """At most this share of the released levels is wrong, with this confidence."""

    share: float = 0.05
    confidence: float = 0.95

    def allowed(self, size: int) -> int:
        """How many of so many released levels may be wrong."""
        share = _exact(self.share)
        return size * share.numerator // share.denominator

    def risk(self, tries: int) -> Fraction:
        """How likely the try after so many others may be wrong."""
        return (1 - _exact(self.confidence)) * FIRST_TRY * (1 - FIRST_TRY) ** tries


@dataclass(frozen=True)
class Draw:
    """A random sample to mark. It is stored as it was drawn: later scores and marks do not change it."""

    candidates: tuple[str, ...]
    """What may be released by it, safest first; those marked before among them. None that come later."""
    known: frozenset[str]
    """Candidates that were marked before the draw, or could not be released then."""
    keys: tuple[str, ...]
    """The sample, in the order to mark it in: drawn at random from the candidates that nobody had marked."""
    limits: tuple[int, ...]
    """For each number found wrong in a part from the front: how many unread ones may be wrong in it."""


class Reason(StrEnum):
    """Why no more is released."""

    NOTHING_DRAWN = "nothing_drawn"
    TOO_FEW = "too_few"
    """The sample is too small to prove anything, whatever is found."""
    NOT_MARKED = "not_marked"
    """Levels of the sample that nobody marked yet count as wrong."""
    FOUND_WRONG = "found_wrong"
    """More of the sample is wrong than a larger part could have."""
    ALL_CANDIDATES = "all_candidates"
    """All candidates of the draw are released; a further draw may prove more."""


@dataclass(frozen=True)
class Guarantee:
    """What may be released, and what that rests on. Figures are those of the draw that proves most."""

    target: Target
    released: tuple[str, ...]
    """Keys, safest first: unread ones, and those a person marked."""
    unread: frozenset[str]
    """Those of `released` that nobody marked: the machine's level is what is released."""
    threshold: float | None
    """Highest score among `released`."""
    at_most_wrong: int
    """With the target's confidence no more of `unread` are wrong; 0 where nothing is released."""
    sample: int
    marked: int
    """Of the sample."""
    found_wrong: int
    """Of what is marked of the sample, everywhere among the candidates."""
    candidates: int
    not_marked: tuple[str, ...]
    """Keys of the sample that are to be marked, in order."""
    ended_by: str | None
    """Key of the level, wrong or not yet marked, at which the part that is released ends."""
    reason: Reason
    tries: int


@dataclass(frozen=True)
class Gain:
    """What a further draw would bring, as far as scores predict it."""

    marks: int
    """Levels to mark: `more`, or fewer where fewer are left."""
    expected: float
    """Mean number of levels that may be released unread then, those of now included."""
    most: int
    """As many, if none of the sample is wrong."""
    candidates: int
    """Of how many the sample would be drawn, marked ones included."""


@lru_cache(maxsize=8_192)
def limits(unread: int, marks: int, counts: int, risk: Fraction) -> tuple[int, ...]:
    """How many unread wrong ones are not ruled out when few are found: the value at k is for k found.

    Wherever the wrong ones are, the chance that for any k a part from the front has at most k wrong ones in
    the sample, and more than `limits(...)[k]` outside it, is at most `risk`. Each k takes an
    equal part of it.
    """
    counts = min(counts, marks + 1)
    samples = comb(unread, marks)
    # walks over the wrong ones to k read, and as many unread as the limit before, that passed no limit
    walks = [1] * counts
    found: list[int] = []
    passed = 0
    for k in range(counts):
        before = found[-1] if found else 0
        most = risk * samples * (k + 1) / counts
        reach = partial(samples_reaching, unread, marks, walks[k], k)
        limit = bisect_left(range(unread), True, lo=before, key=lambda one: passed + reach(one + 1) <= most)
        passed += reach(limit + 1)
        found.append(limit)
        walks = walk_on(walks, limit - before, k)
    return tuple(found)


def walk_on(walks: Sequence[int], steps: int, read: int) -> list[int]:
    """Walks to each number read, so many unread ones later; with so many read or fewer none may be added."""
    walks = list(walks)
    for _ in range(steps):
        for more in range(read + 1, len(walks)):
            walks[more] += walks[more - 1]
    return walks


def samples_reaching(unread: int, marks: int, walks: int, read: int, left: int) -> int:
    """Samples whose walk goes on from these walks to so many read and so many left unread.

    All levels may be wrong: with fewer wrong ones, fewer samples do.
    """
    rest = unread - left - read
    return walks * comb(rest, marks - read) if rest >= 0 else 0


Rule = Callable[[int, int, int, Fraction], tuple[int, ...]]
"""How limits are computed: `limits`, or others for the same arguments."""


def guarantee(items: Iterable[Item], target: Target, draws: Sequence[Draw] = ()) -> Guarantee:
    """What the draws prove with what is marked of them by now.

    `draws` are all that were made for these levels, in order, also those that proved nothing. Marks outside
    the draws are taken into account by the next draw. Scores are read for `threshold` only.
    """
    by_key = {item.key: item for item in items}
    found = [_proven(by_key, target, draw, tries) for tries, draw in enumerate(draws)]
    if not found:
        return Guarantee(target, (), frozenset(), None, 0, 0, 0, 0, 0, (), None, Reason.NOTHING_DRAWN, 0)
    # the last of equal ones, as it says what is to be marked now
    return max(reversed(found), key=lambda one: len(one.released))


def next_sample(
    items: Iterable[Item],
    target: Target,
    how_many: int,
    seed: int,
    draws: Sequence[Draw] = (),
    rule: Rule = limits,
) -> Draw:
    """The levels to mark next: a simple random sample of the candidates that is expected to prove most.

    What is proven by now comes first among the candidates, so that what is proven next includes it.
    `seed` should be unpredictable, and be stored with the draw.
    """
    ordered, proven = _ordered(items, target, draws)
    return draw_of(ordered, len(proven.released), target, how_many, seed, len(draws), rule)


def draw_of(
    ordered: Sequence[Item],
    least: int,
    target: Target,
    how_many: int,
    seed: int,
    tries: int,
    rule: Rule = limits,
    unit: int = 1,
) -> Draw:
    """A sample of items in this order, of the first `least` at least and of a multiple of `unit`."""
    plan = _plan(ordered, least, target, how_many, tries, rule, unit)
    candidates = tuple(item.key for item in ordered[: plan.size])
    known = frozenset(item.key for item in ordered[: plan.size] if item.wrong is not None)
    keys = Random(seed).sample([key for key in candidates if key not in known], plan.marks)
    return Draw(candidates, known, tuple(keys), plan.limits)


def gain(
    items: Iterable[Item], target: Target, more: int, draws: Sequence[Draw] = (), rule: Rule = limits
) -> Gain:
    """What so many more marks would bring, in a further draw."""
    ordered, proven = _ordered(items, target, draws)
    found = gain_of(ordered, len(proven.released), target, more, len(draws), rule)
    now = len(proven.unread)
    return replace(found, expected=max(found.expected, now), most=max(found.most, now))


def gain_of(
    ordered: Sequence[Item],
    least: int,
    target: Target,
    more: int,
    tries: int,
    rule: Rule = limits,
    unit: int = 1,
) -> Gain:
    """What a draw of so many by `draw_of` would bring by itself."""
    plan = _plan(ordered, least, target, more, tries, rule, unit)
    provable = plan.limits[0] <= target.allowed(plan.size)
    most = sum(item.wrong is None for item in ordered[: plan.size]) - plan.marks if provable else 0
    return Gain(plan.marks, plan.expected, most, plan.size)


@lru_cache(maxsize=1_024)
def fewest_marks(size: int, target: Target, tries: int = 0) -> int | None:
    """The smallest useful sample of a class of this size: without a wrong one it proves as many unread.

    After `tries` others, as each leaves less of the risk. Nothing where no sample does, as the class is too
    small for the target.
    """
    risk = target.risk(tries)
    most = log(risk) + ROUNDING
    further = int(1 / _exact(target.share)) + 1  # one more may be wrong; far larger parts need more marks
    for marks in range(1, size // 2 + 1):
        for part in range(2 * marks, min(size, 2 * marks + further) + 1):
            wrong = target.allowed(part) + 1
            if _log_none_found(part, marks, wrong) <= most and _none_found(part, marks, wrong) <= risk:
                return marks
    return None


def _log_none_found(size: int, marks: int, wrong: int) -> float:
    """The logarithm of `_none_found` up to rounding, which is faster than whole numbers."""
    if wrong > size - marks:
        return -inf
    terms = (size - wrong, -(size - wrong - marks), -size, size - marks)
    return sum(lgamma(abs(one) + 1) * (1 if one > 0 else -1) for one in terms if one)


def _none_found(size: int, marks: int, wrong: int) -> Fraction:
    """The chance that a sample has none of so many wrong ones."""
    return Fraction(comb(size - wrong, marks), comb(size, marks)) if wrong <= size else Fraction(0)


def _proven(items: Mapping[str, Item], target: Target, draw: Draw, tries: int) -> Guarantee:
    """What one draw proves by itself."""
    sample = frozenset(draw.keys)
    there: list[Item] = []
    size = found = missing = bound = 0
    ended_by: str | None = None
    for key in draw.candidates:
        item = items.get(key)
        # what is not marked yet counts as found wrong, and as released wrong; what is gone as found wrong
        blamed = key in sample and (item is None or item.wrong is not False)
        found += blamed
        missing += blamed and item is not None and item.wrong is None
        if item is not None:
            there.append(item)
        if found < len(draw.limits) and draw.limits[found] + missing <= target.allowed(len(there)):
            size, bound, ended_by = len(there), draw.limits[found] + missing, None
        elif blamed and ended_by is None:
            ended_by = key
    released = there[:size]
    marks = {key: items[key].wrong for key in draw.keys if key in items}
    not_marked = tuple(key for key, wrong in marks.items() if wrong is None)
    return Guarantee(
        target=target,
        released=tuple(item.key for item in released),
        unread=frozenset(item.key for item in released if item.wrong is None),
        threshold=max((item.score for item in released), default=None),
        at_most_wrong=bound,
        sample=len(draw.keys),
        marked=len(marks) - len(not_marked),
        found_wrong=sum(wrong is True for wrong in marks.values()),
        candidates=len(there),
        not_marked=not_marked,
        ended_by=ended_by,
        reason=reason(draw, target, size == len(there), bool(not_marked)),
        tries=tries + 1,
    )


def reason(draw: Draw, target: Target, everything: bool, waiting: bool) -> Reason:
    """Why a draw proves no more: everything is released, or not, and levels wait for their marks, or not."""
    if everything:
        return Reason.ALL_CANDIDATES
    if draw.limits[0] > target.allowed(len(draw.candidates)):
        return Reason.TOO_FEW
    return Reason.NOT_MARKED if waiting else Reason.FOUND_WRONG


def _ordered(items: Iterable[Item], target: Target, draws: Sequence[Draw]) -> tuple[list[Item], Guarantee]:
    """What is proven by now, then the others by score; equal scores by key, which says nothing of errors."""
    everything = list(items)
    proven = guarantee(everything, target, draws)
    place = {key: at for at, key in enumerate(proven.released)}
    last = len(place)
    ordered = sorted(everything, key=lambda item: (place.get(item.key, last), item.score, item.key))
    return ordered, proven


@dataclass(frozen=True)
class _Plan:
    """A draw before it is drawn."""

    size: int
    """Of the candidates."""
    marks: int
    limits: tuple[int, ...]
    expected: float


def _plan(
    ordered: Sequence[Item], least: int, target: Target, marks: int, tries: int, rule: Rule, unit: int
) -> _Plan:
    """The size of the candidates, `least` or more, and the limits that are expected to prove most."""
    unread = [0, *accumulate(int(item.wrong is None) for item in ordered)]
    wrong = [[0.0, *accumulate(column)] for column in zip(*map(_predicted, ordered), strict=True)]
    best: _Plan | None = None
    for step in range(SIZES, 0, -1):
        size = min(-(-len(ordered) // unit * step // SIZES) * unit, len(ordered))
        sample = min(marks, unread[size])
        if best is not None and (size < least or sample < min(marks, unread[-1])):
            break
        density = sample / unread[size] if sample else 0.0
        rises = list(_rises(wrong, size, density))
        for counts in COUNTS:
            found = rule(unread[size], sample, counts, target.risk(tries))
            if best is not None and found[0] > target.allowed(size):
                break
            expected = _expected(unread, size, density, rises, found, target)
            if best is None or expected > best.expected:
                best = _Plan(size, sample, found, expected)
    assert best is not None  # all of them are always compared
    return best


def _predicted(item: Item) -> tuple[float, ...]:
    """How likely the level of each criterion is unread and wrong."""
    chances = item.chances or (item.score,)
    if item.wrong is not None:
        return (0.0,) * len(chances)
    unseen = UNSEEN / len(chances)
    return tuple(unseen + (1 - unseen) * one for one in chances)


def _expected(
    unread: Sequence[int],
    size: int,
    density: float,
    rises: Iterable[Sequence[float]],
    limit: Sequence[int],
    target: Target,
) -> float:
    """Mean number released unread of so many candidates, if levels are wrong as predicted.

    `unread` is the sum up to each place, `density` the part of unread ones that is marked. From the end of
    the candidates to the front, for each number found wrong before: the mean of what is released beyond this
    place, and the chance that nothing is.
    """
    counts = len(limit)
    mean, nothing = [0.0] * (counts + 1), [1.0] * (counts + 1)
    for place, rise in zip(_places(size), rises, strict=False):
        allowed = target.allowed(place)
        for k in range(counts):
            if limit[k] > allowed:
                break
            mean[k] += (1 - density) * unread[place] * nothing[k]
            nothing[k] = 0.0
        for k in range(counts):
            mean[k] += rise[k] * (mean[k + 1] - mean[k])
            nothing[k] += rise[k] * (nothing[k + 1] - nothing[k])
    return mean[0]


def _places(size: int) -> range:
    """From the end of the candidates to the front."""
    return range(size, 0, min(-1, -size // PLACES))


def _rises(wrong: Sequence[Sequence[float]], size: int, density: float) -> Iterator[list[float]]:
    """For each of `_places`: the chances that k found wrong become k + 1 from the next one to it."""
    places = _places(size)
    for place in places:
        nearer = max(0, place + places.step)
        more = [density * (one[place] - one[nearer]) for one in wrong]
        yield _found_more([density * one[place] for one in wrong], more)


def _found_more(means: Sequence[float], more: Sequence[float]) -> list[float]:
    """The chance that k found wrong become k + 1, for each k, in the criterion with most of them.

    `means` are found wrong in each criterion on average, `more` of them since the last place. The number of
    each criterion has a Poisson distribution, independent of the others.
    """
    if len(means) == 1:
        return [min(1.0, more[0])] * max(COUNTS)
    terms = [exp(-one) for one in means]
    sums = list(terms)
    before, chances = 0.0, []
    for k in range(1, max(COUNTS) + 1):
        all_at_most = prod(sums)
        here = all_at_most - before
        rise = sum([new * term / below for new, term, below in zip(more, terms, sums, strict=True)])
        chances.append(min(1.0, rise * all_at_most / here) if here > 0 else 1.0)
        before = all_at_most
        terms = [term * one / k for term, one in zip(terms, means, strict=True)]
        sums = [below + term for below, term in zip(sums, terms, strict=True)]
    return chances


@lru_cache(maxsize=64)
def _exact(share: float) -> Fraction:
    """0.05 as it is written: 1/20."""
    return Fraction(str(share))
