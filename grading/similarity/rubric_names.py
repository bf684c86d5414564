"""Names a criterion asks for, and names that a submission uses at the criterion's place; calls end with `()`.

A criterion asks for the names in its checks, and for calls that its words name: `left_join()`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grading.checks.kinds.code import Defines, Uses
from grading.checks.kinds.counts import Count
from grading.checks.scope import Piece, Scopes
from grading.domain.check import all_checks
from grading.domain.document import Document
from grading.domain.rubric import Criterion, Rubric
from grading.similarity.answers import place_of

MOST = 60
"""Names that are kept of a place."""
LONGEST = 60
"""Characters of a name that is kept."""
MOST_WORDS = 4_000
"""Characters of a text that are looked at."""
_CALL = re.compile(r"(?<![\w.:])([A-Za-z_][\w.]*(?:::[\w.]+)?)\(\)")


@dataclass(frozen=True)
class PlaceNames:
    """The names at a criterion's place in one submission."""

    used: frozenset[str] = frozenset()
    present: frozenset[str] = frozenset()
    """Of those asked for."""
    absent: frozenset[str] = frozenset()


@dataclass(frozen=True)
class AskedNames:
    """What a criterion asks for, each name with those that count as the same."""

    wanted: dict[str, frozenset[str]]
    usual: frozenset[str] = frozenset()
    """What the solution uses at the same place."""

    def at(self, pieces: Sequence[Piece]) -> PlaceNames:
        """The names at a place of a submission."""
        found = names_at(pieces)
        present = frozenset(name for name, same in self.wanted.items() if same & found)
        own = {f"{one.name}()" for piece in pieces for one in piece.definitions}
        known = frozenset().union(*self.wanted.values()) if self.wanted else frozenset()
        used = sorted(found - known - self.usual - own)[:MOST]
        return PlaceNames(frozenset(used), present, frozenset(self.wanted) - present)


def asked_names(criterion: Criterion, rubric: Rubric, solution: Sequence[Document]) -> AskedNames:
    """What a criterion asks for; the solution knows what it adds to the starter."""
    wanted: dict[str, frozenset[str]] = {}
    for names in (*_of_checks(criterion), *_of_words(criterion)):
        ending = "()" if names[0].endswith("()") else ""
        bare = [name.removesuffix("()") for name in names]
        same = [one for name in bare for one in (name, *rubric.equivalents.get(name, ()))]
        wanted.setdefault(names[0], frozenset(_plain(one) + ending for one in same))
    return AskedNames(wanted, names_at(place_of(criterion, rubric, Scopes(solution))))


def names_at(pieces: Sequence[Piece]) -> frozenset[str]:
    """Functions that the student's lines call, and names that they define."""
    found: set[str] = set()
    for piece in pieces:
        found |= {f"{one.name}()" for one in piece.facts.calls if piece.within(one)}
        found |= {one.name for one in piece.facts.defines + piece.facts.arguments if piece.within(one)}
    return frozenset(name for name in found if len(name) <= LONGEST)


def _of_checks(criterion: Criterion) -> Iterator[tuple[str, ...]]:
    """Names of which one is enough."""
    for check in all_checks(criterion.checks):
        ending = "" if isinstance(check, Defines) else "()"
        if isinstance(check, (Uses, Defines)):
            yield from ((name + ending,) for name in check.all_of)
            if check.any_of:
                yield tuple(name + ending for name in check.any_of)
        elif isinstance(check, Count) and check.names and check.at_least is not None:
            yield tuple(name + ending for name in check.names)


def _of_words(criterion: Criterion) -> Iterator[tuple[str, ...]]:
    for text in (criterion.title, criterion.description, *criterion.levels):
        yield from ((f"{name}()",) for name in _CALL.findall(text[:MOST_WORDS]))


def _plain(name: str) -> str:
    """A name without its package or module."""
    return name.rpartition("::")[2] if "::" in name else name.rpartition(".")[2] or name
