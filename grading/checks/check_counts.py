"""Checks that count: calls, operators, loops and definitions on the student's lines."""

from __future__ import annotations

from collections.abc import Sequence

from grading.checks.check_code import fits, named
from grading.checks.context import Context, Finding, counted, listed
from grading.checks.definitions import KINDS, ROOTS, descendants, last_part, own_definitions
from grading.checks.scope import Piece, Scope
from grading.domain.rubric import Count

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


def count(check: Count, context: Context, scope: Scope) -> Finding:
    """Share of the asked number of calls, operators or definitions; too many earn nothing."""
    if not scope.code:
        return Finding(0.0, "no code was added here")
    found = _found(check, context, scope)
    what = counted(len(found), *_called(check))
    place = found[0][0].at(found[0][1]) if found else scope.code[0].at()
    if check.at_most is not None and len(found) > check.at_most:
        return Finding(0.0, f"{what}; at most {check.at_most} {_are(check.at_most)} allowed", place)
    if check.at_least is None or len(found) >= check.at_least:
        return Finding(1.0, what, place)
    message = f"{what}; at least {check.at_least} {_are(check.at_least)} asked for"
    return Finding(len(found) / check.at_least, message, place)


def asked(check: Count) -> str:
    """What a count without a label is called: `at least 10 uses of %>%`."""
    bounds = (("at least", check.at_least), ("at most", check.at_most))
    said = " and ".join(f"{word} {number}" for word, number in bounds if number is not None)
    one, many = _called(check)
    last = check.at_most if check.at_most is not None else check.at_least
    return f"{said} {one if last == 1 else many}"


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
