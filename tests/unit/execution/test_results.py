from __future__ import annotations

import pytest

from grading.checks.kinds.runs import RunsClean
from grading.domain.document import Output
from grading.execution.results import Ran, lacks
from grading.execution.values import Execution, Played
from tests.unit.checks.samples import cell, notebook
from tests.unit.execution.samples import planned


@pytest.mark.parametrize(
    ("error", "package"),
    [
        ("ModuleNotFoundError: No module named 'plotly'", "plotly"),
        ("ModuleNotFoundError: No module named 'plotly.express'", "plotly"),
        ("Error in library(tidymodels): there is no package called ‘tidymodels’", "tidymodels"),
        ("Error in loadNamespace(x): there is no package called 'janitor'", "janitor"),
    ],
)
def test_errors_that_say_a_package_is_missing(error: str, package: str) -> None:
    assert lacks(error, (package,))
    assert not lacks(error, ("other",))
    assert not lacks("NameError: name 'x' is not defined", (package,))


def ran_of(*cells: tuple[str, str], missing: tuple[str, ...] = (), end: str = "finished") -> Ran:
    book = notebook(*(cell("x", language="python") for _ in cells), language="python")
    plan = planned(RunsClean(), book, starter=[notebook(cell("import zap", language="python"))])
    played = tuple(
        Played.model_validate({"number": n, "state": state, "error": error})
        for n, (state, error) in enumerate(cells, start=1)
        if state
    )
    execution = Execution.model_validate({"end": end, "cells": played, "missing": missing})
    return Ran(plan, {"work:work.ipynb": execution})


GONE = "No module named 'zap'"


def test_what_fails_after_a_missing_package_is_excused_and_nothing_before_it() -> None:
    later = "NameError: name 'z' is not defined"
    cells = ((later, "failed"), (GONE, "failed"), ("", "ran"), (later, "failed"), ("KeyError: 3", "failed"))
    ran = ran_of(*((state, error) for error, state in cells), missing=("zap",))
    assert ran.excused("work.ipynb") == {2, 4}
    assert ran.missing == ("zap",)
    assert ran_of(("failed", GONE), ("failed", "x")).excused("work.ipynb") == set()


@pytest.mark.parametrize(
    "error",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: 'x.csv'",
        'Error in file(file, "rt"): cannot open the connection',
        "Error: 'x.csv' does not exist in current working directory ('/somewhere').",
        "URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
    ],
)
def test_outputs_as_submitted_stand_for_what_only_the_student_has(error: str) -> None:
    ran = ran_of(("failed", error), ("failed", "NameError: name 'x' is not defined"))
    assert ran.outputs("work.ipynb", 1) is None
    assert ran.outputs("work.ipynb", 2) is None
    assert ran.excused("work.ipynb") == set()
    assert ran_of(("failed", "ValueError: 3")).outputs("work.ipynb", 1) == ()


def test_cells_that_were_not_reached() -> None:
    ran = ran_of(("ran", ""), ("", ""), end="memory")
    played = ran.played("work.ipynb")
    assert played is not None
    assert played[2].state == "not reached"
    assert [path for path, _ in ran.stopped] == ["work.ipynb"]
    assert ran.outputs("work.ipynb", 2) == ()  # the work ended its own run
    assert ran.excused("work.ipynb", also_elsewhere=True) == set()
    assert ran.played("other.ipynb") is None


def test_packages_that_the_assignment_does_not_know_are_the_works_own_error() -> None:
    made_up = "ModuleNotFoundError: No module named 'secretcourselib'"
    later = "NameError: name 'z' is not defined"
    ran = ran_of(("failed", made_up), ("failed", later), missing=("secretcourselib", "zap"))
    assert (ran.missing, ran.unknown) == (("zap",), ("secretcourselib",))
    assert ran.excused("work.ipynb", also_elsewhere=True) == set()
    assert ran.outputs("work.ipynb", 1) == ()
    assert not ran.lacking("work:work.ipynb")
    assert not ran.lost("work:work.ipynb", made_up)


def test_what_was_not_run() -> None:
    ran = ran_of(("ran", ""), end="not run")
    assert str(ran.problem) == "This server has no sandbox."
    assert ran.played("work.ipynb") is None
    assert ran.stopped == ()
    assert str(Ran(ran.plan).problem) == "The sandbox returned no result."
    answered = ran_of(("ran", ""))
    assert answered.problem is None
    assert answered.outputs("work.ipynb", 1) == ()
    shown = Played(number=1, state="ran", outputs=(Output(kind="stream", text="1"),))
    executions = {"work:work.ipynb": Execution(end="finished", cells=(shown,))}
    assert Ran(answered.plan, executions).outputs("work.ipynb", 1) == shown.outputs
