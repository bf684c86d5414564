"""Kinds of checks on whether the work runs, and on all that it puts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from grading.checks import field_labels
from grading.checks.comparison.extra_output import enumerated, too_much
from grading.checks.comparison.numbers import Tolerance
from grading.checks.comparison.outputs import compare_outputs, lines_of, text_of
from grading.checks.context import DOES_NOT_APPLY, Context, Finding
from grading.checks.kind import CheckKind
from grading.checks.message_parts import CODE_CELLS, SCRIPTS
from grading.checks.outputs import Shown, cells_meant, compared_views, shown_in, unconfirmed
from grading.checks.scope import Piece, Scope
from grading.checks.test_outcomes import (
    NO_TEST,
    NOT_REACHED,
    SOLUTION_FAILS,
    bounded,
    kept,
    not_ready,
    ready,
    sentence,
    summary,
)
from grading.domain.document import Output
from grading.domain.evidence import Show, TestOutcome
from grading.domain.messages import Message, MessageType, define_message, define_plural
from grading.execution.plan import RunCheck
from grading.execution.values import Played

LEFT_OUT = define_message(
    "check.runs_clean.left_out", "packages or files that the work needs are missing on the server"
)
NOTHING_TO_RUN = define_message("check.runs_clean.nothing", "there is no code here that can be run")
CLEAN = define_message("check.runs_clean.found", "%(ran)s of %(all)s ran without an error")
WITHOUT_SOME = define_message(
    "check.runs_clean.without", "%(found)s, %(count)s not counted because %(reason)s"
)
FAILED_FIRST = define_message("check.runs_clean.failed", "%(found)s; the first that did not %(failure)s")
TOOK_TOO_LONG = define_message("run.took_too_long", "took too long")
STOPPED_WITH = define_message("run.stopped_with", "stopped with %(error)s")
NO_EXPECTED = define_message("check.output_equals.none", "there is no expected output to compare with")
OUTPUTS_RIGHT = define_plural(
    "check.output_equals.found",
    "%(passed)s of %(count)s output is right",
    "%(passed)s of %(count)s outputs are right",
)
OUTPUT = define_message("check.output_equals.output", "output")
OUTPUT_OF = define_message("check.output_equals.output_of", "output of %(place)s")
SURPLUS = define_message("check.output_equals.surplus", "%(output)s: %(surplus)s")
CELL = define_message("place.cell", "cell %(number)s")
NO_PICTURE = define_message("check.output_equals.no_picture", "has no picture")
NO_LINE = define_message("check.output_equals.no_line", "has no line like “%(line)s”")
Compared = tuple[Message, Sequence[Output], Sequence[Output], int]
"""Name, what is expected, what the student puts out, and in how many cells that may stand."""


class RunsClean(CheckKind, RunCheck):
    """The work runs from its first line to its last without an error. Share = cells that ran / cells.

    Cells that fail only because a package is missing on the server are left out.
    """

    kind: Literal["runs_clean"] = "runs_clean"

    title: ClassVar[MessageType] = define_message("check.runs_clean.title", "Runs from top to bottom")
    about: ClassVar[MessageType] = define_message(
        "check.runs_clean.about", "The submission runs from the first line to the last without an error."
    )
    usual_label: ClassVar[MessageType] = define_message("check.runs_clean.label", "runs from start to end")

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the cells with student code that ran without an error."""
        ran, asked = ready(self, context, scope)
        if asked is None or ran is None:
            return not_ready(ran, scope)
        cells: dict[tuple[str, int], tuple[Piece, Played]] = {}
        left_out = 0
        for piece in scope.code:
            path, number = piece.document.path, piece.cell.number
            played = (ran.played(path) or {}).get(number)
            if played is None or path not in asked.works or (path, number) in cells:
                continue
            if number in ran.excused(path) or unconfirmed(piece, ran):
                left_out += 1
                continue
            cells[path, number] = (piece, played)
        if not cells:
            if left_out:
                return Finding(None, DOES_NOT_APPLY(reason=LEFT_OUT()))
            return Finding(0.0, NOTHING_TO_RUN())
        failing = [(piece, played) for piece, played in cells.values() if played.state != "ran"]
        noun = SCRIPTS if all(p.document.kind == "script" for p, _ in cells.values()) else CODE_CELLS
        ran_well = len(cells) - len(failing)
        message = CLEAN(ran=ran_well, all=noun(count=len(cells)))
        if left_out:
            message = WITHOUT_SOME(found=message, count=left_out, reason=LEFT_OUT())
        if not failing:
            return Finding(1.0, message, next(iter(cells.values()))[0].at())
        piece, played = failing[0]
        message = FAILED_FIRST(found=message, failure=_failure(played))
        inside = played.line is not None and piece.first <= played.line <= piece.last
        return Finding(ran_well / len(cells), message, piece.at(played.line if inside else None))


