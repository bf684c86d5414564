from __future__ import annotations

from typing import Any

import pytest

from grading.checks import collect
from grading.checks.evaluate import MAX_TESTS
from grading.checks.kinds.code import Uses
from grading.checks.kinds.combined import Alternatives, Ladder, Rung
from grading.checks.kinds.outputs import OutputClose, OutputMatches
from grading.checks.kinds.runs import OutputEquals, RunsClean
from grading.checks.kinds.tests import Case, PassesTests, VariableEquals
from grading.checks.test_outcomes import MAX_TEXT
from grading.domain.document import Document, Output
from grading.domain.evidence import Evidence
from grading.execution.plan import Plan
from grading.execution.results import Ran
from grading.execution.values import MEMORY, Answer, Execution, Played, Request
from tests.support.german import in_german
from tests.unit.checks.samples import cell, notebook, script, shown
from tests.unit.execution.samples import collected, planned, play, rubric_of, run_outcome

CASES = PassesTests(
    cases=(
        Case(expression="twice(2)", expected="4"),
        Case(expression="twice('a')", expected="'aa'"),
        Case(expression="twice(0)", expected="0", hidden=True),
    )
)


def python(source: str, path: str = "work.py") -> Document:
    return script(source, path=path, language="python")


def book(*sources: str, **how: Any) -> Document:
    return notebook(
        *(cell(s, language="python", place=f"Task {n}", **how) for n, s in enumerate(sources)),
        language="python",
    )


SOLUTION = python("def twice(x):\n    return x * 2", "twice.py")
RIGHT = python("def twice(x):\n    return x + x")
WRONG = python("def twice(x):\n    return x ** 2")


def codes(evidence: Evidence) -> dict[str, bool]:
    return {flag.code: flag.hold for flag in evidence.flags}


def test_right_work_passes_and_wrong_work_says_where() -> None:
    assert run_outcome(CASES, RIGHT, solution=[SOLUTION]).earned == 1
    found = run_outcome(CASES, WRONG, solution=[SOLUTION])
    assert found.earned == pytest.approx(2 / 3)
    assert found.message.startswith("2 of 3 tests passed; the first that failed: twice('a') raised TypeError")
    assert [t.passed for t in found.tests] == [False, True, True]
    different = run_outcome(CASES, python("def twice(x):\n    return 3"))
    assert different.message.endswith("hidden; the first that failed: twice(2) gave 3, not 4")
    assert (different.tests[0].input, different.tests[0].expected, different.tests[0].got) == (
        "twice(2)",
        "4",
        "3",
    )


def test_without_expected_values_the_solutions_count() -> None:
    check = PassesTests(cases=(Case(expression="twice(5)"),))
    assert run_outcome(check, RIGHT, solution=[SOLUTION]).earned == 1
    assert run_outcome(check, WRONG, solution=[SOLUTION]).message.endswith("twice(5) gave 25, not 10")


def test_files_of_tests() -> None:
    tests = {
        "tests/test_twice.py": "def test_two(): assert twice.twice(2) == 4\n"
        "def test_three(): assert twice.twice(3) == 6\n"
    }
    check = PassesTests(tests="test_*.py")
    found = run_outcome(check, WRONG, solution=[SOLUTION], tests=tests)
    assert found.earned == 0.5
    assert found.message == "1 of 2 tests passed; the first that failed: test_three: AssertionError()"


def silent(key: str, request: Request) -> Execution:
    """Where the work ends the process before its tests."""
    if not key.startswith("work:"):
        return play(key, request)
    return Execution(end="left", reason="The program ended itself.")


@pytest.mark.parametrize("solution", [[SOLUTION], []], ids=["solution", "none"])
def test_an_early_exit_passes_no_test(solution: list[Document]) -> None:
    tests = {"tests/test_twice.py": "def test_a(): pass\nclass TestB:\n    def test_b(self): pass\n"}
    check = PassesTests(tests="test_*.py")
    rubric = rubric_of(check, CASES)
    plan = planned(rubric, RIGHT, solution=solution, tests=tests)
    executions = {
        key: silent(key, request)
        if key.startswith("work:")
        else play(key, request.model_copy(update={"tests": ()}))
        for key, request in plan.requests.items()
    }
    if solution:
        executions["solution:twice.py"] = play("", plan.requests["solution:twice.py"])
    evidence = collect([RIGHT], rubric, solution, Ran(plan, executions))
    outcomes = evidence.criteria[0].outcomes
    assert [o.earned for o in outcomes] == [0, 0]
    assert all(o.weight == 1 for o in outcomes)
    assert "was not reached: The program ended itself" in outcomes[1].message
    assert codes(evidence)["run_stopped"] is True


