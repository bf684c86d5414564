from __future__ import annotations

import pytest

from grading.checks.kinds.combined import Ladder, Rung
from grading.checks.kinds.tests import Case, PassesTests, VariableEquals
from grading.checks.visibility import HIDDEN as HIDDEN_TEST
from grading.checks.visibility import UNNAMED, for_student
from grading.domain.document import Document
from grading.domain.evidence import CheckOutcome, Show
from grading.domain.report import CriterionGrade, Report
from grading.domain.round_states import RoundState
from tests.unit.checks.samples import script
from tests.unit.execution.samples import collected, run_outcome

SECRET = 31337
HIDDEN = 271828


def work(source: str) -> Document:
    return script(source, path="work.py", language="python")


WRONG = work("def f(x):\n    return x\nv = 5")


def suite(show: Show) -> PassesTests:
    return PassesTests(
        show=show,
        cases=(
            Case(name="in a box", expression="f(2)", expected=str(SECRET)),
            Case(name="nested", expression="[f(3)]", expected=f"[{SECRET}]"),
            Case(name="raises", expression="f()", expected=str(SECRET)),
            Case(name="quiet", expression=f"f({HIDDEN})", expected="0", hidden=True),
            Case(name="fine", expression="f(1)", expected="1"),
        ),
    )


@pytest.mark.parametrize(
    ("show", "message", "first"),
    [
        ("everything", f"f(2) gave 2, not {SECRET}", ("in a box", "f(2)", str(SECRET), "2")),
        ("input", "f(2) gave 2", ("in a box", "f(2)", "", "2")),
        ("name", "in a box", ("in a box", "", "", "")),
        ("nothing", "", (UNNAMED, "", "", "")),
    ],
)
def test_what_a_student_sees(show: Show, message: str, first: tuple[str, ...]) -> None:
    full = run_outcome(suite(show), WRONG)
    seen = for_student(full)
    head = "1 of 5 tests passed, 1 of those that failed is hidden"
    assert seen.message == (f"{head}; the first that failed: {message}" if message else head)
    test = seen.tests[0]
    assert (test.name, test.input, test.expected, test.got) == first
    assert [t.name for t in seen.tests if t.hidden] == [HIDDEN_TEST]
    assert len(seen.tests) == 5
    assert str(HIDDEN) not in seen.model_dump_json()
    assert "quiet" not in seen.model_dump_json()
    if show != "everything":
        assert str(SECRET) not in seen.model_dump_json()
    assert (seen.earned, seen.weight) == (full.earned, full.weight)
    assert str(SECRET) in full.model_dump_json()


def test_an_error_of_the_work_is_shown_with_its_input() -> None:
    seen = for_student(run_outcome(suite("input"), WRONG))
    assert seen.tests[2].message.startswith("raised TypeError")
    assert for_student(run_outcome(suite("name"), WRONG)).tests[2].message == ""


def test_what_a_test_file_says_is_not_shown_without_leave() -> None:
    tests = {"tests/test_f.py": f"def test_f(): assert work.f(1) == {SECRET}, {SECRET}\n"}
    for show, visible in (("everything", True), ("input", False), ("name", False)):
        check = PassesTests(tests="test_*.py", show=show)
        seen = for_student(run_outcome(check, WRONG, tests=tests))
        assert (str(SECRET) in seen.model_dump_json()) is visible
        assert "test_f" in seen.message


def test_values_and_ladders_tell_nothing_either() -> None:
    values = for_student(run_outcome(VariableEquals(values={"v": str(SECRET)}), WRONG))
    assert values.message == "0 of 1 value is right; the first that failed: v"
    assert str(SECRET) not in values.model_dump_json()
    inside = PassesTests(cases=(Case(expression="f(2)", expected=str(SECRET)),), cap=1)
    ladder = Ladder(rungs=(Rung(when=(inside,), credit=1),))
    assert str(SECRET) not in for_student(run_outcome(ladder, WRONG)).model_dump_json()


def test_everything_around_is_cleaned_too() -> None:
    solution = work("def f(x):\n    return x")
    evidence = collected(suite("name"), WRONG, solution=[solution])
    assert str(SECRET) in evidence.model_dump_json()
    seen = for_student(evidence)
    assert str(SECRET) not in seen.model_dump_json()
    assert "tests_broken" not in {flag.code for flag in seen.flags}
    outcomes = run_outcome(suite("name"), WRONG)
    grade = CriterionGrade(
        criterion="it",
        title="It",
        stage="analysis",
        points=1,
        max_points=1,
        level=1,
        highest=1,
        basis="checks",
        evidence=(outcomes,),
    )
    report = Report(
        status=RoundState.GRADED,
        criteria=(grade,),
        points=1,
        points_so_far=1,
        max_points=1,
        flags=evidence.flags,
    )
    assert str(SECRET) not in for_student(report).model_dump_json()
    assert for_student(evidence.criteria[0]) == seen.criteria[0]


def test_checks_without_tests_stay_as_they_are() -> None:
    outcome = CheckOutcome(check="a", label="a", earned=1, message="uses f; the first that failed: x")
    assert for_student(outcome) is outcome
