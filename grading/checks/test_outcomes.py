"""Outcomes of tests: what is kept and said of them, and whether the work was run at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grading.checks.context import DOES_NOT_APPLY, FIRST_FAILED, NO_CODE, Context, Finding
from grading.checks.scope import Scope
from grading.domain.document import Location
from grading.domain.evidence import TestOutcome
from grading.domain.messages import Message, MessageType, define_message, define_plural, verbatim
from grading.execution.plan import Asked, RunCheck
from grading.execution.results import Ran

MAX_TEXT = 500
"""Characters of each text of a test that is kept."""
NOT_REACHED = define_message("run.not_reached", "was not reached")
NO_SANDBOX = define_message("run.no_sandbox", "the work was not run")
NO_CODE_TO_RUN = define_message("run.no_code", "there is no code in Python or R to run")
NO_TEST = define_message("check.tests.none", "no test can be used; the instructor was told")
SOLUTION_FAILS = define_message(
    "check.tests.solution_fails", "%(test)s: the solution does not pass this test (%(reason)s)"
)
HIDDEN = define_plural(
    "check.tests.hidden",
    "%(summary)s, %(count)s of those that failed is hidden",
    "%(summary)s, %(count)s of those that failed are hidden",
)
FAILED = define_message("test.failed", "failed")
_DID = define_message("test.did", "%(test)s %(difference)s")
_WHY = define_message("test.why", "%(test)s: %(difference)s")
_VERBS = ("gave ", "has ", "took ", "was ", "is ", "raised ")


def summary(tests: Sequence[TestOutcome], passed: MessageType) -> Message:
    """How many passed, and what only instructors may read: the first that failed."""
    failed = [test for test in tests if not test.passed]
    message = passed(passed=len(tests) - len(failed), count=len(tests))
    hidden = sum(test.hidden for test in failed)
    if hidden:
        message = HIDDEN(summary=message, count=hidden)
    first = next((test for test in failed if not test.hidden), failed[0] if failed else None)
    return message if first is None else FIRST_FAILED(summary=message, first=sentence(first))


def sentence(test: TestOutcome) -> Message:
    """What a failed test showed: `search(42, (1, 2)) gave 4, not 3`."""
    line = test.message.partition("\n")[0][:300]
    said = test.coded if test.message == line else verbatim(line)
    did = line.startswith(_VERBS)
    what = (test.input or test.name)[:200]
    return (_DID if did else _WHY)(test=what, difference=said if line else FAILED())


def kept(message: Message | str | None) -> dict[str, Any]:
    """A message as fields of a `TestOutcome`; what is longer than those keep is a text without a code."""
    said = verbatim(message) if isinstance(message, str) else message or verbatim("")
    if len(said.message) > MAX_TEXT:
        said = verbatim(bounded(said.message))
    return {"message": said.message, "code": said.code, "params": said.params}


def ready(check: RunCheck, context: Context, scope: Scope) -> tuple[Ran | None, Asked | None]:
    """The executions, if the work was run, and what was asked of them for this check."""
    ran = context.ran
    if ran is None or ran.problem:
        return None, None
    return ran, ran.plan.of(check) if scope.code else None


def not_ready(ran: Ran | None, scope: Scope) -> Finding:
    """What a check finds that is not ready."""
    if not scope.code:
        return Finding(0.0, NO_CODE())
    if ran is None:
        return Finding(None, DOES_NOT_APPLY(reason=NO_SANDBOX()))
    return Finding(0.0, NO_CODE_TO_RUN())


def place_of(asked: Asked, scope: Scope) -> Location | None:
    """The document that is meant."""
    meant = next((p for p in scope.code if p.document.path in asked.works), None)
    return meant.at() if meant is not None else None


def bounded(text: str) -> str:
    """A text as it is kept with a test."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
