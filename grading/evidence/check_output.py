"""Checks on what running the code showed: outputs, numbers, errors.

Outputs are those of a trial where the work was run, else those that a notebook was handed in with.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from grading.evidence.check_code import readable
from grading.evidence.code import LOOSE
from grading.evidence.context import Context, Finding, counted, listed
from grading.evidence.patterns import matches
from grading.evidence.scope import Piece, Scope, executed, runs_recorded
from grading.model import Cell, Output
from grading.rubric import AllExecuted, HasOutput, NoErrors, OutputClose, OutputMatches
from grading.trials.ran import Ran

SIGNS = re.compile(r"[\\^$*+?{}\[\]|()]")
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
NUMBER = re.compile(
    r"(?<![\w.])[-+\u2212]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,30})(?:\.\d{1,30})?(?:[eE][-+]?\d{1,3})?(?![A-Za-z_])"
)
INDEX = re.compile(r"^[ \t]*\[\d{1,9}(?:,\d{0,9})?\]", re.MULTILINE)
"""R's `[1]` before a vector is not a number of the output."""
MAX_NUMBERS = 2_000
Shown = tuple[Piece, tuple[Output, ...]]
"""A piece with what its cell put out."""
NO_RUNS = Finding(None, "does not apply: scripts carry no outputs")


def _ran(scope: Scope) -> list[Piece]:
    return [p for p in scope.code if runs_recorded(p.document)]


def shown_in(pieces: Iterable[Piece], context: Context, *, solution: bool = False) -> list[Shown]:
    """The pieces that were run, here or before they were handed in, each cell once, with its outputs."""
    found: dict[tuple[str, int], Shown] = {}
    for piece in pieces:
        outputs = context.outputs(piece, solution=solution)
        if outputs is not None:
            found.setdefault((piece.document.path, piece.cell.number), (piece, outputs))
    return list(found.values())


def _cannot_apply(scope: Scope) -> Finding:
    if scope.code or not any(runs_recorded(p.document) for p in scope.pieces):
        return NO_RUNS
    return Finding(0.0, "no code was added here")


def has_output(check: HasOutput, context: Context, scope: Scope) -> Finding:
    """Share of the cells with student code that show an output."""
    cells = _ran(scope)
    if not cells:
        return _cannot_apply(scope)
    shown = [p for p in cells if _shows(p.cell, check.image)]
    what = "a picture" if check.image else "an output"
    message = f"{len(shown)} of {counted(len(cells), 'code cell')} with your code show {what}"
    missing = next((p for p in cells if p not in shown), None)
    return Finding(len(shown) / len(cells), message, (missing or cells[0]).at())


def all_executed(check: AllExecuted, context: Context, scope: Scope) -> Finding:
    """Share of the cells with student code that were run."""
    cells = _ran(scope)
    if not cells:
        return _cannot_apply(scope)
    if check.given:  # the starter's cells that were not run are missing, too
        cells = [
            p for p in scope.pieces if p.cell.kind == "code" and runs_recorded(p.document) and _holds_code(p)
        ]
    ran = [p for p in cells if executed(p.cell)]
    whose = "" if check.given else " with your code"
    message = f"{len(ran)} of {counted(len(cells), 'code cell')}{whose} were run before the hand-in"
    missing = next((p for p in cells if p not in ran), None)
    return Finding(len(ran) / len(cells), message, (missing or cells[0]).at())


def output_matches(check: OutputMatches, context: Context, scope: Scope) -> Finding:
    """Share of the asked patterns found in the text outputs of the student's cells."""
    cells = shown_in(scope.code, context)
    if not cells:
        return _cannot_apply(scope)
    asked = len(check.all_of) + bool(check.any_of)
    if not asked:
        return Finding(None, "the check asks for nothing")
    hits = {p: _showing(p, cells) for p in (*check.all_of, *check.any_of)}
    missing = [p for p in check.all_of if not hits[p]]
    any_hit = any(hits[p] for p in check.any_of)
    earned = (len(check.all_of) - len(missing) + any_hit) / asked
    place = next((hit.at() for hit in hits.values() if hit), None)
    if earned == 1:
        return Finding(1.0, "the output shows what was asked for", place)
    lacking = missing or list(check.any_of)
    return Finding(earned, f"the output does not show {_asked_for(lacking)}", place)


def _asked_for(patterns: Sequence[str]) -> str:
    """The patterns as a student can read them; ones full of signs say nothing to a person."""
    said = [readable(p) for p in patterns]
    return "what was asked for" if any(SIGNS.search(one) for one in said) else listed(said)


