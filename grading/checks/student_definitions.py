"""Functions, methods and classes that the student defined, as the checks on them see them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from grading.checks.parsing.code_facts import Definition
from grading.checks.scope import Piece, Scope

KINDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "functions": frozenset({"function"}),
        "methods": frozenset({"method", "constructor"}),
        "classes": frozenset({"class", "interface"}),
        "all": frozenset({"function", "method", "constructor", "class", "interface"}),
    }
)
"""What rubrics ask for, as parsed code calls it."""
ROOTS = frozenset({"object", "Object", "ABC", "Protocol"})
"""Extending one of these makes no subclass of anything."""
_PART = re.compile(r"\w+$")
Owned = tuple[Piece, Definition]


def own_definitions(scope: Scope, kinds: frozenset[str]) -> list[Owned]:
    """Those whose head the student wrote."""
    return [(piece, one) for piece, one in written_in(scope, kinds) if one.first in piece.added]


def written_in(scope: Scope, kinds: frozenset[str]) -> list[Owned]:
    """Those that the student wrote any line of."""
    return [(piece, one) for piece in scope.code for one in piece.definitions if one.kind in kinds]


def descendants(scope: Scope, bases: Sequence[str]) -> frozenset[str]:
    """The names of all classes in a scope that extend one of these, also by another class of the scope."""
    below: dict[str, set[str]] = {}
    for piece in scope.pieces:
        for one in piece.facts.definitions if piece.cell.kind == "code" else ():
            for base in one.bases if one.kind in KINDS["classes"] else ():
                below.setdefault(base, set()).add(one.name)
                below.setdefault(last_part(base), set()).add(one.name)
    found, ahead = set[str](), list(bases)
    while ahead:
        new = below.get(ahead.pop(), set()) - found
        found |= new
        ahead += new
    return frozenset(found)


def last_part(name: str) -> str:
    """`Shape` of `shapes.Shape` and `geo::Shape`."""
    hit = _PART.search(name)
    return hit.group() if hit else name
