"""The table of checks, and how one check of a rubric is run and said.

A check earns only where the student added work: without an added line in its scope it earns 0, also when it
asks that something be absent. A check that cannot apply (outputs of a script) is left out of the mean by
weight 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from grading.checks import check_behaviour, check_code, check_counts, check_output, check_prose, check_style
from grading.checks.context import Context, Finding, counted, listed
from grading.checks.scope import Scope
from grading.domain.errors import AssignmentError
from grading.domain.model import CheckOutcome, TestOutcome
from grading.domain.rubric import (
    Alternatives,
    Check,
    Ladder,
    OutputClose,
    OutputEquals,
    OutputMatches,
    PassesTests,
    RunsClean,
    VariableEquals,
)

FULL = 1 - 1e-9
MAX_TESTS = 200
"""Tests of one check that are kept in detail."""

Run = Callable[[Any, Context, Scope], Finding]


def alternatives(check: Alternatives, context: Context, scope: Scope) -> Finding:
    """The best of several checks."""
    inner = context.narrowed(check)
    found = [run(each, inner) for each in check.checks]
    usable = [f for f in found if f.earned is not None]
    best = max(usable, key=lambda f: f.earned or 0.0) if usable else found[0]
    return replace(best, broken=next((f.broken for f in found if f.broken), ""))


def ladder(check: Ladder, context: Context, scope: Scope) -> Finding:
    """The credit of the first rung whose checks all earn in full.

    Does not apply when a rung is only unmet by checks that do not apply.
    """
    inner = context.narrowed(check)
    surplus = broken = ""
    for rung in check.rungs:
        found = [run(each, inner) for each in rung.when]
        surplus = next((f.surplus for f in found if f.surplus), surplus)
        broken = next((f.broken for f in found if f.broken), broken)
        if any(f.earned is not None and f.earned < FULL for f in found):
            continue
        missing = next((f for f in found if f.earned is None), None)
        if missing is not None:
            return replace(missing, surplus=surplus, broken=broken)
        if found:
            place = next((f.location for f in found if f.location), None)
            tests = tuple(test for f in found for test in f.tests)
            note = rung.note or listed(f.headline for f in found)
            return Finding(rung.credit, note, place, tests, surplus, broken)
    return Finding(check.otherwise, "none of the described ways was found", surplus=surplus, broken=broken)


CHECKS: dict[str, Run] = {
    "uses": check_code.uses,
    "avoids": check_code.avoids,
    "defines": check_code.defines,
    "code_matches": check_code.code_matches,
    "has_output": check_output.has_output,
    "output_matches": check_output.output_matches,
    "output_close": check_output.output_close,
    "no_errors": check_output.no_errors,
    "all_executed": check_output.all_executed,
    "words": check_prose.words,
    "no_todo": check_prose.no_todo,
    "count": check_counts.count,
    "comments": check_style.comments,
    "documented": check_style.documented,
    "function_length": check_style.function_length,
    "naming": check_style.naming,
    "passes_tests": check_behaviour.passes_tests,
    "runs_clean": check_behaviour.runs_clean,
    "output_equals": check_behaviour.output_equals,
    "variable_equals": check_behaviour.variable_equals,
    "alternatives": alternatives,
    "ladder": ladder,
}
BY_RUNNING = (PassesTests, RunsClean, OutputEquals, VariableEquals, OutputClose, OutputMatches)
COMBINED = frozenset({"alternatives", "ladder"})


def run(check: Check, context: Context) -> Finding:
    """Runs one check in its scope; a rubric's mistake makes it not apply rather than cost points."""
    try:
        few = _too_little(check, context)
        if few is not None:
            return few
        scope = context.scope(check)
        # what is inside a combined check has its own scope
        if check.kind not in COMBINED or check.where is not None or check.part is not None:
            if scope.problem:
                return Finding(0.0, scope.problem)
            if not scope.added:
                given = context.counts_given(check)
                return Finding(0.0, "nothing was added or run here" if given else "nothing was added here")
        elif check.kind == "ladder" and not scope.added:
            return Finding(0.0, scope.problem or "nothing was added here")
        foreign = context.in_other_language(scope) if isinstance(check, BY_RUNNING) else ""
        found = Finding(0.0, foreign) if foreign else CHECKS[check.kind](check, context, scope)
    except AssignmentError as error:
        return Finding(None, f"the check cannot be run: {error}")
    earned = None if found.earned is None else min(max(found.earned, 0.0), check.cap)
    return replace(found, earned=earned)


def _too_little(check: Check, context: Context) -> Finding | None:
    """What a check with `own_lines` says where the student wrote fewer lines of code."""
    if not check.own_lines:
        return None
    scope = replace(context, given=False).scope(check.model_copy(update={"given": False}))
    own = sum(piece.own_code for piece in scope.pieces)
    if own >= check.own_lines:
        return None
    needs = counted(check.own_lines, "line")
    return Finding(0.0, f"needs at least {needs} of your own code; there {'is' if own == 1 else 'are'} {own}")


def outcome(check: Check, found: Finding, number: int) -> CheckOutcome:
    """What a check earned, for people; `number` names checks without an id."""
    return CheckOutcome(
        check=check.id or f"{check.kind}-{number}",
        label=check.label or label_of(check),
        earned=found.earned or 0.0,
        weight=0.0 if found.earned is None else check.weight,
        message=found.message,
        location=found.location,
        tests=_kept(found.tests),
    )


def _kept(tests: Sequence[TestOutcome]) -> tuple[TestOutcome, ...]:
    """Those that failed first, no more than MAX_TESTS."""
    return tuple(sorted(tests, key=lambda test: test.passed)[:MAX_TESTS])


def label_of(check: Check) -> str:
    """What a check without a label is called."""
    names = (*getattr(check, "all_of", ()), *getattr(check, "any_of", ()), *getattr(check, "names", ()))
    if check.kind in ("uses", "defines", "avoids") and names:
        return f"{check.kind} {listed(names, 4)}"
    if check.kind == "words":
        return f"at least {check.at_least} words"
    if check.kind == "count":
        return check_counts.asked(check)
    if check.kind in ("comments", "documented", "function_length", "naming"):
        return check_style.asked(check)
    return {
        "code_matches": "the code has what is asked for",
        "has_output": "outputs are shown",
        "output_matches": "the output shows what is asked for",
        "output_close": "the numbers are right",
        "no_errors": "no errors in your code",
        "all_executed": "all cells were run",
        "no_todo": "no placeholder is left",
        "passes_tests": "tests",
        "runs_clean": "runs from start to end",
        "output_equals": "the outputs are right",
        "variable_equals": "the values are right",
        "alternatives": "one of several ways",
        "ladder": "how it was done",
    }.get(check.kind, check.kind)