def output_close(check: OutputClose, context: Context, scope: Scope) -> Finding:
    """Share of the expected numbers found in the outputs, within the tolerances."""
    cells = shown_in(scope.code, context)
    if not cells:
        return _cannot_apply(scope)
    if check.values:
        pairs = [(list(check.values), [n for _, outputs in cells for n in _numbers(outputs)])]
    else:
        pairs = _pairs(check, context, scope, cells)
    expected = sum(len(wanted) for wanted, _ in pairs)
    if not expected:
        return Finding(None, "does not apply: there are no expected numbers to compare with")
    found = sum(_close(wanted, have, check.rel_tol, check.abs_tol) for wanted, have in pairs)
    message = f"{found} of {counted(expected, 'expected number')} found in the outputs"
    return Finding(found / expected, message, cells[0][0].at())


def no_errors(check: NoErrors, context: Context, scope: Scope) -> Finding:
    """Share of the student's code cells that show no error and parse. SQL's dialects are not judged."""
    cells = scope.code
    if not cells:
        return Finding(0.0, "no code was added here")
    failing: list[tuple[Piece, str, int | None]] = []
    for piece in cells:
        error = next((o for o in piece.cell.outputs if o.kind == "error"), None)
        lines = errors_in(piece)
        if error is not None:
            failing.append((piece, f"stops with an error ({_headline(error.text)})", None))
        elif lines and piece.facts.language not in LOOSE:
            failing.append((piece, "cannot be read as code", lines[0]))
    if not failing:
        return Finding(1.0, "no errors")
    first, said, line = failing[0]
    message = f"{len(failing)} of {counted(len(cells), 'piece')} of your code with an error; the first {said}"
    return Finding(1 - len(failing) / len(cells), message, first.at(line))


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


def _headline(text: str) -> str:
    lines = [line.strip() for line in ANSI.sub("", text).split("\n") if line.strip()]
    line = lines[-1] if lines and lines[0].startswith(("Traceback", "---")) else (lines or ["no message"])[0]
    return line if len(line) <= 100 else line[:97] + "…"


def _holds_code(piece: Piece) -> bool:
    return any(line.strip() for line in piece.facts.code_lines[piece.first - 1 : piece.last])


def _shows(cell: Cell, image: bool) -> bool:
    outputs = [o for o in cell.outputs if o.kind != "error"]
    return any(o.image for o in outputs) if image else any(o.image or o.text.strip() for o in outputs)


def _showing(pattern: str, cells: Sequence[Shown]) -> Piece | None:
    return next((p for p, outputs in cells if matches(pattern, plain_output(outputs), at_most=1)), None)


def _numbers(outputs: Sequence[Output]) -> list[float]:
    text = INDEX.sub(" ", plain_output(outputs))
    found: list[float] = []
    for hit in NUMBER.finditer(text):
        found.append(float(hit.group().replace(",", "").replace("\u2212", "-")))
        if len(found) >= MAX_NUMBERS:
            break
    return found


def _pairs(
    check: OutputClose, context: Context, scope: Scope, cells: Sequence[Shown]
) -> list[tuple[list[float], list[float]]]:
    solved = shown_in(context.scope(check, context.solution).pieces, context, solution=True)
    return [(_numbers(theirs), _numbers(mine)) for _, theirs, mine in paired(solved, scope, cells)]


def paired(
    solved: Sequence[Shown], scope: Scope, cells: Sequence[Shown]
) -> list[tuple[Piece, tuple[Output, ...], tuple[Output, ...]]]:
    """What the solution puts out in each place, and the student there; cells without a place go in order.

    A place is compared as a whole, because students part their code into other cells than the solution does.
    """
    by_place = {p.cell.place: () for p in scope.pieces if p.cell.place} | _by_place(cells)
    mine = {(p.document.path, p.cell.number): outputs for p, outputs in cells}
    in_order = [(p.document.path, p.cell.number) for p in scope.pieces if p.cell.kind == "code"]
    solved = [(piece, outputs) for piece, outputs in solved if piece.cell.kind == "code"]
    theirs = _by_place(solved)
    found = []
    told: set[str] = set()
    for index, (piece, outputs) in enumerate(solved):
        place = piece.cell.place
        if place in by_place:
            if place not in told:
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


def _close(wanted: list[float], have: list[float], rel: float, absolute: float) -> int:
    """How many wanted numbers have a partner; each shown number is used once."""
    left = sorted(have)
    found = 0
    for number in sorted(wanted):
        room = max(absolute, rel * abs(number))
        at = bisect_left(left, number - room)
        if at < len(left) and left[at] <= number + room:
            left.pop(at)
            found += 1
    return found
