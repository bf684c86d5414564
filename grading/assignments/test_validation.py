"""Checks the tests of an assignment when it is read, so that a mistake is told to the instructor at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from grading.checks.kinds.runs import OutputEquals
from grading.checks.kinds.tests import FOLDER, PassesTests, VariableEquals, matching, pair_of, suite_of
from grading.domain.check import CheckBase
from grading.domain.document import Document
from grading.domain.errors import AT_PLACE, AssignmentError
from grading.domain.messages import Message, define_message
from grading.domain.rubric import Rubric
from grading.domain.rubric_errors import ASKS_FOR_NOTHING, RubricError, checks_of
from grading.execution.plan import language_of, needs_run
from grading.execution.planned_requests import MAX_EXPRESSIONS
from grading.execution.values import CodeLanguage
from grading.shared import python_syntax

LANGUAGE_NOT_RUN = define_message(
    "test_files.language_not_run", "only Python and R can be run; remove the checks that need a run"
)
TESTS_TOO_LARGE = define_message("test_files.tests_too_large", "have more than 5 MB; put data into data/")
NOT_UTF8 = define_message("test_files.not_utf8", "is not UTF-8 text; put data into data/")
NO_OUTPUT = define_message("test_files.no_output", "has no expected output; set text or add a solution")
NO_VALUES = define_message("test_files.no_values", "have no expected values; set values or add a solution")
NO_EXPECTED = define_message("test_files.no_expected", "is missing; set it or add a solution")
NO_FILE = define_message("test_files.no_file", "there is no file %(name)s in tests/")
NO_MATCH = define_message(
    "test_files.no_match",
    "no file in tests/ matches %(pattern)s; add %(kinds)s, or input_*.txt with output_*.txt",
)
TOO_MANY = define_message("test_files.too_many", "are more than %(most)s")
IS_EMPTY = define_message("test_files.empty", "is empty")
NOT_PYTHON = define_message("test_files.not_python", "is not valid Python (%(why)s)")
UNREADABLE = define_message("test_files.unreadable", "it cannot be read")

MAX_TESTS_BYTES = 5_000_000
"""Of all files below `tests/` together."""


def check_tests(
    rubric: Rubric, files: Mapping[str, bytes], solution: Sequence[Document], language: str
) -> None:
    """Raises AssignmentError, naming the key or file, for a check that could never be run.

    `files` are those of the assignment's folder, by path.
    """
    if not needs_run(rubric):
        return
    spoken: dict[str, CodeLanguage] = {"python": "python", "r": "r"}
    solved = [found for d in solution if (found := language_of(d)) is not None]
    runs_in = spoken.get(language) or next(iter(solved), None)
    if runs_in is None:
        raise AssignmentError(LANGUAGE_NOT_RUN, at="language")
    tests = _texts(files)
    for place, check in checks_of(rubric):
        for problem in _problems(check, tests, bool(solved), runs_in):
            raise RubricError(f"{place}{problem.key}", problem.message)


def _texts(files: Mapping[str, bytes]) -> dict[str, str]:
    """The files below `tests/` as text, by path."""
    found: dict[str, str] = {}
    for path, data in files.items():
        if path.startswith(FOLDER):
            try:
                found[path] = data.decode("utf-8-sig").replace("\r\n", "\n")
            except UnicodeDecodeError as error:
                raise AssignmentError(NOT_UTF8, at=path) from error
    if sum(map(len, found.values())) > MAX_TESTS_BYTES:
        raise AssignmentError(TESTS_TOO_LARGE, at="tests")
    return found


class _Problem(NamedTuple):
    """A key below the check, and what is wrong there."""

    key: str
    message: Message


def _problems(
    check: CheckBase, tests: Mapping[str, str], solved: bool, language: CodeLanguage
) -> Iterator[_Problem]:
    if isinstance(check, OutputEquals) and check.text is None and not solved:
        yield _Problem("", NO_OUTPUT())
    if isinstance(check, VariableEquals):
        if not check.names and not check.values:
            yield _Problem("", ASKS_FOR_NOTHING(keys="names or values"))
        if not set(check.names) <= set(check.values) and not solved:
            yield _Problem(".names", NO_VALUES())
        for name, code in check.values.items():
            yield from _wrong(code, language, f".values.{name}")
    if isinstance(check, PassesTests):
        yield from _suite(check, tests, solved, language)


def _suite(
    check: PassesTests, tests: Mapping[str, str], solved: bool, language: CodeLanguage
) -> Iterator[_Problem]:
    if not check.cases and check.tests is None:
        yield _Problem("", ASKS_FOR_NOTHING(keys="cases or tests"))
    if check.prelude is not None and not {check.prelude, FOLDER + check.prelude} & set(tests):
        yield _Problem(".prelude", NO_FILE(name=check.prelude))
    for n, case in enumerate(check.cases):
        yield from _wrong(case.expression, language, f".cases[{n}].expression")
        if case.expected is not None:
            yield from _wrong(case.expected, language, f".cases[{n}].expected", single=True)
        elif not solved:
            yield _Problem(f".cases[{n}].expected", NO_EXPECTED())
    if check.tests is not None:
        yield from _files(check, tests, language)


def _files(check: PassesTests, tests: Mapping[str, str], language: CodeLanguage) -> Iterator[_Problem]:
    paths = matching(check, tests)
    suite = suite_of(check, tests, language)
    if not paths or not (suite.files or len(suite.cases) > len(check.cases)):
        kinds = "test_*.py" if language == "python" else "test*.R"
        yield _Problem(".tests", NO_MATCH(pattern=check.tests or "", kinds=kinds))
    if len(suite.cases) > MAX_EXPRESSIONS:
        yield _Problem(".tests", TOO_MANY(most=MAX_EXPRESSIONS))
    for path in paths:
        output = pair_of(path, tests)
        if output is not None:
            yield from _in_file(path, _wrong(tests[path], language, ".tests"))
            yield from _in_file(output, _wrong(tests[output], language, ".tests", single=True))
    for file in suite.files:
        yield from _in_file(file.path, _wrong(file.source, language, ".tests"))


def _in_file(path: str, found: Iterator[_Problem]) -> Iterator[_Problem]:
    return (_Problem(key, AT_PLACE(place=path, problem=message)) for key, message in found)


def _wrong(code: str, language: CodeLanguage, place: str, *, single: bool = False) -> Iterator[_Problem]:
    """Says where Python does not parse; R is only seen to hold something."""
    if not code.strip():
        yield _Problem(place, IS_EMPTY())
    elif language == "python":
        try:
            python_syntax.parse(code.strip(), mode="eval" if single else "exec")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            why = error.msg if isinstance(error, SyntaxError) else UNREADABLE()
            yield _Problem(place, NOT_PYTHON(why=why))
