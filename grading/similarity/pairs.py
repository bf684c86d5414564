"""Pairs of submissions that share more code than their class does.

What more than `COMMON` of a class have is an idiom, or came with the task, and is left out; so is what the
starter brings, which gives no fingerprints. A submission that has fewer than `FEWEST` fingerprints left says
nothing: it is in no pair, and is named. Two submissions are a pair where they share at least `FEWEST` of the
rest, and `SIMILAR` of the smaller one's. A pair is a reason to look, not a finding, and takes no points.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

COMMON = 0.1
"""Share of a class."""
COMMON_WORKS = 4
"""Submissions that may share something in a class of any size before it counts as common."""
FEWEST = 6
SIMILAR = 0.6
MOST_PAIRS = 500


@dataclass(frozen=True, slots=True)
class Work:
    """A submission with its fingerprints; `owners` are its students, `assignment` is its class."""

    id: str
    assignment: int
    owners: frozenset[int]
    marks: frozenset[int]


@dataclass(frozen=True, slots=True)
class SimilarPair:
    """Two submissions and what they share; `share` is of the fingerprints of the smaller one that count."""

    one: str
    other: str
    share: float
    marks: frozenset[int]


@dataclass(frozen=True)
class Comparison:
    """What was found in a class."""

    pairs: tuple[SimilarPair, ...]
    """The most similar first."""
    silent: tuple[str, ...]
    """Submissions of the class that are too short, or too much like most others, to be compared."""


def compared(works: Sequence[Work], earlier: Sequence[Work] = ()) -> Comparison:
    """Compares the submissions of a class with each other and with earlier ones."""
    everybody = (*works, *earlier)
    common = _common(everybody)
    left = {work.id: work.marks - common for work in everybody}
    telling = [work for work in everybody if len(left[work.id]) >= FEWEST]
    own = {work.id for work in works}
    pairs = [
        pair
        for one, other in _candidates(telling, left)
        if (one.id in own or other.id in own) and not one.owners & other.owners
        if (pair := _pair(one, other, left)) is not None
    ]
    pairs.sort(key=lambda pair: (-pair.share, -len(pair.marks), pair.one, pair.other))
    silent = tuple(work.id for work in works if len(left[work.id]) < FEWEST)
    return Comparison(tuple(pairs[:MOST_PAIRS]), silent)


def _common(works: Iterable[Work]) -> frozenset[int]:
    """What more than a share of any of the classes have."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    sizes: Counter[int] = Counter()
    for work in works:
        counts[work.assignment].update(work.marks)
        sizes[work.assignment] += 1
    return frozenset(
        mark
        for assignment, found in counts.items()
        for mark, count in found.items()
        if count > max(COMMON * sizes[assignment], COMMON_WORKS)
    )


def _candidates(works: Sequence[Work], left: Mapping[str, frozenset[int]]) -> Iterator[tuple[Work, Work]]:
    """Pairs that may share enough: of the smaller one's rarest fingerprints the other one has some."""
    having: dict[int, list[int]] = defaultdict(list)
    for number, work in enumerate(works):
        for mark in left[work.id]:
            having[mark].append(number)
    seen: set[tuple[int, int]] = set()
    for number, work in enumerate(works):
        rare = sorted(left[work.id], key=lambda mark: (len(having[mark]), mark))
        for mark in rare[: len(rare) - ceil(SIMILAR * len(rare)) + 1]:
            seen.update((min(number, one), max(number, one)) for one in having[mark] if one != number)
    yield from ((works[one], works[other]) for one, other in sorted(seen))


def _pair(one: Work, other: Work, left: Mapping[str, frozenset[int]]) -> SimilarPair | None:
    mine, theirs = left[one.id], left[other.id]
    shared = mine & theirs
    share = len(shared) / min(len(mine), len(theirs))
    if len(shared) < FEWEST or share < SIMILAR:
        return None
    return SimilarPair(one.id, other.id, round(share, 4), shared)


def clusters(pairs: Iterable[SimilarPair]) -> tuple[tuple[str, ...], ...]:
    """Submissions that pairs lead from one to the next, larger clusters first."""
    leader: dict[str, str] = {}

    def find(one: str) -> str:
        while leader.setdefault(one, one) != one:
            leader[one] = one = leader[leader[one]]
        return one

    for pair in pairs:
        first, second = sorted((find(pair.one), find(pair.other)))
        leader[second] = first
    members: dict[str, list[str]] = defaultdict(list)
    for one in leader:
        members[find(one)].append(one)
    return tuple(sorted((tuple(sorted(found)) for found in members.values()), key=lambda c: (-len(c), c)))
