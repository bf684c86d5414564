from __future__ import annotations

import pytest

from grading.checks.kinds.code import Uses
from grading.checks.kinds.combined import Alternatives
from grading.checks.kinds.outputs import OutputClose
from grading.checks.kinds.runs import RunsClean
from grading.checks.kinds.tests import Case, PassesTests, VariableEquals
from grading.execution.plan import MAX_WORKS, Plan, key_of
from grading.execution.planned_requests import MAX_EXPRESSIONS
from tests.unit.checks.samples import cell, notebook, script
from tests.unit.execution.samples import planned, rubric_of

CASES = PassesTests(cases=(Case(expression="f(1)", expected="2"), Case(expression="f(2)", hidden=True)))
WORK = script("def f(x):\n    return x + 1", path="mine.py", language="python")
SOLUTION = script("def f(x):\n    return 1 + x", path="answer.py", language="python")


def test_what_is_expected_never_goes_to_the_work() -> None:
    plan = planned(CASES, WORK, solution=[SOLUTION])
    assert set(plan.requests) == {"work:mine.py", "solution:answer.py", "expected:python"}
    assert [e.code for e in plan.requests["work:mine.py"].expressions] == ["f(1)", "f(2)"]
    assert [e.code for e in plan.requests["expected:python"].expressions] == ["2"]
    assert plan.requests["expected:python"].work.cells == ()
    assert "return 1 + x" not in plan.requests["work:mine.py"].model_dump_json()
    assert not plan.requests["work:mine.py"].as_main


def test_nothing_is_run_without_need() -> None:
    assert planned(Uses(all_of=("f",)), WORK) == Plan()
    assert planned(CASES, script("select 1", path="a.sql", language="sql")) == Plan()
    assert planned(CASES, script("f <- 1", added=[])) == Plan()
    assert planned(CASES) == Plan()
    prose = WORK.model_copy(update={"kind": "prose"})
    assert planned(CASES, prose) == Plan()


def test_what_the_starter_gives_is_run_where_a_check_counts_it() -> None:
    untouched = script("f <- function(x) x", added=[])
    assert planned(RunsClean(), untouched) == Plan()
    assert set(planned(RunsClean(given=True), untouched).requests) == {"work:work.R"}
    assert key_of(RunsClean(given=True, own_lines=3, part="a")) == key_of(RunsClean())


def test_checks_inside_others_are_found_and_questions_asked_once() -> None:
    rubric = rubric_of(Alternatives(checks=(CASES, RunsClean())), CASES, VariableEquals(values={"x": "2"}))
    plan = planned(rubric, WORK, solution=[SOLUTION])
    work = plan.requests["work:mine.py"]
    assert len(work.expressions) == 2
    assert work.variables == ("x",)
    assert work.as_main
    assert len(plan.requests["expected:python"].expressions) == 1
    assert plan.of(CASES.model_copy(update={"id": "other", "weight": 3.0})) is plan.of(CASES)
    assert key_of(CASES) != key_of(RunsClean())


def test_chunks_and_notebooks_have_cells_of_their_language() -> None:
    book = notebook(
        cell("x <- 1"), cell("# text", kind="markdown"), cell("select 1", language="sql"), cell("  \n")
    )
    work = planned(RunsClean(), book).requests["work:work.ipynb"].work
    assert (work.kind, work.language) == ("notebook", "r")
    assert [(c.number, c.source) for c in work.cells] == [(1, "x <- 1")]
    chunks = script("x <- 1", path="report.Rmd")
    assert planned(RunsClean(), chunks).requests["work:report.Rmd"].work.kind == "notebook"


@pytest.mark.parametrize(
    ("names", "files", "chosen"),
    [
        (["a.py", "answer.py", "b.py"], None, ["answer.py"]),
        (["a.py", "answer.ipynb"], None, ["answer.ipynb"]),
        (["a.py", "b.py"], None, ["a.py", "b.py"]),
        (["a.py", "b.py", "answer.py"], "b*", ["b.py"]),
        (["a.py"], "x*", ["a.py"]),
    ],
)
def test_which_document_is_meant(names: list[str], files: str | None, chosen: list[str]) -> None:
    works = [script("x = 1", path=name, language="python") for name in names]
    plan = planned(RunsClean(files=files), *works, solution=[SOLUTION])
    assert list(plan.works) == chosen
    asked = planned(PassesTests(cases=CASES.cases, files=files), *works, solution=[SOLUTION])
    assert [k for k in asked.requests if k.startswith("work:")] == [f"work:{chosen[0]}"]


