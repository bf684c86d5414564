from __future__ import annotations

from pathlib import Path

import pytest

from grading.assignments.loader import Assignment, read_folder
from grading.domain.errors import AssignmentError
from grading.domain.rubric_errors import RubricError
from tests.support.german import in_german

HEAD = """
title = "T"
language = "{language}"
[[criteria]]
id = "a"
title = "A"
points = 1
[[criteria.checks]]
"""
SOLUTION = {"solution/work.py": "def f(x):\n    return x\n"}


def read(folder: Path, check: str, files: dict[str, str], language: str = "python") -> Assignment:
    path = folder / "work"
    for name, text in {"assignment.toml": HEAD.format(language=language) + check, **files}.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    return read_folder(path)


@pytest.mark.parametrize(
    ("check", "files"),
    [
        ('kind = "passes_tests"\ncases = [{ expression = "f(1)", expected = "1" }]', {}),
        ('kind = "passes_tests"\ncases = [{ expression = "f(1)" }]', SOLUTION),
        ('kind = "passes_tests"\ntests = "test_*.py"', {"tests/test_f.py": "import work\n"}),
        (
            'kind = "passes_tests"\ntests = "input_*.txt"\nprelude = "global.py"',
            {"tests/input_1.txt": "f(1)", "tests/output_1.txt": "1", "tests/global.py": "k = 1"},
        ),
        ('kind = "output_equals"\ntext = "1"', {}),
        ('kind = "output_equals"', SOLUTION),
        ('kind = "variable_equals"\nnames = ["x"]', SOLUTION),
        ('kind = "variable_equals"\nvalues = { x = "1" }', {}),
        ('kind = "runs_clean"', {}),
    ],
)
def test_what_can_be_run_is_taken(tmp_path: Path, check: str, files: dict[str, str]) -> None:
    assert read(tmp_path, check, files).rubric.criteria[0].checks


@pytest.mark.parametrize(
    ("check", "files", "said"),
    [
        ('kind = "passes_tests"', SOLUTION, ": checks nothing; set cases or tests"),
        (
            'kind = "passes_tests"\ntests = "test_*.py"',
            {"tests/other.py": "x = 1"},
            ".tests: no file in tests/ matches test_*.py; add test_*.py, or input_",
        ),
        (
            'kind = "passes_tests"\ntests = "input_*"',
            {"tests/input_1.txt": "f(1)"},
            ".tests: no file in tests/ matches input_*",
        ),
        (
            'kind = "passes_tests"\ntests = "test_*.py"\nprelude = "global.py"',
            {"tests/test_f.py": "x = 1"},
            ".prelude: there is no file global.py in tests/",
        ),
        (
            'kind = "passes_tests"\ncases = [{ expression = "f(1)" }]',
            {},
            ".cases[0].expected: is missing; set it or add a solution",
        ),
        (
            'kind = "passes_tests"\ncases = [{ expression = "f(1)", expected = 1 }]',
            {},
            '.cases[0].expected: must be text in quotes, such as "3"',
        ),
        (
            'kind = "passes_tests"\ncases = [{ expression = "f(1)", expected = "1 +" }]',
            {},
            ".cases[0].expected: is not valid Python",
        ),
        (
            'kind = "passes_tests"\ncases = [{ expression = " ", expected = "1" }]',
            {},
            ".cases[0].expression: is empty",
        ),
        (
            'kind = "passes_tests"\ntests = "input_*.txt"',
            {"tests/input_1.txt": "f(1)", "tests/output_1.txt": "x = 1"},
            ".tests: tests/output_1.txt: is not valid Python",
        ),
        (
            'kind = "passes_tests"\ntests = "test_*.py"',
            {"tests/test_f.py": "def test_f(:"},
            ".tests: tests/test_f.py: is not valid Python",
        ),
        ('kind = "output_equals"', {}, ": has no expected output; set text or add a solution"),
        ('kind = "variable_equals"', SOLUTION, ": checks nothing; set names or values"),
        (
            'kind = "variable_equals"\nnames = ["x"]',
            {},
            ".names: have no expected values; set values or add a solution",
        ),
        ('kind = "variable_equals"\nvalues = { x = "(" }', {}, ".values.x: is not valid Python"),
    ],
)
def test_mistakes_name_the_key(tmp_path: Path, check: str, files: dict[str, str], said: str) -> None:
    with pytest.raises(AssignmentError) as error:
        read(tmp_path, check, files)
    assert str(error.value).startswith(f"criteria[0].checks[0]{said}")


def test_only_python_and_r_can_be_run(tmp_path: Path) -> None:
    with pytest.raises(AssignmentError, match="only Python and R can be run"):
        read(tmp_path, 'kind = "runs_clean"', {}, language="java")
    case = 'kind = "passes_tests"\ncases = [{ expression = "f(c(1, 2))", expected = "c(a = 1)" }]'
    assert read(tmp_path, case, {}, language="r").language == "r"


def test_tests_are_text(tmp_path: Path) -> None:
    (tmp_path / "work" / "tests").mkdir(parents=True)
    (tmp_path / "work" / "tests" / "input_1.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AssignmentError, match=r"tests/input_1\.txt: is not UTF-8 text"):
        read(tmp_path, 'kind = "runs_clean"', {})


def test_mistakes_in_tests_are_german_too(tmp_path: Path) -> None:
    check = 'kind = "passes_tests"\ntests = "test_*.py"'
    with pytest.raises(RubricError) as error:
        read(tmp_path, check, {**SOLUTION, "tests/test_a.py": "def f(:"})
    assert error.value.place == "criteria[0].checks[0].tests"
    assert "tests/test_a.py: ist kein gültiges Python (" in in_german(error.value.coded)
