"""The kind of check that counts calls, operators, loops and definitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from grading.checks.context import Context, Finding, counted, listed
from grading.checks.definitions import KINDS, ROOTS, descendants, last_part, own_definitions
from grading.checks.kind import CheckKind
from grading.checks.kinds.code import fits, named
from grading.checks.scope import Piece, Scope

Counted = Literal["functions", "methods", "classes", "subclasses", "loops", "conditions"]
KEYWORDS = {
    "loops": ("for", "while", "do", "repeat"),
    "conditions": ("if", "switch"),
}
"""What counts as one, as parsed code calls it."""
SINGULAR = {
    "loops": "loop",
    "conditions": "condition",
    "functions": "function",
    "methods": "method",
    "classes": "class",
    "subclasses": "subclass",
}
Found = tuple[Piece, int]
"""A piece and the line in it where one stands."""


class Count(CheckKind):
    """So many calls, operators, loops or definitions stand on the student's lines.

    Share = found / `at_least`, at most 1; with more than `at_most` it is 0. `names` are counted together.
    """

    kind: Literal["count"] = "count"
    names: tuple[str, ...] = ()
    of: Counted | None = None
    base: str | None = None
    """Only subclasses of this class, also of its subclasses."""
    at_least: int | None = Field(default=None, ge=1)
    at_most: int | None = Field(default=None, ge=0)

    needed_keys: ClassVar[tuple[str, ...]] = ("names", "of")
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the asked number of calls, operators or definitions; too many earn nothing."""
        if not scope.code:
            return Finding(0.0, "no code was added here")
        found = _found(self, context, scope)
        what = counted(len(found), *_called(self))
        place = found[0][0].at(found[0][1]) if found else scope.code[0].at()
        if self.at_most is not None and len(found) > self.at_most:
            return Finding(0.0, f"{what}; at most {self.at_most} {_are(self.at_most)} allowed", place)
        if self.at_least is None or len(found) >= self.at_least:
            return Finding(1.0, what, place)
        message = f"{what}; at least {self.at_least} {_are(self.at_least)} asked for"
        return Finding(len(found) / self.at_least, message, place)

    def default_label(self) -> str:
        """What a count without a label is called: `at least 10 uses of %>%`."""
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        said = " and ".join(f"{word} {number}" for word, number in bounds if number is not None)
        one, many = _called(self)
        last = self.at_most if self.at_most is not None else self.at_least
        return f"{said} {one if last == 1 else many}"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Keys with which a count cannot be met or missed, and why."""
        least, most = self.at_least, self.at_most
        if self.names and self.of is not None:
            yield "of", "cannot be given together with names"
        if self.base is not None and self.of != "subclasses":
            yield "base", "can only be given where subclasses are counted"
        if least is None and most is None:
            yield "at_least", "is missing; give it, at_most or both"
        if least is not None and most is not None and most < least:
            yield "at_most", "is less than at_least"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _called(check: Count) -> tuple[str, str]:
    """What is counted, of one and of several."""
    if check.of is not None:
        of = f" of {check.base}" if check.base else ""
        return SINGULAR[check.of] + of, check.of + of
    names = listed(check.names, 4)
    return f"use of {names}", f"uses of {names}"


def _found(check: Count, context: Context, scope: Scope) -> list[Found]:
    """Where they stand, in the order of the work."""
    if check.of in KEYWORDS:
        found = _calls(KEYWORDS[check.of], scope)
    elif check.of is not None:
        found = _definitions(check, context, scope)
    else:
        found = _calls([name for one in check.names for name in context.accepted(one)], scope)
    return sorted(found, key=lambda hit: (hit[0].cell.number, hit[1]))


def _calls(names: Sequence[str], scope: Scope) -> list[Found]:
    hits: dict[tuple[int, int], Found] = {}  # each call once, also where two of the names fit it
    for number, piece in enumerate(scope.code):
        for name in names:
            for call in named(piece.facts.called, name):
                # a starter's call around the student's lines is not the student's
                if fits(call, name, piece.facts.language) and call.first in piece.added:
                    hits.setdefault((number, id(call)), (piece, call.first))
    return list(hits.values())


def _definitions(check: Count, context: Context, scope: Scope) -> list[Found]:
    mine = own_definitions(scope, KINDS["classes" if check.of == "subclasses" else str(check.of)])
    if check.of != "subclasses":
        return [(piece, one.first) for piece, one in mine]
    bases = context.accepted(check.base) if check.base else ()
    below = descendants(scope, bases)
    return [
        (piece, one.first)
        for piece, one in mine
        if (one.name in below if bases else any(last_part(base) not in ROOTS for base in one.bases))
    ]
