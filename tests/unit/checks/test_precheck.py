"""What is run before a submission: visible tests only, and only where one script is written."""

from __future__ import annotations

import pytest

from grading.assignments.code_editor import editable_script
from grading.checks.kinds.combined import Alternatives
from grading.checks.kinds.tests import Case, PassesTests
from grading.checks.precheck import has_hidden_tests, visible_tests
from grading.documents import UploadedFile, read
from grading.domain.check import CheckBase
from grading.domain.rubric import Criterion, Rubric

CELL = b'{"cell_type": "code", "metadata": {}, "execution_count": 1, "source": "x <- 1", "outputs": []}'
NOTEBOOK = b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [%s]}' % CELL
SHOWN, SECRET = Case(expression="f(1)", expected="2"), Case(expression="f(9)", expected="81", hidden=True)


def rubric(*checks: CheckBase) -> Rubric:
    return Rubric(criteria=(Criterion(id="code", title="Code", points=1, where="Task", checks=checks),))


@pytest.mark.parametrize(
    ("check", "asked"),
    [
        (PassesTests(cases=(SHOWN, SECRET)), ["f(1)"]),
        (Alternatives(checks=(PassesTests(cases=(SHOWN,)),)), ["f(1)"]),
        (PassesTests(cases=(SHOWN,), hidden=True), []),
        (PassesTests(cases=(SECRET,)), []),
        (PassesTests(cases=(SHOWN,), show="nothing"), []),
    ],
)
def test_nothing_hidden_is_asked(check: CheckBase, asked: list[str]) -> None:
    (criterion,) = visible_tests(rubric(check)).criteria
    found = [one for one in criterion.checks if isinstance(one, PassesTests)]
    assert [case.expression for one in found for case in one.cases] == asked
    assert all(one.where == "Task" for one in found)
    assert (criterion.checks[0].kind == "runs_clean") is (asked == [])


def test_hidden_tests_are_known_to_be_there() -> None:
    assert has_hidden_tests(rubric(PassesTests(cases=(SHOWN, SECRET))))
    assert not has_hidden_tests(rubric(PassesTests(cases=(SHOWN,))))


@pytest.mark.parametrize(
    ("files", "language", "path"),
    [
        ({"work.py": b"x = 1\n"}, "", "work.py"),
        ({"work.R": b"x <- 1\n"}, "r", "work.R"),
        ({}, "python", "main.py"),
        ({}, "r", "main.R"),
        ({}, "sql", None),
        ({}, "", None),
        ({"a.py": b"x = 1\n", "b.py": b"y = 1\n"}, "python", None),
        ({"work.sql": b"select 1;\n"}, "sql", None),
        ({"work.ipynb": NOTEBOOK}, "r", None),
    ],
)
def test_one_script_is_written_in_the_browser(
    files: dict[str, bytes], language: str, path: str | None
) -> None:
    starter = read([UploadedFile(*one) for one in files.items()]).documents if files else ()
    found = editable_script(starter, language)
    assert (found.path if found else None) == path
    if found is not None and files:
        assert found.text.strip() == files[found.path].decode().strip()
