"""Flags about the state of the work: nothing added, not run, errors, code that does not parse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grading.checks.context import counted
from grading.checks.outputs import errors_in
from grading.checks.parsing import LOOSE
from grading.checks.scope import Piece, Scopes, executed, runs_recorded
from grading.documents.lines import says_something
from grading.domain.model import Flag


def work_flags(scopes: Scopes) -> tuple[Flag, ...]:
    """None of these holds a grade; each points at the first place it is about."""
    scope = scopes.find()
    if not scope.added:
        return tuple(_nothing(scope.pieces))
    code = scope.code
    return (*_unexecuted(code), *_errors(code), *_unparsed(code), *_cut(scopes))


def _nothing(pieces: Sequence[Piece]) -> Iterator[Flag]:
    """Why nothing counts as the student's: only lines that say something can come from a starter."""
    broken = [p for p in pieces if p.cell.kind == "code" and errors_in(p)]
    if any(says_something(piece.cell) for piece in pieces):
        yield Flag(code="untouched", message="Nothing was added to the starter.")
    elif broken:
        yield from _unparsed(broken)
    elif any(piece.cell.source.strip() for piece in pieces):
        message = "What was handed in holds only brackets, placeholders or lines such as a name."
        yield Flag(code="untouched", message=message)
    else:
        yield Flag(code="untouched", message="What was handed in is empty.")


def _cut(scopes: Scopes) -> Iterator[Flag]:
    if scopes.reader.cut:
        yield Flag(
            code="code_too_long",
            message="There is more code than is checked (1 MB); checks on code saw only a part of it.",
        )


def _unexecuted(code: Sequence[Piece]) -> Iterator[Flag]:
    cells = [p for p in code if runs_recorded(p.document)]
    if cells and not any(executed(p.cell) for p in cells):
        yield Flag(
            code="unexecuted",
            message=f"None of the {counted(len(cells), 'code cell')} with the student's code "
            "was run before it was handed in.",
            location=cells[0].at(),
        )


def _errors(code: Sequence[Piece]) -> Iterator[Flag]:
    failing = [p for p in code if any(o.kind == "error" for o in p.cell.outputs)]
    if failing:
        yield Flag(
            code="errors",
            message=f"{counted(len(failing), 'cell stops', 'cells stop')} with an error.",
            location=failing[0].at(),
        )


def _unparsed(code: Sequence[Piece]) -> Iterator[Flag]:
    broken = [(p, lines[0]) for p in code if (lines := errors_in(p))]
    if not broken:
        return
    piece, line = broken[0]
    where = piece.at(line)
    spot = f"line {where.line}" + (f" of cell {where.cell}" if len(piece.document.cells) > 1 else "")
    message = f"The code does not parse at {spot} of {piece.document.path}."
    if piece.facts.language in LOOSE:
        message = f"The code may not parse at {spot} of {piece.document.path}; dialects of SQL differ."
    yield Flag(code="parse", message=message, location=where)
