"""How one check of a rubric is evaluated, and what is kept of it.

A check earns only where the student added work: without an added line in its scope it earns 0, also when it
asks that something be absent. A check that cannot apply (outputs of a script) is left out of the mean by
weight 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grading.checks.context import NOTHING_ADDED, Context, Finding
from grading.checks.kind import CheckKind
from grading.checks.message_parts import LINES
from grading.domain.check import CheckBase
from grading.domain.errors import AssignmentError
from grading.domain.evidence import CheckOutcome, TestOutcome
from grading.domain.messages import define_message, define_plural
from grading.execution.plan import RunCheck

NOTHING_RUN = define_message("check.nothing_run", "nothing was added or run here")
CANNOT_RUN = define_message("check.cannot_run", "the check cannot be run: %(reason)s")
TOO_LITTLE = define_plural(
    "check.too_little",
    "needs at least %(needed)s of your own code; there is %(count)s",
    "needs at least %(needed)s of your own code; there are %(count)s",
)
FULL = 1 - 1e-9
MAX_TESTS = 200
"""Tests of one check that are kept in detail."""


def evaluate(check: CheckBase, context: Context) -> Finding:
    """Evaluates one check in its scope; a rubric's mistake makes it not apply rather than cost points."""
    assert isinstance(check, CheckKind)  # as all kinds are
    try:
        few = _too_little(check, context)
        if few is not None:
            return few
        scope = context.scope(check)
        # what is inside a combined check has its own scope
        if not check.combined or check.where is not None or check.part is not None:
            if scope.problem:
                return Finding(0.0, scope.problem)
            if not scope.added:
                given = context.counts_given(check)
                return Finding(0.0, NOTHING_RUN() if given else NOTHING_ADDED())
        foreign = context.in_other_language(scope) if isinstance(check, RunCheck) else None
        found = Finding(0.0, foreign) if foreign else check.evaluate(context, scope)
    except AssignmentError as error:
        return Finding(None, CANNOT_RUN(reason=error.coded))
    earned = None if found.earned is None else min(max(found.earned, 0.0), check.cap)
    return replace(found, earned=earned)


def _too_little(check: CheckBase, context: Context) -> Finding | None:
    """What a check with `own_lines` says where the student wrote fewer lines of code."""
    if not check.own_lines:
        return None
    scope = replace(context, given=False).scope(check.model_copy(update={"given": False}))
    own = sum(piece.own_code for piece in scope.pieces)
    if own >= check.own_lines:
        return None
    return Finding(0.0, TOO_LITTLE(needed=LINES(count=check.own_lines), count=own))


def outcome(check: CheckBase, found: Finding, number: int) -> CheckOutcome:
    """What a check earned, for people; `number` names checks without an id."""
    return CheckOutcome(
        check=check.id or f"{check.kind}-{number}",
        label=label_of(check),
        earned=found.earned or 0.0,
        weight=0.0 if found.earned is None else check.weight,
        message=found.message.message,
        code=found.message.code,
        params=found.message.params,
        location=found.location,
        tests=_kept(found.tests),
    )


def _kept(tests: Sequence[TestOutcome]) -> tuple[TestOutcome, ...]:
    """Those that failed first, no more than MAX_TESTS."""
    return tuple(sorted(tests, key=lambda test: test.passed)[:MAX_TESTS])


def label_of(check: CheckBase) -> str:
    """What a check is called."""
    assert isinstance(check, CheckKind)  # as all kinds are
    return check.label or str(check.default_label())