def test_a_file_nobody_touched_is_not_run_beside_one_that_was() -> None:
    given = script("x = 1", path="given.py", language="python", added=[])
    assert list(planned(RunsClean(), given, WORK).works) == ["mine.py"]


def test_tests_import_the_work_by_the_name_it_should_have() -> None:
    check = PassesTests(tests="test_*.py")
    tests = {"tests/test_f.py": "import answer", "tests/other.txt": "", "tests/helper.py": ""}
    plan = planned(check, WORK, solution=[SOLUTION], tests=tests)
    work = plan.requests["work:mine.py"]
    assert work.work.module == "answer"
    assert [t.path for t in work.tests] == ["tests/test_f.py"]
    assert plan.requests["solution:answer.py"].tests == work.tests


def test_pairs_and_what_runs_before() -> None:
    tests = {
        "tests/input_2.txt": "f(2)\n",
        "tests/output_2.txt": "3\n",
        "tests/input_1.txt": "f(1)",
        "tests/output_1.txt": "2",
        "tests/input_3.txt": "f(3)",
        "tests/global.py": "k = 1",
    }
    check = PassesTests(tests="input_*.txt", prelude="global.py")
    plan = planned(rubric_of(check, RunsClean()), WORK, tests=tests)
    assert [e.code for e in plan.requests["work:mine.py"].expressions] == ["f(1)", "f(2)"]
    assert {r.work.prelude for r in plan.requests.values()} == {"k = 1"}
    asked = plan.of(check)
    assert asked is not None
    assert [q.name for q in asked.questions] == ["input_1", "input_2"]


def test_two_preludes_are_two_executions() -> None:
    first = PassesTests(cases=CASES.cases, prelude="a.py")
    second = PassesTests(cases=CASES.cases, prelude="b.py")
    plan = planned(rubric_of(first, second), WORK, tests={"tests/a.py": "a = 1", "tests/b.py": "b = 1"})
    preludes = {key: request.work.prelude for key, request in plan.requests.items()}
    assert preludes["work:mine.py"] == "a = 1"
    assert preludes["work:mine.py#b.py"] == "b = 1"


def test_a_students_files_never_lie_beside_the_solution() -> None:
    files = {"data/x.csv": "1", "csv.py": "2", "mine.py": "3"}
    plan = planned(CASES, WORK, solution=[SOLUTION], files=files)
    assert plan.requests["work:mine.py"].files == {"data/x.csv": "1", "csv.py": "2"}
    assert plan.requests["solution:answer.py"].files == {"data/x.csv": "1"}
    assert plan.requests["expected:python"].files == {"data/x.csv": "1"}


def test_paths_are_repaired_and_noted() -> None:
    book = notebook(
        cell("import pandas as pd", language="python"),
        cell("a = 1\nx = pd.read_csv('C:/me/x.csv')", language="python"),
        language="python",
    )
    plan = planned(RunsClean(), book, files={"data/x.csv": "1"})
    assert plan.requests["work:work.ipynb"].work.cells[1].source == 'a = 1\nx = pd.read_csv("data/x.csv")'
    (found,) = plan.repairs
    assert (found.was, found.now) == ("C:/me/x.csv", "data/x.csv")
    assert (found.location.cell, found.location.line) == (2, 2)


def test_a_submission_is_bounded() -> None:
    many = [script("x = 1", path=f"{n}.py", language="python") for n in range(50)]
    assert len(planned(RunsClean(), *many).requests) == MAX_WORKS
    cases = tuple(Case(expression=f"f({n})") for n in range(1000))
    checks = [PassesTests(cases=cases), PassesTests(cases=(Case(expression="f(-1)"),))]
    request = planned(rubric_of(*checks), WORK).requests["work:mine.py"]
    assert len(request.expressions) == MAX_EXPRESSIONS


def test_numbers_in_outputs_need_the_solution_only_without_values() -> None:
    assert "solution:answer.py" in planned(OutputClose(), WORK, solution=[SOLUTION]).requests
    assert set(planned(OutputClose(values=(1,)), WORK, solution=[SOLUTION]).requests) == {"work:mine.py"}