def test_a_broken_limit_is_named_in_english_and_german() -> None:
    def hungry(key: str, request: Request) -> Execution:
        clause = MEMORY(size=512)
        why = {"reason": f"{clause}.", "code": clause.code, "params": clause.params}
        return (
            Execution.model_validate({"end": "memory", **why}) if key[:5] == "work:" else play(key, request)
        )

    evidence = collected(CASES, RIGHT, runs=hungry)
    test = evidence.criteria[0].outcomes[0].tests[0]
    assert test.message == "was not reached: It used more than the 512 MiB of memory that it may"
    assert in_german(test.coded) == (
        "wurde nicht ausgeführt: Das Programm belegte mehr als die erlaubten 512 MiB Arbeitsspeicher"
    )
    (stopped,) = (flag for flag in evidence.flags if flag.code == "run_stopped")
    assert stopped.message.startswith(
        "The run of work.py was stopped: It used more than the 512 MiB of memory that it may. Cells and tests"
    )
    assert "die erlaubten 512 MiB Arbeitsspeicher. Zellen" in in_german(stopped.coded)


def test_a_test_without_end_fails_alone() -> None:
    def slow(key: str, request: Request) -> Execution:
        execution = play(key, request)
        if key.startswith("work:"):
            execution = execution.model_copy(
                update={"answers": (Answer(state="too long"), *execution.answers[1:])}
            )
        return execution

    evidence = collected(CASES, RIGHT, runs=slow)
    found = evidence.criteria[0].outcomes[0]
    assert found.earned == pytest.approx(2 / 3)
    assert found.message.endswith("twice(2) took longer than 5 s")
    assert "run_stopped" not in codes(evidence)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (Case(expression="twice(2)", expected="5"), "the solution does not pass this test (gave 4, not 5)"),
        (
            Case(expression="twice(2)", expected="1 / 0"),
            "the expected value could not be computed (raised ZeroDiv",
        ),
        (Case(expression="thrice(2)"), "the solution produced no value (raised NameError"),
    ],
)
def test_a_wrong_test_counts_for_nobody(case: Case, said: str) -> None:
    check = PassesTests(cases=(*CASES.cases, case))
    evidence = collected(check, RIGHT, solution=[SOLUTION])
    found = evidence.criteria[0].outcomes[0]
    assert (found.earned, found.message) == (1, "3 of 3 tests passed")
    flag = next(f for f in evidence.flags if f.code == "tests_broken")
    assert said in flag.message
    assert flag.hold
    alone = collected(PassesTests(cases=(case,)), RIGHT, solution=[SOLUTION]).criteria[0]
    assert alone.share is None


def test_without_a_sandbox_nothing_is_said_about_behaviour() -> None:
    rubric = rubric_of(CASES, RunsClean(), VariableEquals(values={"x": "1"}), OutputEquals(text="1"))
    for ran in (
        None,
        Ran(planned(rubric, RIGHT), dict.fromkeys(planned(rubric, RIGHT).requests, Execution(end="not run"))),
        Ran(planned(rubric, RIGHT), {}),
    ):
        evidence = collect([RIGHT], rubric, (), ran)
        assert evidence.criteria[0].share is None
        assert codes(evidence) == {"not_run": True}  # the criterion has no other checks
        mixed = collect([RIGHT], rubric_of(CASES, Uses(all_of=("sum",))), (), ran)
        assert codes(mixed) == {"not_run": False}
    assert collect([RIGHT], rubric_of(Uses(all_of=("f",)))).flags == ()


def test_an_empty_submission_earns_nothing_with_or_without_a_sandbox() -> None:
    empty = script("x = 1", language="python", added=[])
    for ran in (None, Ran(Plan(), {})):
        found = collect([empty], rubric_of(CASES), (), ran)
        assert found.criteria[0].share == 0
        assert codes(found) == {"untouched": False}
    sql = script("select 1", path="a.sql", language="sql")
    assert run_outcome(CASES, sql).message == "there is no code in Python or R to run"


