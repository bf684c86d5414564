"""Outcomes of tests: what is kept and said of them, and whether the work was run at all."""

from __future__ import annotations

from collections.abc import Sequence

from grading.checks.context import FIRST, Context, Finding
from grading.checks.scope import Scope
from grading.domain.model import Location, TestOutcome
from grading.execution.plan import Asked, RunCheck
from grading.execution.results import Ran

MAX_TEXT = 500
"""Characters of each text of a test that is kept."""
NO_SANDBOX = "the work was not run"
_VERBS = ("gave ", "has ", "took ", "was ", "is ", "raised ")


def summary(tests: Sequence[TestOutcome], many: str, one: str) -> str:
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


def ready(check: RunCheck, context: Context, scope: Scope) -> tuple[Ran | None, Asked | None]:
    """The trials, if the work was run, and what was asked of them for this check."""
    ran = context.ran
    if ran is None or ran.problem:
        return None, None
    return ran, ran.plan.of(check) if scope.code else None


def not_ready(ran: Ran | None, scope: Scope) -> Finding:
    """What a check finds that is not ready."""
    if not scope.code:
        return Finding(0.0, "no code was added here")
    if ran is None:
        return Finding(None, f"does not apply: {NO_SANDBOX}")
    return Finding(0.0, "there is no code in Python or R to run")


def place_of(asked: Asked, scope: Scope) -> Location | None:
    """The document that is meant."""
    meant = next((p for p in scope.code if p.document.path in asked.works), None)
    return meant.at() if meant is not None else None


def bounded(text: str) -> str:
    """A text as it is kept with a test."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
