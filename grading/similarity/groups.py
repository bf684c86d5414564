"""Groups of answers to one criterion: equal ones together, and groups that are proposed as similar.

A group has the submissions whose answers have one key. The groups with most submissions lead; each smaller
one is proposed to the first leader with which it shares at least `NEAR` of its fingerprints, so that the
order in which submissions come changes nothing. People decide: nothing is put together by similarity alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import ceil
from operator import or_

from grading.similarity.outcomes import NOTHING_RUN, Outcome

NEAR = 0.6
"""Share of the fingerprints of two answers from which on they are proposed as similar."""
FEWEST = 4
"""Fingerprints of an answer below which it is too short to be similar to another."""
ALONE = "alone:"
"""Begins the key of a submission that was taken out of its group."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of a submission, with its outcome."""

    work: str
    key: str
    fingerprints: frozenset[int] = frozenset()
    outcome: Outcome = NOTHING_RUN
    graded: bool = False
    """A person gave it a level."""
    alone: bool = False
    """It was taken out of its group."""


@dataclass(frozen=True)
class AnswerGroup:
    """Submissions with equal answers."""

    key: str
    """Empty: nothing was written."""
    works: tuple[str, ...]
    outcomes: tuple[tuple[Outcome, int], ...]
    """How many submissions have each outcome, the most frequent first."""
    open: int
    """Submissions that no person has graded."""
    near: str = ""
    """Key of a larger group that it is similar to; empty for none."""
    similarity: float = 0.0
    """To that group, from 0 to 1."""

    @property
    def size(self) -> int:
        """How many submissions."""
        return len(self.works)

    @property
    def mixed(self) -> bool:
        """Whether the checks find some of them right and some wrong."""
        return len({outcome.right for outcome, _ in self.outcomes} - {None}) > 1


def grouped(answers: Iterable[Answered]) -> tuple[AnswerGroup, ...]:
    """The groups, each leader followed by those that are similar to it; larger leaders first."""
    by_key: dict[str, list[Answered]] = defaultdict(list)
    for one in answers:
        by_key[f"{ALONE}{one.work}" if one.alone else one.key].append(one)
    groups = sorted(map(_group, by_key, by_key.values()), key=lambda group: (-group.size, group.key))
    marks = {key: members[0].fingerprints for key, members in by_key.items() if not members[0].alone}
    near = dict(_proposed([group.key for group in groups if group.key in marks], marks))
    return _in_order(groups, near)


def next_open(groups: Sequence[AnswerGroup], after: str | None = None) -> AnswerGroup | None:
    """The first group with a submission that no person has graded, from the one after this and round."""
    at = next((n + 1 for n, group in enumerate(groups) if group.key == after), 0)
    return next((group for group in (*groups[at:], *groups[:at]) if group.open and group.key != after), None)


def _group(key: str, members: Sequence[Answered]) -> AnswerGroup:
    counts = Counter(one.outcome for one in members)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], -(pair[0].share or 0.0), pair[0].output))
    return AnswerGroup(
        key=key,
        works=tuple(sorted(one.work for one in members)),
        outcomes=tuple(ordered),
        open=sum(not one.graded for one in members),
    )


def _proposed(
    keys: Sequence[str], marks: Mapping[str, frozenset[int]]
) -> Iterator[tuple[str, tuple[str, float]]]:
    """Group -> the leader it is similar to, and how much.

    Two sets that share so much have one of the rarest elements of either in common, so only leaders with such
    an element are compared. Sets are compared as numbers with a bit for each element, which is far faster.
    """
    count = Counter(mark for key in keys for mark in marks[key])
    # what only one group has it shares with none; the rarest have the highest places
    places = {mark: n for n, (mark, often) in enumerate(count.most_common()) if often > 1}
    leaders: list[tuple[str, int, int]] = []
    having: dict[int, int] = defaultdict(int)  # place -> bits of the leaders that have it among their rarest
    for key in keys:
        size = len(marks[key])
        if size < FEWEST:
            continue
        own = sorted((places[mark] for mark in marks[key] if mark in places), reverse=True)
        rare = own[: max(0, len(own) - ceil(NEAR * size) + 1)]
        bits = _as_bits(own, len(places))
        for n in _places_in(reduce(or_, (having[place] for place in rare), 0)):
            leader, theirs, other = leaders[n]
            shared = (bits & theirs).bit_count()
            share = shared / (size + other - shared)
            if share >= NEAR:
                yield key, (leader, share)
                break
        else:
            for place in rare:
                having[place] |= 1 << len(leaders)
            leaders.append((key, bits, size))


def _as_bits(places: Iterable[int], most: int) -> int:
    """A number with these bits, all of them below `most`."""
    content = bytearray(most // 8 + 1)
    for place in places:
        content[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(content, "little")


def _places_in(bits: int) -> list[int]:
    """The places of the bits of a number, the lowest first."""
    return [place for place, bit in enumerate(reversed(f"{bits:b}")) if bit == "1"]


def _in_order(
    groups: Sequence[AnswerGroup], near: Mapping[str, tuple[str, float]]
) -> tuple[AnswerGroup, ...]:
    following: dict[str, list[AnswerGroup]] = defaultdict(list)
    for group in groups:
        if group.key in near:
            leader, share = near[group.key]
            following[leader].append(replace(group, near=leader, similarity=share))
    return tuple(
        one
        for group in groups
        if group.key not in near
        for one in (group, *sorted(following[group.key], key=lambda g: (-g.similarity, -g.size, g.key)))
    )
