"""What tests showed, as remarks and sentences of the engine without a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from grading.domain.jobs import Job
from grading.domain.model import CheckOutcome, TestOutcome
from grading.domain.rubric import Criterion
from workers.machine.engines.rules.lines import Advice, Remark

_TOLD = 60
"""Characters of an input, a value or a message in a remark."""


@dataclass(frozen=True)
class Tested:
    """One check with tests, and its criterion."""

    criterion: Criterion
    outcome: CheckOutcome

    @property
    def failed(self) -> tuple[TestOutcome, ...]:
        """The tests that failed; those that say something about themselves first."""
        failed = (test for test in self.outcome.tests if not test.passed)
        return tuple(sorted(failed, key=lambda test: (test.hidden, not (test.input or test.name))))

    @property
    def name(self) -> str:
        """How to call the check."""
        return self.outcome.label or self.criterion.title


def tested(job: Job) -> tuple[Tested, ...]:
    """The checks of the whole rubric that have tests."""
    return tuple(
        Tested(criterion, outcome)
        for criterion in job.rubric.criteria
        if (found := job.evidence.of(criterion.id)) is not None
        for outcome in found.outcomes
        if outcome.tests
    )


def remarks_on_tests(job: Job, stages: tuple[str, ...] = ()) -> tuple[list[Remark], list[Remark]]:
    """For each check with tests what failed, and praise where nothing did; only of `stages`, if there are."""
    wanted = [one for one in tested(job) if not stages or one.criterion.stage in stages]
    return [_failing(one) for one in wanted if one.failed], [_praise(one) for one in wanted if not one.failed]


def passed_sentence(job: Job) -> Iterator[str]:
    """How many tests the work passed, in a sentence; nothing without tests."""
    tests = [test for one in tested(job) for test in one.outcome.tests]
    passed = sum(test.passed for test in tests)
    if tests and passed == len(tests):
        yield f"When the school ran it, your code passed {_all(len(tests))}."
    elif tests:
        yield f"When the school ran it, your code passed {passed} of {_tests(len(tests))}."


def _praise(one: Tested) -> Remark:
    number = len(one.outcome.tests)
    passes = "The test passes" if number == 1 else f"All {number} tests pass"
    said = f"'{one.name}': the school ran your code, and it passed {_all(number)}."
    return Remark("praise", passes, said, one.outcome.location)


def _failing(one: Tested) -> Remark:
    tests, failed = one.outcome.tests, one.failed
    first = failed[0]
    fail = "fails" if len(failed) == 1 else "fail"
    return Remark(
        "major",
        f"{len(failed)} of {_tests(len(tests))} {fail} in '{one.name}'",
        _first(first),
        one.outcome.location,
        _advice(first),
    )


def _advice(test: TestOutcome) -> Advice:
    """What to do about a test, by what of it the student is shown."""
    example = test.input if 0 < len(test.input) <= _TOLD and not test.hidden else ""
    why = "One input that goes wrong shows where the code errs."
    if test.hidden or test.show in ("nothing", "name") or not (test.input or test.message):
        how = "Think of empty, very large and unusual inputs, and work out by hand what each should give."
        return Advice("Test your code with inputs of your own", why, how, example)
    if test.expected or (test.message and test.show == "everything"):
        how = "Run the code with its input and compare the values with what should come."
    else:
        how = "Run the code with its input, and work out by hand what it should give."
    return Advice("Try the failing test yourself", why, how, example)


def _first(test: TestOutcome) -> str:
    """What went wrong with one test, as far as it may be told."""
    if test.hidden:
        return "Only hidden tests fail; think of inputs that are empty, very large or unusual."
    called = _short(test.input or test.name)
    if not called or test.show == "nothing":
        return "Which ones is not shown; think of inputs that are empty, very large or unusual."
    if test.got:
        expected = f", expected {_short(test.expected)}" if test.expected else ""
        return f"{called} gives {_short(test.got)}{expected}."
    return f"{called} fails{f': {_short(test.message)}' if test.message else ''}."


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _TOLD else f"{flat[:_TOLD]}…"


def _tests(number: int) -> str:
    return f"{number} test{'' if number == 1 else 's'}"


def _all(number: int) -> str:
    return "its test" if number == 1 else f"all {number} tests"