def test_runs_clean_counts_cells() -> None:
    found = run_outcome(RunsClean(), book("a = 1", "b = 1\nc = nope", "d = a"))
    assert found.earned == pytest.approx(2 / 3)
    assert found.message == (
        "2 of 3 code cells ran without an error; "
        "the first that did not stopped with NameError: name 'nope' is not defined"
    )
    assert found.location is not None
    assert (found.location.cell, found.location.line) == (2, 2)


def test_what_only_the_server_lacks_costs_nothing() -> None:
    def lacking(key: str, request: Request) -> Execution:
        execution = play(key, request)
        return execution.model_copy(update={"missing": ("nosuchthing",)})

    work = book("a = 1", "import nosuchthing as n", "b = n.x()", "c = a")
    knows = [book("import nosuchthing")]
    evidence = collected(RunsClean(), work, runs=lacking, solution=knows)
    found = evidence.criteria[0].outcomes[0]
    assert found.earned == 1
    assert "2 not counted because packages or files that the work needs are missing" in found.message
    assert codes(evidence)["missing_packages"] is False
    untold = run_outcome(RunsClean(), work)
    assert untold.earned == 0.5
    tested = collected(
        PassesTests(cases=(Case(expression="b", expected="1"),)), work, runs=lacking, solution=knows
    )
    assert codes(tested)["missing_packages"] is True
    only = collected(RunsClean(), book("import nosuchthing"), runs=lacking, solution=knows)
    assert only.criteria[0].share is None


def test_a_package_that_nothing_of_the_assignment_asks_for_is_the_works_error() -> None:
    def lacking(key: str, request: Request) -> Execution:
        execution = play(key, request)
        return (
            execution.model_copy(update={"missing": ("secretcourselib",)})
            if key.startswith("work:")
            else execution
        )

    forged = book("import secretcourselib\nprint('total', 4598)", outputs=shown("total 4598"), count=1)
    solution = [book("total = 4598\nprint('total', total)")]
    case = PassesTests(cases=(Case(expression="total", expected="4598"),))
    for check in (OutputEquals(), OutputClose(), OutputMatches(all_of=("total",)), RunsClean(), case):
        evidence = collected(check, forged, runs=lacking, solution=solution)
        assert evidence.criteria[0].share == 0
        assert codes(evidence) == {"unknown_packages": False}
        assert "secretcourselib" in evidence.flags[0].message


@pytest.mark.parametrize("end", ["left", "memory", "processes", "output", "too long"])
def test_outputs_of_work_that_ended_its_own_run_do_not_count(end: str) -> None:
    def ended(key: str, request: Request) -> Execution:
        if not key.startswith("work:"):
            return play(key, request)
        return Execution.model_validate({"end": end, "reason": "The program ended itself."})

    forged = book("import os; os._exit(0)", "print('total', 4598)", outputs=shown("total 4598"), count=1)
    solution = [book("rows = 19", "print('total', 4598)")]
    for check in (OutputEquals(), OutputClose(), OutputMatches(all_of=("total",)), RunsClean()):
        evidence = collected(check, forged, runs=ended, solution=solution)
        assert evidence.criteria[0].share == 0
        assert codes(evidence) == {"run_stopped": True}
        assert "The program ended itself" in evidence.flags[0].message


R_CODE = "twice <- function(x) x * 2\nprint(twice(2))"


@pytest.mark.parametrize("check", [CASES, OutputEquals(), OutputClose(values=(4,)), RunsClean()])
def test_a_file_in_another_language_earns_nothing_and_blames_no_test(check: Any) -> None:
    in_r = script(R_CODE, path="twice.R", language="r")
    for solution in ([SOLUTION], [python("print(4)", "twice.py")]):
        evidence = collected(check, in_r, solution=solution)
        outcome = evidence.criteria[0].outcomes[0]
        assert (outcome.earned, outcome.weight) == (0, 1)
        assert outcome.message == "twice.R is in R, and the assignment asks for Python"
        assert evidence.flags == ()
    other_book = notebook(cell(R_CODE, language="r", outputs=shown("4"), count=1), language="r")
    assert run_outcome(check, other_book, solution=[SOLUTION]).message.startswith("work.ipynb is in R, and")


