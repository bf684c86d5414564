"""Kinds of checks on tests of the work: expressions, files of tests, variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import ClassVar, Literal

from pydantic import Field

from grading.checks import field_labels
from grading.checks.comparison.numbers import Tolerance
from grading.checks.comparison.value_formatting import said
from grading.checks.comparison.values import compare
from grading.checks.context import DOES_NOT_APPLY, Context, Finding
from grading.checks.kind import CheckKind
from grading.checks.scope import Scope
from grading.checks.test_outcomes import (
    MAX_TEXT,
    NO_TEST,
    NOT_REACHED,
    SOLUTION_FAILS,
    bounded,
    kept,
    not_ready,
    place_of,
    ready,
    summary,
)
from grading.domain.base_value import Value
from grading.domain.document import Document
from grading.domain.evidence import Show, TestOutcome
from grading.domain.messages import Message, MessageType, define_message, define_plural
from grading.execution.plan import Asked, Planner, Question, RunCheck, language_of
from grading.execution.planned_requests import Slot
from grading.execution.results import Ran
from grading.execution.test_files import file_name, language_of_file, test_names
from grading.execution.values import Answer, CodeLanguage, Execution, Tested, TestFile

FOLDER = "tests/"
LACKING = define_message("run.lacking", "packages that the work needs are missing on the server")
PASSED = define_plural(
    "check.tests.passed", "%(passed)s of %(count)s test passed", "%(passed)s of %(count)s tests passed"
)
VALUES_RIGHT = define_plural(
    "check.values.right",
    "%(passed)s of %(count)s value is right",
    "%(passed)s of %(count)s values are right",
)
NOT_COUNTED = define_message("check.tests.not_counted", "%(count)s not counted because %(reason)s; %(found)s")
NOTHING_TO_COMPARE = define_message("test.nothing_to_compare", "there is nothing to compare with")
NO_EXPECTED_VALUE = define_message(
    "test.no_expected_value", "%(test)s: the expected value could not be computed (%(reason)s)"
)
NO_SOLUTION_VALUE = define_message(
    "test.no_solution_value", "%(test)s: the solution produced no value (%(reason)s)"
)
SOLUTION_FAILS_PLAIN = define_message(
    "check.tests.solution_fails_plain", "%(test)s: the solution does not pass this test"
)
NONE_RAN = define_message("check.tests.none_ran", "%(file)s: none of its tests ran with the solution")
TOOK_LONGER = define_message("test.took_longer", "took longer than %(seconds)s s")
NOT_DEFINED = define_message("test.not_defined", "is not defined")
NOT_REACHED_FOR = define_message("test.not_reached", "was not reached: %(reason)s")
RAISED = define_message("test.raised", "raised %(error)s")


class Case(Value):
    """An expression and the value it should have, both in the work's language.

    Without `expected`, the value that the solution gives counts.
    """

    expression: str = Field(max_length=20_000)
    expected: str | None = Field(default=None, max_length=200_000)
    name: str = Field(default="", max_length=200)
    hidden: bool = False


class PassesTests(CheckKind, RunCheck):
    """The work, when run, passes tests. Share = tests passed / tests.

    Tests are `cases`, files of the assignment's folder `tests/` that match the glob `tests` (`test_*.py` by
    unittest or pytest, `test*.R` by testthat, `input_*.txt` with `output_*.txt`), or both.
    """

    kind: Literal["passes_tests"] = "passes_tests"
    cases: tuple[Case, ...] = Field(default=(), max_length=1_000)
    tests: str | None = None
    prelude: str | None = None
    """A file of `tests/` that runs before the work."""
    hidden: bool = False
    """All of them are hidden."""
    show: Show = "input"
    seconds: float = Field(default=5.0, gt=0, le=120)
    """For each test."""
    rel_tol: float = Field(default=1e-9, ge=0)
    abs_tol: float = Field(default=1e-9, ge=0)

    title: ClassVar[MessageType] = define_message("check.passes_tests.title", "Passes tests")
    about: ClassVar[MessageType] = define_message(
        "check.passes_tests.about",
        "Runs the submission against test cases or test files (unittest, pytest, testthat).",
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "cases": define_message("check.passes_tests.cases", "Test cases"),
        "tests": define_message("check.passes_tests.tests", "Test files in tests/"),
        "prelude": define_message("check.passes_tests.prelude", "Setup file in tests/ (runs first)"),
        "hidden": field_labels.HIDDEN,
        "show": field_labels.SHOW,
        "seconds": define_message("check.passes_tests.seconds", "Time limit per test (seconds)"),
        "rel_tol": field_labels.REL_TOL,
        "abs_tol": field_labels.ABS_TOL,
        "expression": define_message("check.passes_tests.expression", "Expression"),
        "expected": define_message("check.passes_tests.expected", "Expected value"),
        "name": define_message("check.passes_tests.name", "Name"),
    }
    usual_label: ClassVar[MessageType] = define_message("check.passes_tests.label", "tests")
    tests_one: ClassVar[bool] = True
    as_main: ClassVar[bool] = False

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the tests that the work passes; those that are wrong themselves do not count."""
        return _tested(self, context, scope, PASSED)

    def first_file(self) -> str | None:
        """Its prelude."""
        return self.prelude

    def runs_solution(self) -> bool:
        """A test that the solution does not pass does not count."""
        return True

    def ask(self, planner: Planner, asked: Asked, work: Document) -> Asked:
        """Evaluates the cases and runs the files of tests."""
        language = language_of(work) or "python"
        suite: Suite = suite_of(self, planner.tests, language)
        questions = []
        for case in suite.cases:
            hidden = case.hidden or self.hidden
            if hidden and not planner.hidden_too:
                continue
            expected = None
            if case.expected is not None:
                empty = planner.drafts.expected(language, *planner.prelude_of(self, language))
                expected = planner.drafts.expression(empty, case.expected, self.seconds)
            question = Question(
                name=case.name,
                code=case.expression,
                mine=planner.drafts.expression(asked.execution, case.expression, self.seconds),
                expected=expected,
                solved=self._solution_slot(planner, asked, case.expression),
                hidden=hidden,
                show=self.show,
            )
            questions.append(question)
        for file in suite.files if planner.hidden_too or not self.hidden else ():
            for key in (asked.execution, asked.solution):
                if key is not None:
                    planner.drafts.test(key, file)
        return Asked(asked.works, asked.execution, asked.solution, tuple(questions), suite.files)

    def _solution_slot(self, planner: Planner, asked: Asked, code: str) -> Slot | None:
        return planner.drafts.expression(asked.solution, code, self.seconds) if asked.solution else None


