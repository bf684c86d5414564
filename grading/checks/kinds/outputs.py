"""Kinds of checks on what running the code showed: outputs, numbers, errors."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from grading.checks import field_labels
from grading.checks.comparison.extra_output import too_much
from grading.checks.context import ASKS_FOR_NOTHING, DOES_NOT_APPLY, NO_CODE, Context, Finding
from grading.checks.kind import CheckKind
from grading.checks.message_parts import CODE_CELLS, clauses, listed
from grading.checks.outputs import (
    ANSI,
    Shown,
    cells_meant,
    compared_views,
    errors_in,
    numbers_in,
    plain_output,
    shown_in,
)
from grading.checks.parsing.parser import LOOSE
from grading.checks.scope import Piece, Scope, executed, runs_recorded
from grading.domain.document import Cell, Output
from grading.domain.messages import Message, MessageType, define_message, define_plural
from grading.domain.patterns import matches, readable
from grading.execution.plan import RunCheck
from grading.execution.results import Ran

SIGNS = re.compile(r"[\\^$*+?{}\[\]|()]")
SHOWN = {
    False: define_message("check.has_output.found", "%(shown)s of %(all)s with your code show an output"),
    True: define_message("check.has_output.images", "%(shown)s of %(all)s with your code show a picture"),
}
RAN = {
    False: define_message(
        "check.all_executed.found", "%(ran)s of %(all)s with your code were run before the submission"
    ),
    True: define_message("check.all_executed.given", "%(ran)s of %(all)s were run before the submission"),
}
OUTPUT_SHOWS = define_message("check.output_matches.found", "the output shows what was asked for")
OUTPUT_LACKS = define_message("check.output_matches.lacks", "the output does not show %(patterns)s")
WHAT_WAS_ASKED = define_message("check.output_matches.asked", "what was asked for")
NO_NUMBERS = define_message("check.output_close.none", "there are no expected numbers to compare with")
EXPECTED_NUMBERS = define_plural(
    "count.expected_numbers", "%(count)s expected number", "%(count)s expected numbers"
)
CLOSE = define_message("check.output_close.found", "%(found)s of %(all)s found in the outputs")
PIECES = define_plural("count.pieces", "%(count)s piece", "%(count)s pieces")
NO_ERRORS_FOUND = define_message("check.no_errors.label", "no errors in your code")
WITH_ERRORS = define_message(
    "check.no_errors.found", "%(failing)s of %(all)s of your code with an error; the first %(error)s"
)
STOPS = define_message("check.no_errors.stops", "stops with an error (%(error)s)")
STOPS_HERE = define_message("check.no_errors.stops_here", "stops with an error when it is run (%(error)s)")
UNREADABLE = define_message("check.no_errors.unreadable", "cannot be read as code")
TOO_LONG = define_message("check.no_errors.too_long", "it took too long")
NO_RUNS = Finding(
    None, DOES_NOT_APPLY(reason=define_message("check.no_outputs", "scripts carry no outputs")())
)


class HasOutput(CheckKind):
    """Cells with student code show an output. Share = cells with one / cells with code."""

    kind: Literal["has_output"] = "has_output"
    image: bool = False
    """Only a picture counts."""

    title: ClassVar[MessageType] = define_message("check.has_output.title", "Has an output")
    about: ClassVar[MessageType] = define_message(
        "check.has_output.about", "Cells with student code show an output."
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "image": define_message("check.has_output.image", "Only images count"),
    }
    usual_label: ClassVar[MessageType] = define_message("check.has_output.label", "outputs are shown")
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the cells with student code that show an output."""
        cells = _ran(scope)
        if not cells:
            return _cannot_apply(scope)
        shown = [p for p in cells if _shows(p.cell, self.image)]
        message = SHOWN[self.image](shown=len(shown), all=CODE_CELLS(count=len(cells)))
        missing = next((p for p in cells if p not in shown), None)
        return Finding(len(shown) / len(cells), message, (missing or cells[0]).at())