def test_r_in_a_python_file_is_told_as_what_it_is() -> None:
    found = run_outcome(
        CASES, python(R_CODE.replace("print", "if (TRUE) print")), solution=[SOLUTION], runs=unread
    )
    assert found.earned == 0
    assert found.message == "work.py cannot be read as Python, but as R"


def unread(key: str, request: Request) -> Execution:
    """A script that does not parse."""
    if not key.startswith("work:"):
        return play(key, request)
    cells = (Played(number=1, state="failed", error="SyntaxError: invalid syntax"),)
    missing = Answer(state="error", error="NameError: name 'twice' is not defined")
    return Execution(end="finished", cells=cells, answers=(missing,) * len(request.expressions))


def test_a_file_that_only_the_student_has_costs_nothing_and_waits_for_a_person() -> None:
    work = book("a = 1", "t = open('mine.csv')", "n = len(t.read())", "c = 1 / 0", count=1)
    evidence = collected(RunsClean(), work)
    found = evidence.criteria[0].outcomes[0]
    assert "2 not counted because packages or files that the work needs" in found.message
    assert found.earned == 0.5  # the division is the student's own mistake
    assert codes(evidence)["outputs_as_submitted"] is True
    never_run = collected(RunsClean(), book("a = 1", "t = open('mine.csv')")).criteria[0]
    assert never_run.share == 0.5


def test_a_cell_without_end_is_held_for_a_person() -> None:
    def slow(key: str, request: Request) -> Execution:
        return Execution(end="finished", cells=(Played(number=1, state="too long"),))

    evidence = collected(RunsClean(), book("while True: pass", "a = 1"), runs=slow)
    assert evidence.criteria[0].outcomes[0].message.endswith("the first that did not took too long")
    assert codes(evidence)["run_stopped"] is True


def test_variables() -> None:
    check = VariableEquals(names=("total",), values={"mean": "2.5"})
    solution = python("total = 10\nmean = 2.5")
    assert run_outcome(check, python("total = 10.0\nmean = 5 / 2"), solution=[solution]).earned == 1
    found = run_outcome(check, python("mean = 2"), solution=[solution])
    assert found.message == "0 of 2 values are right; the first that failed: total is not defined"
    assert [(t.name, t.input, t.got, t.show) for t in found.tests] == [
        ("total", "", "", "name"),
        ("mean", "", "2", "name"),
    ]


def test_outputs_against_those_of_the_solution() -> None:
    check = OutputEquals()
    solution = book("print('rows', 19)", "print('total', 4598.0)\nprint('mean', 311.8333)")
    same = book("print('Rows:  19'.replace(':', ''))", "print('total', 4598)\nprint('mean', 311.83)")
    assert run_outcome(check, same, solution=[solution]).earned == 1
    found = run_outcome(
        check, book("print('rows', 19)", "print('total', 5282)\nprint('mean', 311.83)"), solution=[solution]
    )
    assert found.earned == 0.75
    assert found.message == (
        "1 of 2 outputs are right; the first that failed: output of “Task 1” has no line like “total 4598.0”"
    )
    as_script = python("print('rows', 19)\nprint('total', 4598)\nprint('mean', 311.8333)")
    assert run_outcome(check, as_script, solution=[solution]).earned == 1
    assert run_outcome(OutputEquals(text="rows 19\n"), as_script).earned == 1
    assert run_outcome(check, same).weight == 0


def test_a_notebook_submitted_without_outputs_shows_those_of_its_execution() -> None:
    work = book("print('total', 4598)")
    for check in (OutputClose(values=(4598,)), OutputMatches(all_of=("total",))):
        assert run_outcome(check, work).earned == 1
        assert collect([work], rubric_of(check)).criteria[0].outcomes[0].earned == 0
        # a script has outputs only when it is run
        assert run_outcome(check, python("print('total', 4598)")).earned == 1


def test_outputs_that_were_typed_in_do_not_count_when_the_work_runs() -> None:
    check = OutputClose(values=(4598,))
    faked = book("print(1)", outputs=shown("4598"))
    assert collect([faked], rubric_of(check)).criteria[0].outcomes[0].earned == 1
    assert run_outcome(check, faked).earned == 0
    broken = book("print(nope)", outputs=shown("4598"))
    assert run_outcome(check, broken).earned == 0