class VariableEquals(CheckKind, RunCheck):
    """After the work ran, these variables have the values that the solution gives them, or `values`.

    `values` maps a name to an expression in the work's language. Share = variables right / asked. Tables are
    compared by columns and rows, without regard to the order of columns.
    """

    kind: Literal["variable_equals"] = "variable_equals"
    names: tuple[str, ...] = ()
    values: dict[str, str] = Field(default_factory=dict)
    rel_tol: float = Field(default=1e-6, ge=0)
    abs_tol: float = Field(default=1e-9, ge=0)
    ignore_row_order: bool = False
    show: Show = "name"

    title: ClassVar[MessageType] = define_message(
        "check.variable_equals.title", "Variables have the expected values"
    )
    about: ClassVar[MessageType] = define_message(
        "check.variable_equals.about",
        "After the run, these variables have the values in `values`, or those of the solution.",
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "names": field_labels.NAMES,
        "values": field_labels.VALUES,
        "rel_tol": field_labels.REL_TOL,
        "abs_tol": field_labels.ABS_TOL,
        "ignore_row_order": define_message("check.variable_equals.ignore_row_order", "Ignore row order"),
        "show": field_labels.SHOW,
    }
    usual_label: ClassVar[MessageType] = define_message("check.variable_equals.label", "the values are right")
    tests_one: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the variables that have the expected value at the end."""
        return _tested(self, context, scope, VALUES_RIGHT)

    def runs_solution(self) -> bool:
        """The solution gives the values, or must have those that are given."""
        return True

    def ask(self, planner: Planner, asked: Asked, work: Document) -> Asked:
        """Looks at each variable at the end."""
        language = language_of(work) or "python"
        questions = []
        for name in dict.fromkeys((*self.names, *self.values)):
            expected = None
            if name in self.values:
                empty = planner.drafts.expected(language, *planner.prelude_of(self, language))
                expected = planner.drafts.expression(empty, self.values[name], None)
            solved = planner.drafts.variable(asked.solution, name) if asked.solution else None
            mine = planner.drafts.variable(asked.execution, name)
            questions.append(Question(name, name, mine, expected, solved, show=self.show))
        return Asked(asked.works, asked.execution, asked.solution, tuple(questions))


def _tested(
    check: PassesTests | VariableEquals, context: Context, scope: Scope, passed_message: MessageType
) -> Finding:
    ran, asked = ready(check, context, scope)
    if asked is None or ran is None:
        return not_ready(ran, scope)
    found = list(judged(check, asked, ran))
    tests = [j.outcome for j in found if j.outcome is not None]
    if not tests:
        why = next((j.skipped for j in found if j.skipped), NO_TEST())
        return Finding(None, DOES_NOT_APPLY(reason=why))
    passed = sum(test.passed for test in tests)
    message = summary(tests, passed_message)
    lost = sum(j.skipped == LACKING() for j in found)
    if lost:
        message = NOT_COUNTED(count=lost, reason=LACKING(), found=message)
    return Finding(passed / len(tests), message, place_of(asked, scope), tuple(tests))


@dataclass(frozen=True)
class Suite:
    """Cases, each with a name, and files of tests in one language."""

    cases: tuple[Case, ...]
    files: tuple[TestFile, ...]


def suite_of(check: PassesTests, tests: Mapping[str, str], language: CodeLanguage) -> Suite:
    """All tests of a check that are for this language. `tests` are the files below `tests/`."""
    cases = [_named(case, n) for n, case in enumerate(check.cases, start=1)]
    files = []
    for path in matching(check, tests):
        output = pair_of(path, tests)
        if output is not None:
            cases.append(
                Case(
                    expression=tests[path].strip()[:20_000],
                    expected=tests[output].strip()[:200_000],
                    name=file_name(path).rpartition(".")[0],
                )
            )
        elif language_of_file(path) == language:
            files.append(TestFile(path=path, source=tests[path], seconds=check.seconds))
    return Suite(tuple(cases), tuple(files))


def matching(check: PassesTests, tests: Mapping[str, str]) -> list[str]:
    """The paths that the check's glob names, sorted; its prelude and the second files of pairs are none."""
    if check.tests is None:
        return []
    glob = check.tests.removeprefix(FOLDER).lower()
    found = []
    for path in sorted(tests):
        inside = path.removeprefix(FOLDER)
        if not (fnmatch(inside.lower(), glob) or fnmatch(file_name(path).lower(), glob)):
            continue
        is_pair = pair_of(path, tests) is not None
        if inside != (check.prelude or "").removeprefix(FOLDER) and (is_pair or language_of_file(path)):
            found.append(path)
    return found


