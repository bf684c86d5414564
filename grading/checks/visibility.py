"""What students, and the machines that write to them, may see of tests: as much as the instructor lets them.

Hidden tests are only counted. Of the others `show` decides: everything, all but what was expected, the name,
or only that there is one. Which machine did what is for staff, too.
"""

from __future__ import annotations

from typing import Any, TypeVar, overload

from grading.checks.context import FIRST_FAILED, headline
from grading.checks.run_flags import BROKEN
from grading.checks.test_outcomes import sentence
from grading.domain.evidence import CheckOutcome, CriterionEvidence, Evidence, Flag, TestOutcome
from grading.domain.jobs import Provenance
from grading.domain.messages import Message, define_message, verbatim
from grading.domain.report import CriterionGrade, Report

GAVE = define_message("test.gave_only", "%(test)s gave %(got)s")
NOT_TOLD: dict[str, Any] = {"message": "", "code": "", "params": {}}
UNNAMED = "a test"
HIDDEN = "a hidden test"
_Whole = TypeVar("_Whole", Evidence, Report)


SETTLED = ("adjustment_undecided", "disagreement", "other_weights", "prompt_leaked", "unsupported")
"""Doubts, which a person has settled before a student sees the report."""


@overload
def for_student(found: CheckOutcome) -> CheckOutcome: ...
@overload
def for_student(found: CriterionEvidence) -> CriterionEvidence: ...
@overload
def for_student(found: Evidence) -> Evidence: ...
@overload
def for_student(found: Report) -> Report: ...
def for_student(
    found: CheckOutcome | CriterionEvidence | Evidence | Report,
) -> CheckOutcome | CriterionEvidence | Evidence | Report:
    """The same without what a student may not see of tests and machines."""
    if isinstance(found, CheckOutcome):
        return _outcome(found)
    if isinstance(found, CriterionEvidence):
        return _criterion(found)
    if isinstance(found, Evidence):
        criteria = tuple(_criterion(c) for c in found.criteria)
        deciding = tuple(
            one.model_copy(update={"outcomes": tuple(_outcome(o) for o in one.outcomes)})
            for one in found.adjustments
        )
        return found.model_copy(
            update={"criteria": criteria, "flags": _flags(found), "adjustments": deciding}
        )
    grades = tuple(_grade(grade) for grade in found.criteria)
    flags = tuple(flag for flag in _flags(found) if flag.code not in SETTLED)
    adjusted = tuple(
        one.model_copy(update={"evidence": tuple(_outcome(o) for o in one.evidence)})
        for one in found.adjustments
    )
    stages = {name: _without_machine(how) for name, how in found.stages.items()}
    seen = {"criteria": grades, "flags": flags, "adjustments": adjusted, "stages": stages}
    return found.model_copy(update=seen)


def _without_machine(how: Provenance) -> Provenance:
    """Without the machine, and without what its engine says of others that helped it."""
    return how.model_copy(update={"machine": "", "details": {}})


def _criterion(found: CriterionEvidence) -> CriterionEvidence:
    return found.model_copy(update={"outcomes": tuple(_outcome(o) for o in found.outcomes)})


def _grade(found: CriterionGrade) -> CriterionGrade:
    seen = tuple(_outcome(o) for o in found.evidence)
    return found.model_copy(update={"evidence": seen, "confidence": None})


def _flags(found: _Whole) -> tuple[Flag, ...]:
    return tuple(flag for flag in found.flags if flag.code != BROKEN)


def _outcome(outcome: CheckOutcome) -> CheckOutcome:
    if not outcome.tests:
        return outcome
    tests = tuple(_test(test) for test in outcome.tests if not test.hidden)
    # in an order of their own: the place of a hidden test among the others may tell which it is
    unseen = sorted((test.passed for test in outcome.tests if test.hidden), reverse=True)
    hidden = tuple(TestOutcome(name=HIDDEN, passed=p, hidden=True, show="nothing") for p in unseen)
    said = headline(outcome.coded)
    first = next((test for test in tests if not test.passed and test.name != UNNAMED), None)
    if first is not None:
        said = FIRST_FAILED(summary=said, first=_sentence(first))
    message = {"message": said.message, "code": said.code, "params": said.params}
    return outcome.model_copy(update={**message, "tests": tests + hidden})


def _sentence(test: TestOutcome) -> Message:
    if test.message:
        return sentence(test)
    what = (test.input or test.name)[:200]
    gave = test.got and test.show == "input" and test.input
    return GAVE(test=what, got=test.got[:200]) if gave else verbatim(what)


def _test(test: TestOutcome) -> TestOutcome:
    """One test as its `show` says. Only a difference and the text of a test file tell what was expected."""
    if test.show == "everything":
        return test
    if test.show == "input":
        # what the work raised, or a limit, is the student's own; without an input, a test file's text is not
        own = {} if test.input and not test.got else NOT_TOLD
        return test.model_copy(update={"expected": "", **own})
    kept = {"input": "", "expected": "", "got": "", **NOT_TOLD}
    if test.show == "nothing":
        kept["name"] = UNNAMED
    return test.model_copy(update=kept)