def test_outputs_count_as_submitted_where_only_a_file_is_lacking_until_a_person_looks() -> None:
    work = book("open('only-at-home.csv')", outputs=shown("4598"))
    evidence = collected(OutputClose(values=(4598,)), work)
    assert evidence.criteria[0].outcomes[0].earned == 1
    assert codes(evidence) == {"outputs_as_submitted": True}


def test_checks_inside_others_keep_their_tests() -> None:
    best = run_outcome(Alternatives(checks=(Uses(all_of=("nothing",)), CASES)), WRONG)
    assert best.earned == pytest.approx(2 / 3)
    assert len(best.tests) == 3
    ladder = Ladder(rungs=(Rung(when=(CASES,), credit=0.8),))
    climbed = run_outcome(ladder, RIGHT)
    assert (climbed.earned, climbed.message) == (0.8, "3 of 3 tests passed")


def test_much_of_it_is_bounded() -> None:
    cases = tuple(Case(expression=f"'{'x' * 2000}' + str(f({n}))", expected="1") for n in range(300))
    found = run_outcome(PassesTests(cases=cases), python("def f(x): return 'y' * 5000"))
    assert len(found.tests) == MAX_TESTS
    assert found.message.startswith("0 of 300 tests passed; the first that failed: ")
    assert len(found.message) < 1000
    longest = max(len(text) for t in found.tests for text in (t.name, t.input, t.expected, t.got, t.message))
    assert longest <= MAX_TEXT


def test_a_solution_that_fails_here_is_told_and_its_recorded_outputs_count() -> None:
    def failing(key: str, request: Request) -> Execution:
        if key.startswith("work:"):
            return play(key, request)
        cells = (Played(number=1, state="failed", error="ValueError: old"),)
        return Execution(end="finished", cells=cells)

    solution = book("print(4598)", outputs=shown("4598"))
    for check in (OutputEquals(), OutputClose()):
        evidence = collected(check, book("print(4598)"), solution=[solution], runs=failing)
        assert evidence.criteria[0].share == 1
        flag = next(f for f in evidence.flags if f.code == "tests_broken")
        assert "cell 1 of work.ipynb: the solution does not run (ValueError: old)" in flag.message


def test_cells_of_one_place_do_not_stand_for_each_other() -> None:
    cells = [cell(f"print({n})", language="python", place="Task 2") for n in (12, 34)]
    work = notebook(*cells, language="python")
    found = run_outcome(OutputEquals(show="everything"), work, solution=[work])
    assert (found.earned, [(t.expected, t.got) for t in found.tests]) == (1, [("12\n34", "12\n34")])


def test_repaired_paths_are_told() -> None:
    plan = planned(RunsClean(), python("x = '/q/a.csv'"), files={"data/a.csv": "1"})
    evidence = collect([], rubric_of(RunsClean()), (), Ran(plan, {}))
    assert evidence.flags == (*collect([], rubric_of(RunsClean())).flags,)
    work = python("x = '/q/a.csv'")
    executions = {key: play(key, request) for key, request in plan.requests.items()}
    (flag,) = collect([work], rubric_of(RunsClean()), (), Ran(plan, executions)).flags
    assert (flag.code, flag.hold) == ("path_repaired", False)
    assert "“/q/a.csv” was replaced by “data/a.csv”" in flag.message


def test_pictures_of_an_execution_count() -> None:
    plot = (Output(kind="display", image=True, text="Figure"),)

    def drawn(key: str, request: Request) -> Execution:
        return Execution(end="finished", cells=(Played(number=1, state="ran", outputs=plot),))

    work = book("draw()")
    solution = notebook(cell("plot()", language="python", outputs=plot), path="s.ipynb", language="python")
    assert run_outcome(OutputEquals(), work, solution=[solution], runs=drawn).earned == 1
    bare = run_outcome(
        OutputEquals(),
        work,
        solution=[solution],
        runs=lambda key, request: (
            drawn(key, request)
            if key.startswith("solution:")
            else Execution(end="finished", cells=(Played(number=1, state="ran"),))
        ),
    )
    assert bare.message.endswith("output has no picture")


STARTER_CELLS = ("# Task 2: print the total", "print('rows', 19)")


def two_cells(first: str, second: str, *, own: tuple[bool, bool] = (True, False), **how: Any) -> Document:
    """A place with two cells; `own` says of each whether it was changed."""
    cells = [
        cell(source, language="python", place="Task 2", added=None if mine else [])
        for source, mine in zip((first, second), own, strict=True)
    ]
    return notebook(*cells, language="python", **how)


