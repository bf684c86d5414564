"""Checks that count: calls, operators, loops and definitions on the student's lines."""

from __future__ import annotations

from collections.abc import Sequence

from grading.evidence.check_code import fits, named
from grading.evidence.context import Context, Finding, counted, listed
from grading.evidence.facts import Mention
from grading.evidence.scope import Piece, Scope
from grading.rubric import Count

KEYWORDS = {
    "loops": ("for", "while", "do", "repeat"),
    "conditions": ("if", "switch"),
}
"""What counts as one, as parsed code calls it."""
SINGULAR = {"loops": "loop", "conditions": "condition"}
Found = tuple[Piece, Mention]


def count(check: Count, context: Context, scope: Scope) -> Finding:
    """Share of the asked number of calls, operators or definitions; too many earn nothing."""
    if not scope.code:
        return Finding(0.0, "no code was added here")
    found = _found(check, context, scope)
    what = counted(len(found), *_called(check))
    place = found[0][0].at(found[0][1].first) if found else scope.code[0].at()
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
        return SINGULAR[check.of], check.of
    names = listed(check.names, 4)
    return f"use of {names}", f"uses of {names}"


def _found(check: Count, context: Context, scope: Scope) -> list[Found]:
    wanted: Sequence[str] = KEYWORDS.get(check.of or "", ())
    if not wanted:
        wanted = tuple(name for asked in check.names for name in context.accepted(asked))
    # each once, also where two of the names fit it
    hits: dict[int, Found] = {}
    for piece in scope.code:
        for name in wanted:
            for call in named(piece.facts.called, name):
                # a starter's call around the student's lines is not the student's
                if fits(call, name, piece.facts.language) and call.first in piece.added:
                    hits.setdefault(id(call), (piece, call))
    return sorted(hits.values(), key=lambda hit: (hit[0].cell.number, hit[1].first))
