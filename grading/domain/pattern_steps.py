"""How many steps a search by a regular expression may take at its worst, from its parts and the text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from re import _constants as constants  # type: ignore[attr-defined]  # no public way to look into a pattern
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from grading.domain.patterns import MAX_TEXT

MOST_ROUNDS = 64
"""Of a repeat whose part may match in several ways: they multiply with each round, soon beyond any bound."""
_REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT)
_CLASSES = {
    constants.CATEGORY_SPACE: r"\s",
    constants.CATEGORY_NOT_SPACE: r"\S",
    constants.CATEGORY_DIGIT: r"\d",
    constants.CATEGORY_NOT_DIGIT: r"\D",
    constants.CATEGORY_WORD: r"\w",
    constants.CATEGORY_NOT_WORD: r"\W",
}


@dataclass(frozen=True)
class _Cost:
    """Of matching a part: the ends it may have, and the steps to try all of them."""

    ways: int = 1
    steps: int = 1


def search_steps(pattern: str, texts: Iterable[str]) -> int:
    """A search begins anywhere, and each repeat may end anywhere in a run of characters that it takes.

    The pattern is one that `patterns.compiled` accepts.
    """
    tree = parser.parse(pattern, re.MULTILINE)
    everywhere = bool(tree.state.flags & re.DOTALL)
    return sum(_Search(text[:MAX_TEXT], everywhere).steps(tree) for text in texts)


@dataclass(frozen=True)
class _Search:
    text: str
    everywhere: bool
    """Whether a dot takes the end of a line."""

    def steps(self, tree: Any) -> int:
        return (len(self.text) + 1) * self._row(tree).steps

    def _row(self, items: Any) -> _Cost:
        """Of one part after the other: each is tried for every end of those before."""
        ways = steps = 1
        for item, after in pairwise((*items, None)):
            cost = self._part(item, after)
            steps += ways * cost.steps
            ways *= cost.ways
        return _Cost(ways, steps)

    def _part(self, item: Any, after: Any) -> _Cost:
        op, value = item
        if op in _REPEATS:
            return self._repeat(op, value, after)
        if op is constants.BRANCH:
            return self._either(value[1])
        if op is constants.SUBPATTERN:
            return self._row(value[3])
        if op is constants.GROUPREF_EXISTS:
            return self._either(part for part in value[1:] if part is not None)
        if op is constants.ATOMIC_GROUP:  # only its first end counts
            return _Cost(steps=self._row(value).steps)
        if op in (constants.ASSERT, constants.ASSERT_NOT):
            return _Cost(steps=self._row(value[1]).steps)
        return _Cost()

    def _either(self, branches: Iterable[Any]) -> _Cost:
        costs = [self._row(one) for one in branches]
        return _Cost(sum(one.ways for one in costs), sum(one.steps for one in costs))

    def _repeat(self, op: Any, value: Any, after: Any) -> _Cost:
        least, most, inside = value
        single = _class_of(inside[0], self.everywhere) if len(inside) == 1 else None
        longest = len(self.text) if single is None else _longest_run(single, self.text)
        rounds = max(int(min(most, longest)) - least, 0) + 1
        one = self._row(inside)
        ways = rounds if single is not None else rounds * one.ways ** min(rounds, MOST_ROUNDS)
        steps = ways * one.steps
        if op is constants.POSSESSIVE_REPEAT or (single is not None and _ends_it(after, single)):
            return _Cost(steps=steps)
        return _Cost(ways, steps)


def _ends_it(after: Any, single: str) -> bool:
    """Whether what follows cannot be taken by the repeat: then it ends at one place only."""
    return (
        after is not None
        and after[0] is constants.LITERAL
        and re.fullmatch(single, chr(after[1]), re.IGNORECASE) is None
    )


@lru_cache(maxsize=1024)
def _longest_run(single: str, text: str) -> int:
    """The most characters of a class in a row."""
    return max(map(len, re.findall(f"(?i:{single})++", text)), default=0)


def _class_of(item: Any, everywhere: bool) -> str | None:
    """A part that matches one character, as a pattern; nothing for any other part."""
    op, value = item
    if op is constants.ANY:
        return r"[\s\S]" if everywhere else "."
    if op is constants.LITERAL:
        return re.escape(chr(value))
    if op is not constants.IN:
        return None
    inverted = value[0][0] is constants.NEGATE
    parts = [_member(one) for one in value[inverted:]]
    return None if None in parts else f"[{'^' * inverted}{''.join(filter(None, parts))}]"


def _member(item: Any) -> str | None:
    op, value = item
    if op is constants.LITERAL:
        return re.escape(chr(value))
    if op is constants.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    return _CLASSES.get(value) if op is constants.CATEGORY else None