@pytest.mark.parametrize("check", [OutputEquals(), OutputClose()])
def test_a_solution_passes_where_a_place_has_a_cell_that_was_given(check: OutputEquals | OutputClose) -> None:
    solution = two_cells("print('total', 4598)", "print('rows', 19)")
    same = run_outcome(check, solution, solution=[solution])
    assert same.earned == 1
    wrong = two_cells("print('total', 9)", "print('rows', 19)")
    assert run_outcome(check, wrong, solution=[solution]).earned == 0


def test_a_cell_that_was_given_and_shows_what_others_made_counts() -> None:
    solution = two_cells("total = 4598", "print('total', total)")
    assert run_outcome(OutputEquals(), solution, solution=[solution]).earned == 1
    wrong = two_cells("total = 9", "print('total', total)")
    assert run_outcome(OutputEquals(), wrong, solution=[solution]).earned == 0


def test_a_solution_that_does_not_print_what_a_check_expects_is_told() -> None:
    solution = python("print('total', 4598)")
    evidence = collected(OutputEquals(text="total 17"), python("print('total', 17)"), solution=[solution])
    assert evidence.criteria[0].share is None
    (flag,) = (f for f in evidence.flags if f.code == "tests_broken")
    assert (
        "output_equals: the solution does not pass this test (output has no line like “total 17”)"
        in flag.message
    )
    right = collected(OutputEquals(text="total 4598"), python("print('total', 4598)"), solution=[solution])
    assert right.criteria[0].share == 1
    assert right.flags == ()


ANSWER = "print('north', 'south', 'east')"
ORDERS = "from itertools import permutations\nfor p in permutations(['north', 'south', 'east']): print(*p)"
MANY = "for n in range(300): print('total', n)"
WORDS = "print(4598)\nfor a in range(120): print('a' * a, 'word')"


@pytest.mark.parametrize(
    ("check", "answer", "listing", "said"),
    [
        (OutputEquals(), ANSWER, ORDERS, "in 6 orders"),
        (OutputEquals(text="north south east"), ANSWER, ORDERS, "in 6 orders"),
        (OutputEquals(), "print('total', 42)", MANY, "300 lines"),
        (OutputEquals(), "print('total', 42)", MANY.replace("300", "90"), "89 more lines like one"),
        (OutputEquals(text="4598"), "print(4598)", WORDS, "121 lines"),
        (OutputClose(), "print('total', 42)", MANY, "300 numbers"),
        (OutputClose(values=(42,)), "print('total', 42)", MANY, "300 numbers"),
        (OutputMatches(all_of=(r"\b42\b",)), "print('total', 42)", MANY, "300 lines"),
        (OutputMatches(all_of=(r"\b42\b",)), "print(42)", "print(list(range(300)))", "300 numbers"),
    ],
)
def test_listing_every_answer_there_is_earns_nothing_and_is_held(
    check: Any, answer: str, listing: str, said: str
) -> None:
    solution = python(answer)
    evidence = collected(check, python(listing), solution=[solution])
    assert evidence.criteria[0].share == 0
    (flag,) = (f for f in evidence.flags if f.code == "output_surplus")
    assert flag.hold
    assert said in flag.message
    assert "42" not in flag.message
    assert "north" not in flag.message
    assert run_outcome(check, solution, solution=[solution]).earned == 1


def test_looking_around_beside_the_answer_costs_nothing() -> None:
    solution = book("rows = 19\nprint('rows', rows)", "print('total', 4598.5)")
    looks = (
        "for n in range(60): print(n, n * 2.5, 'x' * (n % 7))\nprint('rows', 19)\nprint([3, 1, 2], [1, 2, 3])"
    )
    work = book(looks, "print('subtotal', 12.25)\nprint('total', 4598.5)")
    for check in (OutputEquals(), OutputClose(), OutputMatches(all_of=("total",))):
        evidence = collected(check, work, solution=[solution])
        assert evidence.criteria[0].share == 1
        assert set(codes(evidence)) <= {"unexecuted"}
    sorted_now = python("print([3, 1, 2])\nprint([1, 2, 3])")
    assert run_outcome(OutputEquals(), sorted_now, solution=[python("print([1, 2, 3])")]).earned == 1
