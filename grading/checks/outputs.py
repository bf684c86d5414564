"""Outputs of a work, and those of the solution beside them.

Outputs are those of a sandbox run where the work was run, else those that a notebook was submitted with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from grading.checks.context import Context
from grading.checks.scope import Piece, Scope, executed
from grading.domain.check import CheckBase
from grading.domain.document import Output
from grading.execution.results import Ran

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
NUMBER = re.compile(
    r"(?<![\w.])[-+\u2212]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,30})(?:\.\d{1,30})?(?:[eE][-+]?\d{1,3})?(?![A-Za-z_])"
)
INDEX = re.compile(r"^[ \t]*\[\d{1,9}(?:,\d{0,9})?\]", re.MULTILINE)
"""R's `[1]` before a vector is not a number of the output."""
MAX_NUMBERS = 2_000
Shown = tuple[Piece, tuple[Output, ...]]
"""A piece with what its cell put out."""
Key = tuple[str, int]
"""Path of a document and number of a cell."""


def shown_in(pieces: Iterable[Piece], context: Context, *, solution: bool = False) -> list[Shown]:
    """The pieces that were run, here or before they were submitted, each cell once, with its outputs."""
    found: dict[Key, Shown] = {}
    for piece in pieces:
        outputs = context.outputs(piece, solution=solution)
        if outputs is not None:
            found.setdefault(_key(piece), (piece, outputs))
    return list(found.values())


def _key(piece: Piece) -> Key:
    return piece.document.path, piece.cell.number


def unconfirmed(piece: Piece, ran: Ran) -> bool:
    """Whether a cell ran where it was written, and here only lacks a file, a package or the network."""
    cell, path = piece.cell, piece.document.path
    ran_well = executed(cell) and all(output.kind != "error" for output in cell.outputs)
    played = (ran.played(path) or {}).get(cell.number)
    return ran_well and played is not None and ran.outputs(path, cell.number) is None


def errors_in(piece: Piece) -> list[int]:
    """Lines of this piece at which the grammar does not fit."""
    return [n for n in piece.facts.errors if piece.first <= n <= piece.last]


def plain_output(outputs: Sequence[Output]) -> str:
    """The text of outputs, without errors and terminal colours."""
    return ANSI.sub("", "\n".join(o.text for o in outputs if o.kind != "error"))


def numbers_in(outputs: Sequence[Output]) -> list[float]:
    """The numbers that outputs show, at most MAX_NUMBERS."""
    text = INDEX.sub(" ", plain_output(outputs))
    found: list[float] = []
    for hit in NUMBER.finditer(text):
        found.append(float(hit.group().replace(",", "").replace("\u2212", "-")))
        if len(found) >= MAX_NUMBERS:
            break
    return found


def cells_meant(check: CheckBase, context: Context, cells: Sequence[Shown]) -> int:
    """In how many cells what is expected may stand: as many as the solution has there, else the student."""
    solved = context.scope(check, context.solution).pieces
    return sum(p.cell.kind == "code" for p in solved) or len(cells)


Pair = tuple[Piece, tuple[Output, ...], tuple[Output, ...]]
"""A cell of the solution, what is expected there, and what the student puts out."""


@dataclass(frozen=True)
class View:
    """A way to set outputs beside those of the solution; `shown` are the student's cells that count in it."""

    pairs: list[Pair]
    shown: list[Shown]


def compared_views(check: CheckBase, context: Context, scope: Scope) -> list[View]:
    """What the solution puts out in each place, beside what the student does; the worst view counts.

    First the cells that the solution wrote, and those that the student did. Then also those that both were
    given and left as they were: they may show what the others made, and count on both sides or on none.
    """
    theirs = context.scope(check, context.solution)
    solved = [s for s in shown_in(theirs.pieces, context, solution=True) if s[0].cell.kind == "code"]
    code = [p for p in scope.pieces if p.cell.kind == "code"]
    left = {p.cell.source.strip() for p in code if not p.coded}
    given = {_key(p) for p, _ in solved if not p.coded and p.cell.source.strip() in left}
    own = {_key(p) for p, _ in solved if p.coded} or {_key(p) for p, _ in solved} - given
    chosen = [(own, scope.code), (own | given, code)] if given else [(own, scope.code)]
    views = []
    for counting, pieces in chosen:
        shown = shown_in(pieces, context)
        views.append(View(paired(solved, counting, scope, shown), shown))
    return views


def paired(solved: Sequence[Shown], counting: Set[Key], scope: Scope, cells: Sequence[Shown]) -> list[Pair]:
    """What counting cells of the solution put out, and the student in their place; those without go in order.

    A place is compared as a whole, because students part their code into other cells than the solution does.
    """
    by_place = {p.cell.place: () for p in scope.pieces if p.cell.place} | _by_place(cells)
    mine = {_key(p): outputs for p, outputs in cells}
    in_order = [_key(p) for p in scope.pieces if p.cell.kind == "code"]
    theirs = _by_place([(piece, outputs) for piece, outputs in solved if _key(piece) in counting])
    found = []
    told: set[str] = set()
    for index, (piece, outputs) in enumerate(solved):
        place = piece.cell.place
        if _key(piece) not in counting or place in told:
            continue
        if place in by_place:
            found.append((piece, theirs[place], by_place[place]))
            told.add(place)
        else:
            own = mine.get(in_order[index], ()) if index < len(in_order) else ()
            found.append((piece, outputs, own))
    return found


def _by_place(cells: Sequence[Shown]) -> dict[str, tuple[Output, ...]]:
    """All outputs of the cells that stand in a named place."""
    places: dict[str, tuple[Output, ...]] = {}
    for piece, outputs in cells:
        if piece.cell.place:
            places[piece.cell.place] = places.get(piece.cell.place, ()) + outputs
    return places
