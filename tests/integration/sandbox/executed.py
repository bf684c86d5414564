"""A submission that was run and tested, for tests of what shows it. Some of its words are hostile."""

from __future__ import annotations

import json
from typing import Any

from grading.domain.document import Location, Output
from grading.domain.evidence import CheckOutcome, Flag, TestOutcome
from grading.domain.report import CriterionGrade, Report
from grading.execution.display import ShownDocument, ShownExecution
from grading.execution.path_repair import Repair
from grading.execution.values import Played
from tests.integration.webapp import School, report

EVIL = "<script>window.pwned=1</script><img src=//evil.example/x onerror=window.pwned=1>"
SECRETS = ("hidden-name", "hidden-input", "hidden-expected", "hidden-got", "hidden-message")
"""What a hidden test is made of: no student may ever see one of these words."""
KEPT_BACK = "kept-back-expected"
"""The expected value of a visible test that shows all but that."""


def some_tests() -> tuple[TestOutcome, ...]:
    """Four visible tests, of which two fail, and two hidden ones, of which one fails."""
    name, given, expected, got, message = SECRETS
    return (
        TestOutcome(name="search(3, (1, 3))", passed=True, input="search(3, (1, 3))", show="everything"),
        TestOutcome(
            name="search(42, (-5, 1, 3, 5, 7, 10))",
            passed=False,
            input="search(42, (-5, 1, 3, 5, 7, 10))",
            expected=KEPT_BACK,
            got="5",
            show="input",
        ),
        TestOutcome(
            name=f"totals {EVIL}",
            passed=False,
            input="\n".join(f"row {n}: {EVIL}" for n in range(40)),
            expected="{'north': 12.5, 'south': 8.0}",
            got=f"KeyError {EVIL}",
            message="KeyError: 'north'",
            show="everything",
        ),
        TestOutcome(name="search(1, ())", passed=True, input="search(1, ())", got="0", show="everything"),
        TestOutcome(
            name=name,
            passed=False,
            input=given,
            expected=expected,
            got=got,
            message=message,
            hidden=True,
            show="everything",
        ),
        TestOutcome(name=f"{name}-2", passed=True, input=given, hidden=True),
    )


def outcome(**changes: Any) -> CheckOutcome:
    """A check with these tests."""
    values = {"check": "1", "label": "passes the tests", "earned": 0.5, "tests": some_tests()}
    return CheckOutcome(**{**values, **changes})


def ran_report(**changes: Any) -> Report:
    """A report with tests and notes on the run."""
    grade = CriterionGrade(
        criterion="load",
        title="Behaves as asked",
        stage="analysis",
        points=2,
        max_points=4,
        level=2,
        highest=4,
        basis="checks",
        evidence=(outcome(), CheckOutcome(check="2", label="runs clean", earned=1)),
    )
    flags = (
        Flag(code="missing_packages", message="polars is not installed."),
        Flag(code="tests_broken", message="The expected value of case 9 cannot be evaluated."),
        Flag(code="late", message="Worth a look in any case."),
    )
    return report(**{"criteria": (grade, report().criteria[1]), "flags": flags, **changes})


SOURCES = (
    "import pandas as pd\nsales = pd.read_csv('D:/homework/sales.csv')",
    "print(sales.shape)",
    "total = sales.units.sum()\nprint('total', totl)",
    "sales.plot()",
    "print('same')",
)


def notebook() -> bytes:
    """Code that was submitted without outputs, but for the last cell."""
    cells: list[dict[str, Any]] = [{"cell_type": "markdown", "metadata": {}, "source": "# Sales"}]
    for source in SOURCES:
        cell: dict[str, Any] = {
            "cell_type": "code",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": source,
        }
        cells.append(cell)
    same = {"output_type": "stream", "name": "stdout", "text": "same\n"}
    cells[-1] |= {"outputs": [same], "execution_count": 7}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}).encode()


def execution(path: str = "work.ipynb") -> ShownExecution:
    """What running the notebook showed."""
    here = Location(document=path, cell=2, line=2)
    cells = (
        Played(number=2, state="ran"),
        Played(number=3, state="ran", outputs=(Output(kind="stream", text=f"(120, 6)\n{EVIL}\n"),)),
        Played(number=4, state="failed", error=f"NameError: name 'totl' is not defined {EVIL}", line=2),
        Played(number=5, state="ran", outputs=(Output(kind="display", image=True),)),
        Played(number=6, state="ran", outputs=(Output(kind="stream", text="same\n"),)),
    )
    document = ShownDocument(
        path=path,
        end="finished",
        cells=cells,
        repairs=(Repair(location=here, was="D:/homework/sales.csv", now="data/sales.csv"),),
        missing=("polars",),
    )
    return ShownExecution(documents={path: document}, sandbox="bubblewrap", image="sha256:0", seconds=2.5)


def submit_tested(school: School, who: str = "anna", *, released: bool = True, **changes: Any) -> str:
    """A submission of somebody that was run, tested and graded; its id."""
    submission = school.submit(who, data=notebook(), name="work.ipynb")
    school.prepared(submission, {"execution": execution().model_dump(mode="json")})
    school.grade(submission, ran_report(**changes), released=released)
    return submission