def pair_of(path: str, tests: Mapping[str, str]) -> str | None:
    """For `input_01.txt` the path of `output_01.txt`, if it is there."""
    folder, slash, name = path.rpartition("/")
    if not name.lower().startswith("input") or language_of_file(name) is not None:
        return None
    other = folder + slash + "output" + name[len("input") :]
    return other if other in tests else None


def _named(case: Case, number: int) -> Case:
    # not after its expression, which a student may not be shown
    return case if case.name else case.model_copy(update={"name": f"test {number}"})


@dataclass(frozen=True)
class Judged:
    """What became of one test, or why it does not count."""

    outcome: TestOutcome | None = None
    broken: Message | None = None
    """A sentence for the instructor: the test itself is wrong."""
    skipped: Message | None = None
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
    if test is None or test.passed or not ran.lost(asked.execution, test.message):
        return one
    return Judged(skipped=LACKING())


def _question(question: Question, check: PassesTests | VariableEquals, ran: Ran) -> Judged:
    tolerance = Tolerance(check.rel_tol, check.abs_tol)
    by_rows = isinstance(check, VariableEquals) and check.ignore_row_order
    given, solved, mine = map(ran.answer, (question.expected, question.solved, question.mine))
    expected = given if question.expected is not None else solved
    if expected is None or mine is None:
        return Judged(skipped=NOTHING_TO_COMPARE())
    if expected.state != "value" or expected.value is None:
        no_value = NO_EXPECTED_VALUE if question.expected is not None else NO_SOLUTION_VALUE
        return Judged(broken=no_value(test=_label(question), reason=_why(expected, check, None)))
    if given is not None and solved is not None:
        problem = _solution_fails(given, solved, check, tolerance, by_rows)
        if problem:
            return Judged(broken=SOLUTION_FAILS(test=_label(question), reason=problem))
    outcome = TestOutcome(
        name=bounded(question.name),
        passed=False,
        input=bounded(question.code) if isinstance(check, PassesTests) else "",
        expected=said(expected.value, MAX_TEXT),
        hidden=question.hidden,
        show=question.show,
    )
    if mine.state != "value" or mine.value is None:
        execution = ran.execution(question.mine.execution)
        return Judged(outcome.model_copy(update=kept(_why(mine, check, execution))))
    verdict = compare(expected.value, mine.value, tolerance, ignore_row_order=by_rows)
    if verdict.same is None:
        return Judged(skipped=verdict.difference)
    what = {
        "passed": verdict.same,
        "got": said(mine.value, MAX_TEXT),
        **kept(verdict.difference),
    }
    return Judged(outcome.model_copy(update=what))