class OutputEquals(CheckKind, RunCheck):
    """The outputs, when run, equal `text`, or those of the solution's matching cells.

    Text is compared without blanks at line ends, empty lines and upper case; tables by columns and rows;
    numbers within the tolerances; of plots only that they are there. Share = outputs found / expected.
    """

    kind: Literal["output_equals"] = "output_equals"
    text: str | None = None
    rel_tol: float = Field(default=1e-6, ge=0)
    abs_tol: float = Field(default=1e-9, ge=0)
    show: Show = "name"

    title: ClassVar[MessageType] = define_message(
        "check.output_equals.title", "Output equals the expected output"
    )
    about: ClassVar[MessageType] = define_message(
        "check.output_equals.about",
        "When run, the submission's outputs equal `text` or the solution's outputs.",
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "text": define_message("check.output_equals.text", "Expected output"),
        "rel_tol": field_labels.REL_TOL,
        "abs_tol": field_labels.ABS_TOL,
        "show": field_labels.SHOW,
    }
    usual_label: ClassVar[MessageType] = define_message("check.output_equals.label", "the outputs are right")
    compares_outputs: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the expected output that the work puts out: lines, tables and pictures."""
        ran, asked = ready(self, context, scope)
        if asked is None or ran is None:
            return not_ready(ran, scope)
        found = _worst(self, _expected(self, context, scope))
        if found is None:
            return Finding(None, DOES_NOT_APPLY(reason=NO_EXPECTED()))
        broken = _solution_fails(self, context)
        if broken:
            return Finding(None, DOES_NOT_APPLY(reason=NO_TEST()), broken=broken)
        return replace(found, location=scope.code[0].at())

    def runs_solution(self) -> bool:
        """The solution must itself be right."""
        return True


def _solution_fails(check: OutputEquals, context: Context) -> Message | None:
    """Why the solution, submitted as it is, would not earn the check in full; nothing when it would."""
    solved = context.solved()
    scope = solved.scope(check)
    if not shown_in(scope.code, solved):
        return None  # it cannot be run here, or there is none
    found = _worst(check, _expected(check, solved, scope))
    if found is None or found.earned == 1:
        return None
    first = next((test for test in found.tests if not test.passed), None)
    why = sentence(first) if first is not None else found.message
    return SOLUTION_FAILS(test=check.label or check.id or "output_equals", reason=why)


def _worst(check: OutputEquals, views: Sequence[Sequence[Compared]]) -> Finding | None:
    """The finding with the smallest share; nothing where nothing is expected."""
    found = [one for pairs in views if (one := _outputs(check, pairs)) is not None]
    return min(found, key=lambda one: one.earned or 0.0, default=None)


def _outputs(check: OutputEquals, pairs: Sequence[Compared]) -> Finding | None:
    tolerance = Tolerance(check.rel_tol, check.abs_tol)
    tests, shares = [], []
    surplus: Message | None = None
    for name, theirs, mine, cells in pairs:
        compared = compare_outputs(theirs, mine, tolerance)
        if not compared.expected:
            continue
        over = _surplus(theirs, mine, cells, tolerance)
        surplus = surplus or (SURPLUS(output=name, surplus=over) if over else None)
        shares.append(0.0 if over else compared.found / compared.expected)
        whole = compared.found == compared.expected and not over
        lacks = None if whole else NO_LINE(line=compared.missing[:200])
        tests.append(
            TestOutcome(
                name=str(name),
                passed=whole,
                expected=bounded(text_of(theirs)),
                got=bounded(text_of(mine)),
                **kept(over or (NO_PICTURE() if compared.missing == "a picture" else lacks)),
                show=check.show,
            )
        )
    if not shares:
        return None
    message = summary(tests, OUTPUTS_RIGHT)
    return Finding(sum(shares) / len(shares), message, tests=tuple(tests), surplus=surplus)


def _surplus(
    theirs: Sequence[Output], mine: Sequence[Output], cells: int, tolerance: Tolerance
) -> Message | None:
    """Why an output does not count, though the expected one may be in it."""
    wanted, have = lines_of(text_of(theirs)), lines_of(text_of(mine))
    return too_much("lines", len(have), len(wanted), cells) or enumerated(wanted, have, tolerance)


def _failure(played: Played) -> Message:
    if played.state == "too long":
        return TOOK_TOO_LONG()
    if played.state == "not reached":
        return NOT_REACHED()
    return STOPPED_WITH(error=bounded(played.error)[:200] or "an error")


def _expected(check: OutputEquals, context: Context, scope: Scope) -> list[list[Compared]]:
    """For each view: the outputs of the solution, or the text as a whole, beside the student's."""
    shown = shown_in(scope.code, context)
    meant = cells_meant(check, context, shown)
    if check.text is not None:
        whole = (Output(kind="stream", text=check.text),)
        return [[(OUTPUT(), whole, _together(shown), meant)]]
    found: list[list[Compared]] = []
    for view in compared_views(check, context, scope):
        telling = [(p, o) for p, o, _ in view.pairs if text_of(o).strip() or any(one.image for one in o)]
        if len(telling) == 1 or len(view.shown) == 1:
            # a script beside a notebook: all that one puts out against all that the other does
            found.append([(OUTPUT(), _together(telling), _together(view.shown), meant)])
        else:
            pairs = view.pairs
            found.append(
                [(OUTPUT_OF(place=_called(piece)), theirs, mine, 1) for piece, theirs, mine in pairs]
            )
    return found


def _together(shown: Sequence[Shown]) -> tuple[Output, ...]:
    return tuple(output for _, outputs in shown for output in outputs)


def _called(piece: Piece) -> str | Message:
    place = piece.cell.place.partition("\n")[0].strip(" #*")[:60]
    return f"“{place}”" if place else CELL(number=piece.cell.number)
