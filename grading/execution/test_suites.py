"""The tests of a `passes_tests` check: its cases, pairs of files, and files of tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch

from grading.domain.rubric import Case, PassesTests
from grading.execution.model import TestFile, TrialLanguage

FOLDER = "tests/"
_R_TEST = re.compile(r"^[ \t]*(?:testthat::)?test_that\s*\(", re.MULTILINE)


@dataclass(frozen=True)
class Suite:
    """Cases, each with a name, and files of tests in one language."""

    cases: tuple[Case, ...]
    files: tuple[TestFile, ...]


def suite_of(check: PassesTests, tests: Mapping[str, str], language: TrialLanguage) -> Suite:
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


def test_names(file: TestFile) -> tuple[str, ...]:
    """The names of the tests that are written in a file; for R only their number is known."""
    if language_of_file(file.path) == "r":
        return tuple(f"test {n}" for n, _ in enumerate(_R_TEST.findall(file.source), start=1))
    try:
        tree = ast.parse(file.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(_written(tree.body))


def _written(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test"):
            yield statement.name
        elif isinstance(statement, ast.ClassDef):
            yield from (f"{statement.name}.{name}" for name in _written(statement.body))


def language_of_file(path: str) -> TrialLanguage | None:
    """The language of a file by its ending."""
    ending = path.lower().rpartition(".")[2]
    languages: dict[str, TrialLanguage] = {"py": "python", "r": "r"}
    return languages.get(ending)


def file_name(path: str) -> str:
    """The last part of a path."""
    return path.rsplit("/", 1)[-1]


def _named(case: Case, number: int) -> Case:
    # not after its expression, which a student may not be shown
    return case if case.name else case.model_copy(update={"name": f"test {number}"})