class AllExecuted(CheckKind):
    """Code cells carry an execution count or an output. Share = executed / all with code."""

    kind: Literal["all_executed"] = "all_executed"

    title: ClassVar[MessageType] = define_message("check.all_executed.title", "All cells were run")
    about: ClassVar[MessageType] = define_message(
        "check.all_executed.about", "Code cells have an execution count or an output."
    )
    usual_label: ClassVar[MessageType] = define_message("check.all_executed.label", "all cells were run")
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the cells with student code that were run."""
        cells = _ran(scope)
        if not cells:
            return _cannot_apply(scope)
        given = context.counts_given(self)
        if given:  # the starter's cells that were not run are missing, too
            cells = [
                p
                for p in scope.pieces
                if p.cell.kind == "code" and runs_recorded(p.document) and _holds_code(p)
            ]
        ran = [p for p in cells if executed(p.cell)]
        message = RAN[given](ran=len(ran), all=CODE_CELLS(count=len(cells)))
        missing = next((p for p in cells if p not in ran), None)
        return Finding(len(ran) / len(cells), message, (missing or cells[0]).at())


class OutputMatches(CheckKind, RunCheck):
    """Text outputs match these regular expressions."""

    kind: Literal["output_matches"] = "output_matches"
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()

    title: ClassVar[MessageType] = define_message(
        "check.output_matches.title", "Output matches a regular expression"
    )
    about: ClassVar[MessageType] = define_message(
        "check.output_matches.about", "Text outputs match these regular expressions."
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "all_of": field_labels.ALL_OF,
        "any_of": field_labels.ANY_OF,
    }
    usual_label: ClassVar[MessageType] = define_message(
        "check.output_matches.label", "the output shows what is asked for"
    )
    needed_keys: ClassVar[tuple[str, ...]] = ("all_of", "any_of")
    pattern_keys: ClassVar[tuple[str, ...]] = ("all_of", "any_of")
    needs_run: ClassVar[bool] = False
    compares_outputs: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the asked patterns found in the text outputs of the student's cells."""
        cells = shown_in(scope.code, context)
        if not cells:
            return _cannot_apply(scope)
        asked = len(self.all_of) + bool(self.any_of)
        if not asked:
            return Finding(None, ASKS_FOR_NOTHING())
        surplus = _surplus(self, context, cells)
        if surplus:
            return Finding(0.0, surplus, cells[0][0].at(), surplus=surplus)
        hits = {p: _showing(p, cells) for p in (*self.all_of, *self.any_of)}
        missing = [p for p in self.all_of if not hits[p]]
        any_hit = any(hits[p] for p in self.any_of)
        earned = (len(self.all_of) - len(missing) + any_hit) / asked
        place = next((hit.at() for hit in hits.values() if hit), None)
        if earned == 1:
            return Finding(1.0, OUTPUT_SHOWS(), place)
        lacking = missing or list(self.any_of)
        return Finding(earned, OUTPUT_LACKS(patterns=_asked_for(lacking)), place)


class OutputClose(CheckKind, RunCheck):
    """Numbers in the outputs are close to `values`, or to those of the solution's matching cells.

    Where the work was run, its outputs there count, else those it was submitted with.
    """

    kind: Literal["output_close"] = "output_close"
    values: tuple[float, ...] = ()
    rel_tol: float = 1e-3
    abs_tol: float = 1e-6

    title: ClassVar[MessageType] = define_message(
        "check.output_close.title", "Output numbers within tolerance"
    )
    about: ClassVar[MessageType] = define_message(
        "check.output_close.about",
        "Numbers in the outputs equal `values`, or those in the solution's outputs, within the tolerance.",
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "values": field_labels.VALUES,
        "rel_tol": field_labels.REL_TOL,
        "abs_tol": field_labels.ABS_TOL,
    }
    usual_label: ClassVar[MessageType] = define_message("check.output_close.label", "the numbers are right")
    needs_run: ClassVar[bool] = False
    compares_outputs: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the expected numbers found in the outputs, within the tolerances."""
        cells = shown_in(scope.code, context)
        if not cells:
            return _cannot_apply(scope)
        if self.values:
            have = [n for _, outputs in cells for n in numbers_in(outputs)]
            views = [[(list(self.values), have, cells_meant(self, context, cells))]]
        else:
            views = [
                [(numbers_in(theirs), numbers_in(mine), 1) for _, theirs, mine in view.pairs]
                for view in compared_views(self, context, scope)
            ]
        views = [pairs for pairs in views if any(wanted for wanted, _, _ in pairs)]
        if not views:
            return Finding(None, DOES_NOT_APPLY(reason=NO_NUMBERS()))
        found = [_found(self, pairs) for pairs in views]
        return replace(min(found, key=lambda one: one.earned or 0.0), location=cells[0][0].at())

    def runs_solution(self) -> bool:
        """Only where no values are given."""
        return not self.values


class NoErrors(CheckKind):
    """No cell shows an error, and the code has no syntax errors."""

    kind: Literal["no_errors"] = "no_errors"

    title: ClassVar[MessageType] = define_message("check.no_errors.title", "No errors")
    about: ClassVar[MessageType] = define_message(
        "check.no_errors.about", "No cell shows an error, and the code has no syntax errors."
    )
    usual_label: ClassVar[MessageType] = NO_ERRORS_FOUND
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the student's code cells that show no error and parse. SQL's dialects are not judged.

        What was submitted without outputs shows an error where it was run here and failed by its own fault.
        """
        cells = scope.code
        if not cells:
            return Finding(0.0, NO_CODE())
        failing: list[tuple[Piece, Message, int | None]] = []
        for piece in cells:
            error = next((o for o in piece.cell.outputs if o.kind == "error"), None)
            lines = errors_in(piece)
            here = _failed_here(piece, context.ran)
            if error is not None:
                failing.append((piece, STOPS(error=_headline(error.text)), None))
            elif here is not None:
                failing.append((piece, STOPS_HERE(error=here), None))
            elif lines and piece.facts.language not in LOOSE:
                failing.append((piece, UNREADABLE(), lines[0]))
        if not failing:
            return Finding(1.0, NO_ERRORS_FOUND())
        first, said, line = failing[0]
        message = WITH_ERRORS(failing=len(failing), all=PIECES(count=len(cells)), error=said)
        return Finding(1 - len(failing) / len(cells), message, first.at(line))


