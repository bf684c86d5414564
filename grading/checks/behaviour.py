"""One test at a time: what the work answered, what it should have answered, and what is wrong with a test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from grading.checks.compare_values import compare
from grading.checks.numbers import Tolerance
from grading.checks.values import said
from grading.domain.model import TestOutcome
from grading.domain.rubric import PassesTests, VariableEquals
from grading.execution.model import Answer, Tested, TestFile, Trial
from grading.execution.plan import Asked, Question
from grading.execution.results import Ran
from grading.execution.test_suites import test_names

MAX_TEXT = 500
"""Characters of each text of a test that is kept."""
NO_SANDBOX = "the work was not run"
LACKING = "packages that the work needs are missing on the server"


@dataclass(frozen=True)
class Judged:
    """What became of one test, or why it does not count."""

    outcome: TestOutcome | None = None
    broken: str = ""
    """A sentence for the instructor: the test itself is wrong."""
    skipped: str = ""
    """Why it cannot count though nobody is to blame."""


def judged(check: PassesTests | VariableEquals, asked: Asked, ran: Ran) -> Iterator[Judged]:
    """All tests of a check, cases and variables first."""
    for question in asked.questions:
        yield _unless_lost(_question(question, check, ran), asked, ran)
    if isinstance(check, PassesTests):
        for file in asked.files:
            for one in _file(file, check, asked, ran):
                yield _unless_lost(one, asked, ran)


def _unless_lost(one: Judged, asked: Asked, ran: Ran) -> Judged:
    """Without a test that failed because the server lacks what the work needs."""
    test = one.outcome
    if test is None or test.passed or not ran.lost(asked.trial, test.message):
        return one
    return Judged(skipped=LACKING)


def _question(question: Question, check: PassesTests | VariableEquals, ran: Ran) -> Judged:
    tolerance = Tolerance(check.rel_tol, check.abs_tol)
    by_rows = isinstance(check, VariableEquals) and check.ignore_row_order
    given, solved, mine = map(ran.answer, (question.expected, question.solved, question.mine))
    expected = given if question.expected is not None else solved
    if expected is None or mine is None:
        return Judged(skipped="there is nothing to compare with")
    if expected.state != "value" or expected.value is None:
        whose = "the expected value" if question.expected is not None else "the solution"
        return Judged(broken=f"{_label(question)}: {whose} gave no value ({_why(expected, check, None)})")
    if given is not None and solved is not None:
        problem = _solution_fails(given, solved, check, tolerance, by_rows)
        if problem:
            return Judged(broken=f"{_label(question)}: the solution itself does not pass ({problem})")
    outcome = TestOutcome(
        name=bounded(question.name),
        passed=False,
        input=bounded(question.code) if isinstance(check, PassesTests) else "",
        expected=said(expected.value, MAX_TEXT),
        hidden=question.hidden,
        show=question.show,
    )
    if mine.state != "value" or mine.value is None:
        trial = ran.trial(question.mine.trial)
        return Judged(outcome.model_copy(update={"message": bounded(_why(mine, check, trial))}))
    verdict = compare(expected.value, mine.value, tolerance, ignore_row_order=by_rows)
    if verdict.same is None:
        return Judged(skipped=verdict.difference)
    what = {
        "passed": verdict.same,
        "got": said(mine.value, MAX_TEXT),
        "message": bounded(verdict.difference),
    }
    return Judged(outcome.model_copy(update=what))


def _label(question: Question) -> str:
    """How an instructor knows a test."""
    return question.code.strip().partition("\n")[0][:120] or question.name


def _solution_fails(
    given: Answer, solved: Answer, check: PassesTests | VariableEquals, tolerance: Tolerance, by_rows: bool
) -> str:
    """Why the solution does not give the expected value; empty when it does."""
    if solved.state != "value" or solved.value is None or given.value is None:
        return _why(solved, check, None)
    verdict = compare(given.value, solved.value, tolerance, ignore_row_order=by_rows)
    return verdict.difference if verdict.same is False else ""


def _why(answer: Answer, check: PassesTests | VariableEquals, trial: Trial | None) -> str:
    """Why there is no value, as the rest of a sentence about the test."""
    if answer.state == "too long":
        seconds = check.seconds if isinstance(check, PassesTests) else 5.0
        return f"took longer than {seconds:g} s"
    if answer.state == "missing":
        return "is not defined"
    if answer.state == "not reached":
        reason = trial.reason.rstrip(".") if trial is not None and trial.reason else ""
        return "was not reached" + (f": {reason}" if reason else "")
    return f"raised {answer.error or 'an error'}"


def _file(file: TestFile, check: PassesTests, asked: Asked, ran: Ran) -> Iterator[Judged]:
    """The tests of a file that the solution passes; without a solution, all of them."""
    mine = {test.name: test for test in ran.tests(asked.trial, file.path)}
    if ran.trial(asked.solution) is None:
        names = list(mine)
        written = test_names(file)
        names += list(written[len(names) :]) if len(written) > len(names) else []
    else:
        solved = ran.tests(asked.solution, file.path)
        names = [test.name for test in solved if test.state == "passed"]
        if not solved:
            yield Judged(broken=f"{file.path}: no test in it ran with the solution")
        for test in solved:
            if test.state not in ("passed", "skipped"):
                why = f" ({bounded(test.message)})" if test.message else ""
                yield Judged(broken=f"{test.name}: the solution itself does not pass{why}")
    trial = ran.trial(asked.trial)
    for name in names:
        yield Judged(_of_file(name, mine.get(name), check, trial))


def _of_file(name: str, test: Tested | None, check: PassesTests, trial: Trial | None) -> TestOutcome:
    state = test.state if test is not None else "not reached"
    if state == "too long":
        message = f"took longer than {check.seconds:g} s"
    elif state == "not reached":
        message = _why(Answer(state="not reached"), check, trial)
    elif state == "passed":
        message = ""
    else:
        message = (test.message if test is not None else "") or state
    return TestOutcome(
        name=bounded(name),
        passed=state == "passed",
        message=bounded(message),
        hidden=check.hidden,
        show=check.show,
    )


def bounded(text: str) -> str:
    """A text as it is kept with a test."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
