"""Flags about the state of the work: nothing added, not run, errors, code that does not parse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grading.checks.message_parts import CODE_CELLS
from grading.checks.outputs import errors_in
from grading.checks.parsing.parser import LOOSE
from grading.checks.scope import Piece, Scopes, executed, runs_recorded
from grading.documents.line_comparison import says_something
from grading.domain.evidence import Flag
from grading.domain.messages import define_message, define_plural

UNTOUCHED = define_message("flag.untouched", "Nothing was added to the starter.")
ONLY_PLACEHOLDERS = define_message(
    "flag.only_placeholders",
    "The submission contains only brackets, placeholders or lines such as a name.",
)
EMPTY = define_message("flag.empty", "The submission is empty.")
TOO_LONG = define_message(
    "flag.code_too_long",
    "The submission has more than 1 MB of code. Only a part of it was checked.",
)
UNEXECUTED = define_message(
    "flag.unexecuted",
    "None of the %(cells)s with the student's code was run before it was submitted.",
)
STOP = define_plural(
    "flag.errors", "%(count)s cell stops with an error.", "%(count)s cells stop with an error."
)
UNPARSED = define_message("flag.unparsed", "%(path)s has a syntax error at %(place)s.")
MAY_NOT_PARSE = define_message(
    "flag.may_not_parse",
    "%(path)s may have a syntax error at %(place)s; SQL dialects differ.",
)
LINE = define_message("place.line", "line %(line)s")
LINE_OF_CELL = define_message("place.line_of_cell", "line %(line)s of cell %(cell)s")


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
        yield Flag.of("untouched", UNTOUCHED())
    elif broken:
        yield from _unparsed(broken)
    elif any(piece.cell.source.strip() for piece in pieces):
        yield Flag.of("untouched", ONLY_PLACEHOLDERS())
    else:
        yield Flag.of("untouched", EMPTY())


def _cut(scopes: Scopes) -> Iterator[Flag]:
    if scopes.reader.cut:
        yield Flag.of("code_too_long", TOO_LONG())


def _unexecuted(code: Sequence[Piece]) -> Iterator[Flag]:
    cells = [p for p in code if runs_recorded(p.document)]
    if cells and not any(executed(p.cell) for p in cells):
        none = UNEXECUTED(cells=CODE_CELLS(count=len(cells)))
        yield Flag.of("unexecuted", none, location=cells[0].at())


def _errors(code: Sequence[Piece]) -> Iterator[Flag]:
    failing = [p for p in code if any(o.kind == "error" for o in p.cell.outputs)]
    if failing:
        yield Flag.of("errors", STOP(count=len(failing)), location=failing[0].at())


def _unparsed(code: Sequence[Piece]) -> Iterator[Flag]:
    broken = [(p, lines[0]) for p in code if (lines := errors_in(p))]
    if not broken:
        return
    piece, line = broken[0]
    where = piece.at(line)
    several = len(piece.document.cells) > 1
    spot = LINE_OF_CELL(line=where.line, cell=where.cell) if several else LINE(line=where.line)
    unparsed = MAY_NOT_PARSE if piece.facts.language in LOOSE else UNPARSED
    yield Flag.of("parse", unparsed(place=spot, path=piece.document.path), location=where)