def _label(question: Question) -> str:
    """How an instructor knows a test."""
    return question.code.strip().partition("\n")[0][:120] or question.name


def _solution_fails(
    given: Answer, solved: Answer, check: PassesTests | VariableEquals, tolerance: Tolerance, by_rows: bool
) -> Message | None:
    """Why the solution does not give the expected value; nothing when it does."""
    if solved.state != "value" or solved.value is None or given.value is None:
        return _why(solved, check, None)
    verdict = compare(given.value, solved.value, tolerance, ignore_row_order=by_rows)
    return verdict.difference if verdict.same is False else None


def _why(answer: Answer, check: PassesTests | VariableEquals, execution: Execution | None) -> Message:
    """Why there is no value, as the rest of a sentence about the test."""
    if answer.state == "too long":
        seconds = check.seconds if isinstance(check, PassesTests) else 5.0
        return TOOK_LONGER(seconds=f"{seconds:g}")
    if answer.state == "missing":
        return NOT_DEFINED()
    if answer.state == "not reached":
        if execution is None or not execution.reason:
            return NOT_REACHED()
        return NOT_REACHED_FOR(reason=execution.clause)
    return RAISED(error=answer.error or "an error")


def _file(file: TestFile, check: PassesTests, asked: Asked, ran: Ran) -> Iterator[Judged]:
    """The tests of a file that the solution passes; without a solution, all of them."""
    mine = {test.name: test for test in ran.tests(asked.execution, file.path)}
    if ran.execution(asked.solution) is None:
        names = list(mine)
        written = test_names(file)
        names += list(written[len(names) :]) if len(written) > len(names) else []
    else:
        solved = ran.tests(asked.solution, file.path)
        names = [test.name for test in solved if test.state == "passed"]
        if not solved:
            yield Judged(broken=NONE_RAN(file=file.path))
        for test in solved:
            if test.state not in ("passed", "skipped"):
                fails = SOLUTION_FAILS if test.message else SOLUTION_FAILS_PLAIN
                reason = {"reason": bounded(test.message)} if test.message else {}
                yield Judged(broken=fails(test=test.name, **reason))
    execution = ran.execution(asked.execution)
    for name in names:
        yield Judged(_of_file(name, mine.get(name), check, execution))


def _of_file(name: str, test: Tested | None, check: PassesTests, execution: Execution | None) -> TestOutcome:
    state = test.state if test is not None else "not reached"
    if state == "too long":
        message: Message | str = TOOK_LONGER(seconds=f"{check.seconds:g}")
    elif state == "not reached":
        message = _why(Answer(state="not reached"), check, execution)
    elif state == "passed":
        message = ""
    else:
        message = (test.message if test is not None else "") or state
    return TestOutcome(
        name=bounded(name),
        passed=state == "passed",
        **kept(message),
        hidden=check.hidden,
        show=check.show,
    )
