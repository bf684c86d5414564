"""Findings that say the same, put together by a plain rule.

A finding's title is taken as a set of words: in lower case, without small words, endings and numbers. Two
findings go together when at least `SAME` of their words are the same, or `SAME_PLACE` where both are about
the same cell. The wording that most submissions have leads; each other one joins the first leader it fits, so
that the order in which findings come changes nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SAME = 0.6
"""Part of all words of two findings that both have."""
SAME_PLACE = 0.4
"""The same where they are about the same place."""
MOST_WORDS = 30
_WORD = re.compile(r"[^\W\d_]{2,40}")
_SMALL = frozenset(
    "the and are was were has have had been being for from with without that this these those there their "
    "your you its his her our not any all can could should would may might more most very too also but than "
    "then when where which what who how why into onto out over under about some such only just each every "
    "is it in of on or an to as at be by do does did if no so we use uses used using".split()
)
_KEPT = frozenset({"no", "not", "without"})
"""Small words that turn a sentence round."""
_ENDINGS = ("ings", "ing", "ied", "ies", "ed", "es", "s")
_LEAST_STEM = 3


@dataclass(frozen=True)
class Remark:
    """A finding of a submission; `kind` keeps praise apart from faults, `place` is where it stands."""

    work: str
    kind: str
    title: str
    place: str = ""


@dataclass(frozen=True)
class Group:
    """Findings that say the same; a submission is counted once."""

    kind: str
    title: str
    """The wording most submissions have."""
    wordings: tuple[str, ...]
    """All wordings, the most frequent one first."""
    works: tuple[str, ...]
    places: tuple[str, ...]
    """Where it was found, the most frequent place first."""

    @property
    def count(self) -> int:
        """In so many submissions."""
        return len(self.works)


def words_of(title: str) -> frozenset[str]:
    """The words that count of a title."""
    plain = unicodedata.normalize("NFKC", title).casefold()
    found = (word for word in _WORD.findall(plain) if word not in _SMALL or word in _KEPT)
    return frozenset([_stem(word) for word in found][:MOST_WORDS])


def _stem(word: str) -> str:
    """Without one ending, and without the letter that stood twice before it: plotting, plots, plotted."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST_STEM:
            word = word[: -len(ending)]
            break
    if len(word) > _LEAST_STEM and word[-1] == word[-2]:
        word = word[:-1]
    return word.removesuffix("e") if len(word) > _LEAST_STEM else word


def grouped(remarks: Iterable[Remark]) -> tuple[Group, ...]:
    """Groups of remarks, those found in most submissions first."""
    made: list[Group] = []
    by_kind: dict[str, list[Remark]] = defaultdict(list)
    for remark in remarks:
        by_kind[remark.kind].append(remark)
    for of in by_kind.values():
        made += [_group(members) for members in _clusters(of)]
    return tuple(sorted(made, key=lambda group: (-group.count, group.kind, group.title)))


def _clusters(remarks: Sequence[Remark]) -> list[list[Remark]]:
    """Remarks of one kind, cluster by cluster."""
    wordings: dict[tuple[frozenset[str], str], list[Remark]] = defaultdict(list)
    for remark in remarks:
        words = words_of(remark.title)
        # what has no word in it stands for itself
        wordings[words, "" if words else remark.title.strip()].append(remark)
    ordered = sorted(wordings, key=lambda key: (-_works(wordings[key]), sorted(key[0]), key[1]))
    leaders: list[tuple[frozenset[str], set[str], list[Remark]]] = []
    by_word: dict[str, list[int]] = defaultdict(list)
    for key in ordered:
        members = wordings[key]
        places = {one.place for one in members if one.place}
        near = sorted({index for word in key[0] for index in by_word[word]})
        fits = (index for index in near if _alike(key[0], places, leaders[index][0], leaders[index][1]))
        if (index := next(fits, None)) is not None:
            leaders[index][2].extend(members)
            continue
        for word in key[0]:
            by_word[word].append(len(leaders))
        leaders.append((key[0], places, list(members)))
    return [members for _, _, members in leaders]


def _works(members: Sequence[Remark]) -> int:
    return len({one.work for one in members})


def _alike(one: frozenset[str], at: set[str], other: frozenset[str], there: set[str]) -> bool:
    share = len(one & other) / len(one | other)
    return share >= SAME or (share >= SAME_PLACE and bool(at & there))


def _group(members: Sequence[Remark]) -> Group:
    by_title: dict[str, set[str]] = defaultdict(set)
    for one in members:
        by_title[one.title.strip()].add(one.work)
    titles = sorted(by_title, key=lambda title: (-len(by_title[title]), title))
    places = Counter(place for _, place in {(one.work, one.place) for one in members} if place)
    return Group(
        kind=members[0].kind,
        title=titles[0],
        wordings=tuple(titles),
        works=tuple(sorted({one.work for one in members})),
        places=tuple(sorted(places, key=lambda place: (-places[place], place))),
    )
