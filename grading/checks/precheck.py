"""What a student may learn of their code before submitting it: its run, and the tests that are not hidden.

Hidden tests are not run, so that nobody finds out by trying what they ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from grading.checks import collect
from grading.checks.kinds.runs import RunsClean
from grading.checks.kinds.tests import PassesTests
from grading.checks.visibility import for_student
from grading.domain.base_value import Value
from grading.domain.check import all_checks
from grading.domain.document import Document
from grading.domain.evidence import CheckOutcome
from grading.domain.rubric import Criterion, Rubric
from grading.execution.display import ShownExecution, shown
from grading.execution.plan import Plan, run_checks
from grading.execution.results import Ran
from grading.execution.values import Execution

RUNS = "runs"
"""Id of the check that has the code run as a program."""
WORK = "work:"
"""What keys of executions of students' code begin with."""


class PrecheckOutcome(Value):
    """What running a student's code showed, as they may see it."""

    execution: ShownExecution = ShownExecution()
    outcomes: tuple[CheckOutcome, ...] = ()
    """Of the visible tests."""
    unavailable: bool = False
    """Nothing could be run just now, through no fault of the code."""


def visible_tests(rubric: Rubric) -> Rubric:
    """A rubric of the visible tests of another one, and of a check that has the code run as a program."""
    visible = tuple(_visible(rubric))
    # run as a program only where the rubric has it run so: tests import it as a module
    as_program = not visible or any(check.as_main for check in run_checks(rubric))
    checks = ((RunsClean(id=RUNS),) if as_program else ()) + visible
    return Rubric(criteria=(Criterion(id="precheck", title="", points=1, checks=checks),))


def has_hidden_tests(rubric: Rubric) -> bool:
    """Whether there are tests that a student learns nothing of before submitting."""
    found = (one for one in _tests(rubric) if one.hidden or any(case.hidden for case in one.cases))
    return next(found, None) is not None


def _tests(rubric: Rubric) -> Iterator[PassesTests]:
    for criterion in rubric.criteria:
        for check in all_checks(criterion.checks):
            if isinstance(check, PassesTests):
                yield check.model_copy(update={"where": check.where or criterion.where})


def _visible(rubric: Rubric) -> Iterator[PassesTests]:
    for check in _tests(rubric):
        cases = tuple(case for case in check.cases if not case.hidden)
        if not check.hidden and check.show != "nothing" and (cases or check.tests):
            yield check.model_copy(update={"cases": cases})


def precheck_outcome(
    own: tuple[Document, ...],
    rubric: Rubric,
    solution: tuple[Document, ...],
    plan: Plan,
    executions: Mapping[str, Execution],
) -> PrecheckOutcome:
    """The outcome of a plan that was made for `visible_tests`."""
    evidence = for_student(collect(own, rubric, solution, Ran(plan, executions)))
    found = (outcome for one in evidence.criteria for outcome in one.outcomes)
    works = {one.work.document: key for key, one in plan.requests.items() if key.startswith(WORK)}
    return PrecheckOutcome(
        execution=shown(replace(plan, works=works), executions),
        outcomes=tuple(one for one in found if one.check != RUNS),
    )
