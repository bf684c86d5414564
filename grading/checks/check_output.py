"""Checks on what running the code showed: outputs, numbers, errors.

Outputs are those of a trial where the work was run, else those that a notebook was handed in with.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

from grading.checks.context import Context, Finding, counted, listed
from grading.checks.extra_output import too_much
from grading.checks.parsing import LOOSE
from grading.checks.scope import Piece, Scope, executed, runs_recorded
from grading.domain.model import Cell, Output
from grading.domain.patterns import matches, readable
from grading.domain.rubric import AllExecuted, CheckBase, HasOutput, NoErrors, OutputClose, OutputMatches
from grading.execution.results import Ran

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
Key = tuple[str, int]
"""Path of a document and number of a cell."""
NO_RUNS = Finding(None, "does not apply: scripts carry no outputs")


def _ran(scope: Scope) -> list[Piece]:
    return [p for p in scope.code if runs_recorded(p.document)]


def shown_in(pieces: Iterable[Piece], context: Context, *, solution: bool = False) -> list[Shown]:
    """The pieces that were run, here or before they were handed in, each cell once, with its outputs."""
    found: dict[Key, Shown] = {}
    for piece in pieces:
        outputs = context.outputs(piece, solution=solution)
        if outputs is not None:
            found.setdefault(_key(piece), (piece, outputs))
    return list(found.values())


def _key(piece: Piece) -> Key:
    return piece.document.path, piece.cell.number


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
    given = context.counts_given(check)
    if given:  # the starter's cells that were not run are missing, too
        cells = [
            p for p in scope.pieces if p.cell.kind == "code" and runs_recorded(p.document) and _holds_code(p)
        ]
    ran = [p for p in cells if executed(p.cell)]
    whose = "" if given else " with your code"
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
    surplus = _surplus(check, context, cells)
    if surplus:
        return Finding(0.0, surplus, cells[0][0].at(), surplus=surplus)
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
        have = [n for _, outputs in cells for n in _numbers(outputs)]
        views = [[(list(check.values), have, cells_meant(check, context, cells))]]
    else:
        views = [
            [(_numbers(theirs), _numbers(mine), 1) for _, theirs, mine in view.pairs]
            for view in compared_views(check, context, scope)
        ]
    views = [pairs for pairs in views if any(wanted for wanted, _, _ in pairs)]
    if not views:
        return Finding(None, "does not apply: there are no expected numbers to compare with")
    found = [_found(check, pairs) for pairs in views]
    return replace(min(found, key=lambda one: one.earned or 0.0), location=cells[0][0].at())


def _found(check: OutputClose, pairs: Sequence[tuple[list[float], list[float], int]]) -> Finding:
    """Expected numbers, those that are shown, and in how many cells; for each place."""
    expected = sum(len(wanted) for wanted, _, _ in pairs)
    surplus = [too_much("numbers", len(set(have)), len(wanted), cells) for wanted, have, cells in pairs]
    found = sum(
        _close(wanted, have, check.rel_tol, check.abs_tol)
        for (wanted, have, _), over in zip(pairs, surplus, strict=True)
        if not over
    )
    message = f"{found} of {counted(expected, 'expected number')} found in the outputs"
    over = next(filter(None, surplus), "")
    return Finding(found / expected, f"{message}; {over}" if over else message, surplus=over)


def no_errors(check: NoErrors, context: Context, scope: Scope) -> Finding:
    """Share of the student's code cells that show no error and parse. SQL's dialects are not judged.

    What was handed in without outputs shows an error where it was run here and failed by its own fault.
    """
    cells = scope.code
    if not cells:
        return Finding(0.0, "no code was added here")
    failing: list[tuple[Piece, str, int | None]] = []
    for piece in cells:
        error = next((o for o in piece.cell.outputs if o.kind == "error"), None)
        lines = errors_in(piece)
        here = _failed_here(piece, context.ran)
        if error is not None:
            failing.append((piece, f"stops with an error ({_headline(error.text)})", None))
        elif here is not None:
            failing.append((piece, f"stops with an error when it is run ({_headline(here)})", None))
        elif lines and piece.facts.language not in LOOSE:
            failing.append((piece, "cannot be read as code", lines[0]))
    if not failing:
        return Finding(1.0, "no errors in your code")
    first, said, line = failing[0]
    message = f"{len(failing)} of {counted(len(cells), 'piece')} of your code with an error; the first {said}"
    return Finding(1 - len(failing) / len(cells), message, first.at(line))


def _failed_here(piece: Piece, ran: Ran | None) -> str | None:
    """The error of a cell that was handed in without outputs and failed when it was run here."""
    whole = piece.first == 1 and piece.last == len(piece.cell.lines)
    if ran is None or piece.cell.outputs or not whole:
        return None
    path, number = piece.document.path, piece.cell.number
    played = (ran.played(path) or {}).get(number)
    if played is None or number in ran.excused(path, also_elsewhere=True):
        return None
    if played.state == "too long":
        return "it took too long"
    return (played.error or "no message") if played.state == "failed" else None


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


def _surplus(check: OutputMatches, context: Context, cells: Sequence[Shown]) -> str:
    """Why outputs hold too much for a pattern in them to say anything; empty where they do not."""
    meant = cells_meant(check, context, cells)
    solved = [o for _, o in shown_in(context.scope(check, context.solution).pieces, context, solution=True)]
    mine = [o for _, o in cells]
    kinds = (("lines", _lines), ("numbers", _distinct))
    over = (too_much(kind, sum(map(size, mine)), sum(map(size, solved)), meant) for kind, size in kinds)
    return next(filter(None, over), "")


def cells_meant(check: CheckBase, context: Context, cells: Sequence[Shown]) -> int:
    """In how many cells what is expected may stand: as many as the solution has there, else the student."""
    solved = context.scope(check, context.solution).pieces
    return sum(p.cell.kind == "code" for p in solved) or len(cells)


def _lines(outputs: Sequence[Output]) -> int:
    return sum(1 for line in plain_output(outputs).split("\n") if line.strip())


def _distinct(outputs: Sequence[Output]) -> int:
    return len(set(_numbers(outputs)))


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