def _ran(scope: Scope) -> list[Piece]:
    return [p for p in scope.code if runs_recorded(p.document)]


def _cannot_apply(scope: Scope) -> Finding:
    if scope.code or not any(runs_recorded(p.document) for p in scope.pieces):
        return NO_RUNS
    return Finding(0.0, NO_CODE())


def _asked_for(patterns: Sequence[str]) -> str | Message:
    """The patterns as a student can read them; ones full of signs say nothing to a person."""
    said = [readable(p) for p in patterns]
    return WHAT_WAS_ASKED() if any(SIGNS.search(one) for one in said) else listed(said)


def _found(check: OutputClose, pairs: Sequence[tuple[list[float], list[float], int]]) -> Finding:
    """Expected numbers, those that are shown, and in how many cells; for each place."""
    expected = sum(len(wanted) for wanted, _, _ in pairs)
    surplus = [too_much("numbers", len(set(have)), len(wanted), cells) for wanted, have, cells in pairs]
    found = sum(
        _close(wanted, have, check.rel_tol, check.abs_tol)
        for (wanted, have, _), over in zip(pairs, surplus, strict=True)
        if not over
    )
    message = CLOSE(found=found, all=EXPECTED_NUMBERS(count=expected))
    over = next(filter(None, surplus), None)
    return Finding(found / expected, clauses([message, over] if over else [message]), surplus=over)


def _failed_here(piece: Piece, ran: Ran | None) -> str | Message | None:
    """The error of a cell that was submitted without outputs and failed when it was run here."""
    whole = piece.first == 1 and piece.last == len(piece.cell.lines)
    if ran is None or piece.cell.outputs or not whole:
        return None
    path, number = piece.document.path, piece.cell.number
    played = (ran.played(path) or {}).get(number)
    if played is None or number in ran.excused(path, also_elsewhere=True):
        return None
    if played.state == "too long":
        return TOO_LONG()
    return _headline(played.error or "no message") if played.state == "failed" else None


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


def _surplus(check: OutputMatches, context: Context, cells: Sequence[Shown]) -> Message | None:
    """Why outputs hold too much for a pattern in them to say anything; empty where they do not."""
    meant = cells_meant(check, context, cells)
    solved = [o for _, o in shown_in(context.scope(check, context.solution).pieces, context, solution=True)]
    mine = [o for _, o in cells]
    kinds = (("lines", _lines), ("numbers", _distinct))
    over = (too_much(kind, sum(map(size, mine)), sum(map(size, solved)), meant) for kind, size in kinds)
    return next(filter(None, over), None)


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


def _lines(outputs: Sequence[Output]) -> int:
    return sum(1 for line in plain_output(outputs).split("\n") if line.strip())


def _distinct(outputs: Sequence[Output]) -> int:
    return len(set(numbers_in(outputs)))
