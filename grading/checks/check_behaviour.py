"""Checks on what the work does when it is run: tests, values, outputs, and whether it runs at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grading.checks.behaviour import LACKING, NO_SANDBOX, bounded, judged
from grading.checks.check_output import Shown, cells_meant, compared_views, shown_in, unconfirmed
from grading.checks.compare_output import compare_outputs, lines_of, text_of
from grading.checks.context import FIRST, Context, Finding, counted
from grading.checks.extra_output import enumerated, too_much
from grading.checks.numbers import Tolerance
from grading.checks.scope import Piece, Scope
from grading.domain.model import Location, Output, TestOutcome
from grading.domain.rubric import Check, OutputEquals, PassesTests, RunsClean, VariableEquals
from grading.execution.model import Played
from grading.execution.plan import Asked
from grading.execution.results import Ran

LEFT_OUT = "packages or files that the work needs are missing on the server"
Compared = tuple[str, Sequence[Output], Sequence[Output], int]
"""Name, what is expected, what the student puts out, and in how many cells that may stand."""
_VERBS = ("gave ", "has ", "took ", "was ", "is ", "raised ")


def passes_tests(check: PassesTests, context: Context, scope: Scope) -> Finding:
    """Share of the tests that the work passes; those that are wrong themselves do not count."""
    return _tested(check, context, scope, "tests passed", "test passed")


def variable_equals(check: VariableEquals, context: Context, scope: Scope) -> Finding:
    """Share of the variables that have the expected value at the end."""
    return _tested(check, context, scope, "values are right", "value is right")


def runs_clean(check: RunsClean, context: Context, scope: Scope) -> Finding:
    """Share of the cells with student code that ran without an error."""
    ran, asked = _ready(check, context, scope)
    if asked is None or ran is None:
        return _not_ready(ran, scope)
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
            return Finding(None, f"does not apply: {LEFT_OUT}")
        return Finding(0.0, "there is no code here that can be run")
    failing = [(piece, played) for piece, played in cells.values() if played.state != "ran"]
    noun = "script" if all(p.document.kind == "script" for p, _ in cells.values()) else "code cell"
    ran_well = len(cells) - len(failing)
    message = f"{ran_well} of {counted(len(cells), noun)} ran without an error"
    if left_out:
        message += f", {left_out} not counted because {LEFT_OUT}"
    if not failing:
        return Finding(1.0, message, next(iter(cells.values()))[0].at())
    piece, played = failing[0]
    message += f"; the first that did not {_failure(played)}"
    inside = played.line is not None and piece.first <= played.line <= piece.last
    return Finding(ran_well / len(cells), message, piece.at(played.line if inside else None))


def output_equals(check: OutputEquals, context: Context, scope: Scope) -> Finding:
    """Share of the expected output that the work puts out: lines, tables and pictures."""
    ran, asked = _ready(check, context, scope)
    if asked is None or ran is None:
        return _not_ready(ran, scope)
    found = _worst(check, _expected(check, context, scope))
    if found is None:
        return Finding(None, "does not apply: there is no expected output to compare with")
    broken = _solution_fails(check, context)
    if broken:
        return Finding(None, "does not apply: no test can be used; the instructor was told", broken=broken)
    return replace(found, location=scope.code[0].at())


def _solution_fails(check: OutputEquals, context: Context) -> str:
    """Why the solution, handed in as it is, would not earn the check in full; empty when it would."""
    solved = context.solved()
    scope = solved.scope(check)
    if not shown_in(scope.code, solved):
        return ""  # it cannot be run here, or there is none
    found = _worst(check, _expected(check, solved, scope))
    if found is None or found.earned == 1:
        return ""
    first = next((test for test in found.tests if not test.passed), None)
    why = sentence(first) if first is not None else found.message
    return f"{check.label or check.id or 'output_equals'}: the solution itself does not pass ({why})"


def _worst(check: OutputEquals, views: Sequence[Sequence[Compared]]) -> Finding | None:
    """The finding with the smallest share; nothing where nothing is expected."""
    found = [one for pairs in views if (one := _outputs(check, pairs)) is not None]
    return min(found, key=lambda one: one.earned or 0.0, default=None)


def _outputs(check: OutputEquals, pairs: Sequence[Compared]) -> Finding | None:
    tolerance = Tolerance(check.rel_tol, check.abs_tol)
    tests, shares, surplus = [], [], ""
    for name, theirs, mine, cells in pairs:
        compared = compare_outputs(theirs, mine, tolerance)
        if not compared.expected:
            continue
        over = _surplus(theirs, mine, cells, tolerance)
        surplus = surplus or (f"{name}: {over}" if over else "")
        shares.append(0.0 if over else compared.found / compared.expected)
        whole = compared.found == compared.expected and not over
        lacks = "" if whole else f"has no line like “{compared.missing[:200]}”"
        tests.append(
            TestOutcome(
                name=name,
                passed=whole,
                expected=bounded(text_of(theirs)),
                got=bounded(text_of(mine)),
                message=over or ("has no picture" if compared.missing == "a picture" else lacks),
                show=check.show,
            )
        )
    if not shares:
        return None
    message = _said(tests, "outputs are right", "output is right")
    return Finding(sum(shares) / len(shares), message, tests=tuple(tests), surplus=surplus)


def _surplus(theirs: Sequence[Output], mine: Sequence[Output], cells: int, tolerance: Tolerance) -> str:
    """Why an output does not count, though the expected one may be in it."""
    wanted, have = lines_of(text_of(theirs)), lines_of(text_of(mine))
    return too_much("lines", len(have), len(wanted), cells) or enumerated(wanted, have, tolerance)


def _tested(
    check: PassesTests | VariableEquals, context: Context, scope: Scope, many: str, one: str
) -> Finding:
    ran, asked = _ready(check, context, scope)
    if asked is None or ran is None:
        return _not_ready(ran, scope)
    found = list(judged(check, asked, ran))
    tests = [j.outcome for j in found if j.outcome is not None]
    if not tests:
        why = next((j.skipped for j in found if j.skipped), "no test can be used; the instructor was told")
        return Finding(None, f"does not apply: {why}")
    passed = sum(test.passed for test in tests)
    message = _said(tests, many, one)
    lost = sum(j.skipped == LACKING for j in found)
    if lost:
        message = f"{lost} not counted because {LACKING}; {message}"
    return Finding(passed / len(tests), message, _place(asked, scope), tuple(tests))


def _said(tests: Sequence[TestOutcome], many: str, one: str) -> str:
    """How many passed; after FIRST, what only instructors may read."""
    failed = [test for test in tests if not test.passed]
    message = f"{len(tests) - len(failed)} of {len(tests)} {one if len(tests) == 1 else many}"
    hidden = sum(test.hidden for test in failed)
    if hidden:
        message += f", {hidden} of those that failed {'is' if hidden == 1 else 'are'} hidden"
    first = next((test for test in failed if not test.hidden), failed[0] if failed else None)
    return message if first is None else f"{message}{FIRST}{sentence(first)}"


def sentence(test: TestOutcome) -> str:
    """What a failed test showed: `search(42, (1, 2)) gave 4, not 3`."""
    what = (test.input or test.name)[:200]
    said = test.message.partition("\n")[0][:300] or "failed"
    return f"{what} {said}" if said.startswith(_VERBS) else f"{what}: {said}"


def _ready(check: Check, context: Context, scope: Scope) -> tuple[Ran | None, Asked | None]:
    """The trials, if the work was run, and what was asked of them for this check."""
    ran = context.ran
    if ran is None or ran.problem:
        return None, None
    return ran, ran.plan.of(check) if scope.code else None


def _not_ready(ran: Ran | None, scope: Scope) -> Finding:
    if not scope.code:
        return Finding(0.0, "no code was added here")
    if ran is None:
        return Finding(None, f"does not apply: {NO_SANDBOX}")
    return Finding(0.0, "there is no code in Python or R to run")


def _place(asked: Asked, scope: Scope) -> Location | None:
    meant = next((p for p in scope.code if p.document.path in asked.works), None)
    return meant.at() if meant is not None else None


def _failure(played: Played) -> str:
    if played.state == "too long":
        return "took too long"
    if played.state == "not reached":
        return "was not reached"
    return f"stopped with {bounded(played.error)[:200] or 'an error'}"


def _expected(check: OutputEquals, context: Context, scope: Scope) -> list[list[Compared]]:
    """For each view: the outputs of the solution, or the text as a whole, beside the student's."""
    shown = shown_in(scope.code, context)
    meant = cells_meant(check, context, shown)
    if check.text is not None:
        whole = (Output(kind="stream", text=check.text),)
        return [[("output", whole, _together(shown), meant)]]
    found: list[list[Compared]] = []
    for view in compared_views(check, context, scope):
        telling = [(p, o) for p, o, _ in view.pairs if text_of(o).strip() or any(one.image for one in o)]
        if len(telling) == 1 or len(view.shown) == 1:
            # a script beside a notebook: all that one puts out against all that the other does
            found.append([("output", _together(telling), _together(view.shown), meant)])
        else:
            pairs = view.pairs
            found.append([(f"output of {_called(piece)}", theirs, mine, 1) for piece, theirs, mine in pairs])
    return found


def _together(shown: Sequence[Shown]) -> tuple[Output, ...]:
    return tuple(output for _, outputs in shown for output in outputs)


def _called(piece: Piece) -> str:
    place = piece.cell.place.partition("\n")[0].strip(" #*")[:60]
    return f"“{place}”" if place else f"cell {piece.cell.number}"
