"""What an adversary tried against the sandbox beyond tests/hostile, and what must not work again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from grading.checks import collect
from grading.checks.comparison import values
from grading.checks.comparison.numbers import MAX_DIGITS, number_of
from grading.checks.comparison.outputs import lines_of
from grading.checks.comparison.values import compare
from grading.checks.kinds.runs import OutputEquals, RunsClean
from grading.checks.kinds.tests import Case, PassesTests
from grading.checks.outputs import INDEX
from grading.checks.parsing.python import VALUE_MAGIC
from grading.checks.scope import first_comments
from grading.checks.visibility import for_student
from grading.config.settings import Limits, SandboxSettings
from grading.domain.check import Check
from grading.domain.evidence import Evidence
from grading.domain.rubric import Criterion, Rubric
from grading.execution.plan import make_plan
from grading.execution.results import Ran
from grading.execution.values import (
    Answer,
    Code,
    CodeLanguage,
    Execution,
    Expression,
    Played,
    Request,
    Shape,
    TestFile,
    Work,
)
from tests.unit.checks.samples import cell, notebook, script, shown
from workers.sandbox.backends import open_backend
from workers.sandbox.backends.base import Ending
from workers.sandbox.request_runner import MOST_PARTS, OBJECT, TOO_LARGE, Executor, Talk
from workers.sandbox.runtimes import find_runtime

LIMITS = Limits(seconds=60, cell_s=10, memory_mb=384)
SOON_S = 1.0
"""What takes the square of a text's length takes minutes instead."""


@pytest.fixture(scope="module")
def executor() -> Executor:
    """The real sandbox."""
    return Executor(open_backend("bubblewrap"), lambda language: find_runtime(language, SandboxSettings()))


def asked(
    executor: Executor,
    source: str,
    tests: str = "",
    expressions: Sequence[str] = (),
    language: CodeLanguage = "python",
    seconds: float = 10,
) -> Execution:
    """The execution of a script with a file of tests and expressions."""
    ending = {"python": "py", "r": "R"}[language]
    cells = (Code(number=1, source=source),)
    files = (TestFile(path=f"tests/test_it.{ending}", source=tests, seconds=seconds),) if tests else ()
    request = Request(
        work=Work(document=f"basket.{ending}", module="basket", language=language, cells=cells),
        as_main=False,
        expressions=tuple(Expression(code=code) for code in expressions),
        tests=files,
        limits=LIMITS,
    )
    return executor.run(request)


def passed(execution: Execution) -> set[str]:
    """Names of the tests that passed."""
    return {test.name for test in execution.tests if test.state == "passed"}


# --- files of tests -----------------------------------------------------------------------------------

ANY_ERROR = """\
import pytest
import basket

def test_unhandable():
    with pytest.raises(Exception):
        basket.large(-1)

def test_honest():
    with pytest.raises(ValueError):
        basket.right(-1)

def test_leaving():
    with pytest.raises(Exception):
        basket.leave(-1)

def test_gone():
    try:
        basket.leave(-1)
    except Exception:
        pass
"""


HANGING = """\
import pytest
import basket

def test_hanging():
    with pytest.raises(Exception):
        basket.hang(-1)
"""


def test_who_hangs_or_leaves_has_not_raised(executor: Executor) -> None:
    source = """
import os, time
def large(x): return [[]] * 10**6
def hang(x):
    while True: time.sleep(1)
def right(x): raise ValueError(x)
def leave(x): os._exit(0)
"""
    found = asked(executor, source, ANY_ERROR)
    assert passed(found) == {"test_honest"}
    assert len(found.tests) == 4
    (hung,) = asked(executor, source, HANGING, seconds=0.6).tests
    assert hung.state == "too long"


def test_a_class_that_cannot_be_set_up_costs_itself_only(executor: Executor) -> None:
    tests = """
import unittest
import basket

class A(unittest.TestCase):
    @classmethod
    def setUpClass(cls): basket.hang()
    def test_a(self): pass

class B(A):
    def test_b(self): pass

class C(unittest.TestCase):
    def test_c(self): self.assertEqual(basket.one(), 1)
"""
    found = asked(executor, "def hang():\n    while True: pass\n\ndef one(): return 1\n", tests, seconds=0.6)
    assert passed(found) == {"C.test_c"}
    assert len(found.tests) == 3


PLAIN_VALUES = """\
import unittest
import basket

class T(unittest.TestCase):
    def test_equals(self):
        self.assertTrue(basket.make(1).equals([1, 2, 3]))

    def test_subset(self):
        self.assertTrue(basket.make(1).issubset({1}))

    def test_in_a_function_s_result(self):
        self.assertIn("apple", basket.total(1))

    def test_own_class(self):
        self.assertIn("apple", basket.Basket("apple"))

    def test_own_equals(self):
        self.assertTrue(basket.Basket("apple").equals(basket.Basket("apple")))
"""


def test_no_object_tells_whether_it_is_the_plain_value_that_is_expected(executor: Executor) -> None:
    source = """
class Yes:
    def __init__(self, *a): pass
    def __getattr__(self, name): return lambda *a: True
    def __contains__(self, x): return True
    def __iter__(self): return iter([1, 2])
total = make = Yes

class Basket:
    def __init__(self, *items): self.items = items
    def __contains__(self, x): return x in self.items
    def equals(self, other): return self.items == other.items
"""
    assert passed(asked(executor, source, PLAIN_VALUES)) == {"T.test_own_class", "T.test_own_equals"}


FORGED = """\
import pytest
from basket import total

def test_first():
    assert total(5) == 5

@pytest.mark.parametrize("n", range(9))
def test_each(n):
    assert total(n)
"""


@pytest.mark.parametrize(
    "reply", ['{"t": "_eq__"}', '{"t": "ndarray", "d": "<U400000000", "s": [1], "v": ["a"]}']
)
def test_forged_replies_neither_pass_nor_end_the_tests(executor: Executor, reply: str) -> None:
    source = f"""
import sys
def total(n):
    if n == 5:
        return 5
    server = sys.modules["python_object_server"]
    server.Keeper.serve = lambda *a: {{"ok": {reply}, "out": "", "err": ""}}
"""
    found = asked(executor, source, FORGED)
    assert len(found.tests) == 10
    assert passed(found) <= {"test_first"}


R_VALUES = """\
test_that("plain equal", expect_true(total(1) == 1))
test_that("plain all.equal", expect_true(isTRUE(all.equal(total(3), 3))))
test_that("plain sum", expect_true(all(total(3) == c(1, 2, 3))))
test_that("own", expect_true(total(1) == total(1)))
test_that("own product", expect_equal((total(2) * 2)$n, 4))
test_that("gone", expect_error(leave()))
test_that("still gone", expect_error(leave()))
"""


def test_objects_of_r_say_nothing_about_plain_values_and_leaving_is_no_error(executor: Executor) -> None:
    source = """
total <- function(x) { e <- new.env(); e$n <- x; class(e) <- "mo.ney"; e }
`==.mo.ney` <- function(e1, e2) TRUE
`*.mo.ney` <- function(e1, e2) total(e1$n * e2)
all.equal.mo.ney <- function(...) TRUE
Ops.mo.ney <- function(e1, e2) TRUE
leave <- function() tools::pskill(Sys.getpid(), 9L)
"""
    found = asked(executor, source, R_VALUES, language="r")
    assert passed(found) == {"own", "own product"}
    assert len(found.tests) == 7


# --- hidden tests -------------------------------------------------------------------------------------


def test_what_is_shown_was_asked_before_anything_hidden(executor: Executor) -> None:
    source = """
from pathlib import Path
def f(x):
    seen = Path("/tmp/seen")
    told = seen.read_text() if seen.exists() else ""
    seen.write_text(told + repr(x))
    return told
"""
    hidden = PassesTests(id="h", cases=(Case(expression="f(40213579)", expected="1"),), hidden=True)
    cases = (
        Case(expression="f(40213580)", expected="1", hidden=True),
        Case(expression="f(3)", expected="1"),
    )
    files = PassesTests(id="t", tests="test_it.py")
    rubric = Rubric(
        criteria=(
            Criterion(id="a", title="A", points=1, checks=(hidden,)),
            Criterion(id="b", title="B", points=1, checks=(PassesTests(cases=cases), files)),
        )
    )
    work = script(source, path="basket.py", language="python")
    plan = make_plan([work], rubric, (), files={}, tests={"tests/test_it.py": ""}, limits=LIMITS)
    [key] = [key for key in plan.requests if key.startswith("work:")]
    assert [e.code for e in plan.requests[key].expressions] == ["f(3)", "f(40213579)", "f(40213580)"]
    made = {key: executor.run(request) for key, request in plan.requests.items()}
    evidence = collect([work], rubric, (), Ran(plan, made))
    assert "4021357" in made[key].model_dump_json()
    assert "4021357" not in for_student(evidence).model_dump_json()


# --- honest work --------------------------------------------------------------------------------------


def test_sets_of_texts_have_the_same_order_in_every_run(executor: Executor) -> None:
    source = "print(list(set('abcdefghijkl')), hash('x'))"
    runs = [asked(executor, source).cells[0].outputs for _ in range(2)]
    assert runs[0] == runs[1] != ()


def test_settings_of_r_do_not_break_the_run(executor: Executor) -> None:
    source = "options(warn = 2)\ncloseAllConnections()\nf <- function(x) x\nsource('nofile.R')"
    found = asked(executor, source, expressions=["f(1)", "f(2)", "as.integer('x')"], language="r")
    assert (found.end, found.cells[0].state) == ("finished", "failed")
    assert [answer.state for answer in found.answers] == ["value", "value", "error"]


# --- excuses ------------------------------------------------------------------------------------------


def judged(check: Check, sources: Sequence[tuple[str, str, str]], missing: tuple[str, ...] = ()) -> Evidence:
    """Evidence of a notebook: outputs as submitted, state and error of each cell. The solution prints 42."""
    work = notebook(
        *(cell("x = 1", language="python", outputs=shown(s)) for s, _, _ in sources), language="python"
    )
    solved = notebook(cell("print(42)", language="python", outputs=shown("42")), language="python")
    rubric = Rubric(criteria=(Criterion(id="a", title="A", points=1, checks=(check,)),))
    plan = make_plan([work], rubric, [solved], files={}, tests={}, limits=LIMITS)
    cells = tuple(
        Played.model_validate({"number": n, "state": state, "error": error})
        for n, (_, state, error) in enumerate(sources, start=1)
    )
    theirs = (Played(number=1, state="ran", outputs=shown("42")),)
    made = {
        key: Execution(end="finished", cells=cells if key.startswith("work:") else theirs, missing=missing)
        for key in plan.requests
    }
    return collect([work], rubric, [solved], Ran(plan, made))


def test_a_made_up_import_excuses_nothing() -> None:
    sources = [
        ("", "failed", "ModuleNotFoundError: No module named 'nothing_xyz'"),
        ("", "failed", "NameError: name 'n' is not defined"),
        ("", "failed", "ZeroDivisionError: division by zero"),
        ("", "ran", ""),
    ]
    found = judged(RunsClean(), sources, ("nothing_xyz",)).criteria[0].outcomes[0]
    assert found.earned == 0.25


def test_outputs_that_count_as_submitted_beside_a_solution_that_runs_wait_for_a_person() -> None:
    evidence = judged(OutputEquals(), [("42", "failed", "FileNotFoundError: x")])
    assert {flag.code: flag.hold for flag in evidence.flags}["outputs_as_submitted"] is True


def test_no_value_is_so_large_that_its_test_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_NODES", 20_000)

    def tuples(last: float) -> Shape:
        rows = [
            Shape(
                kind="list",
                type="tuple",
                items=tuple(Shape(kind="number", text=str(n)) for n in (*range(39), row + last)),
            )
            for row in range(100)
        ]
        return Shape(kind="set", type="set", items=tuple(rows))

    assert compare(tuples(0.25), tuples(0.5)).same is False


# --- the server's own time and memory -----------------------------------------------------------------


def test_hostile_text_takes_no_square_of_its_length() -> None:
    began = time.process_time()
    lines_of("\x1b]" * 250_000)
    INDEX.sub(" ", "\n" * 500_000)
    VALUE_MAGIC.match(" " * 300_000)
    first_comments(cell("#" + " " * 300_000 + "x"))
    assert time.process_time() - began < SOON_S


def test_texts_of_numbers_are_not_kept() -> None:
    assert number_of("9" * (MAX_DIGITS + 1)) is None
    assert number_of("0." + "1" * MAX_DIGITS) is None
    assert number_of("1e3") == 1000


@dataclass
class Script:
    """A sandbox that says what is written here."""

    messages: list[dict[str, object]]

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def send(self, message: object) -> None:
        """What is asked does not matter."""

    def receive(self, timeout_s: float) -> dict[str, object] | None:
        return self.messages.pop(0) if self.messages else None

    def close(self) -> Ending:
        return Ending("finished")


def test_values_of_an_execution_have_a_bound_together() -> None:
    value = {"kind": "list", "items": [{"kind": "nothing"}] * (MOST_PARTS // OBJECT // 3)}
    large: dict[str, object] = {"event": "answer", "state": "value", "value": value}
    small: dict[str, object] = {"event": "answer", "state": "value", "value": {"kind": "nothing"}}
    outputs: list[dict[str, object]] = [{"kind": "stream"}] * (MOST_PARTS // OBJECT)
    cell_s: dict[str, object] = {"event": "cell", "number": 1, "state": "ran", "outputs": outputs}
    work = Work(language="python", cells=(Code(number=1, source=""),))
    request = Request(work=work, expressions=tuple(Expression(code=str(n)) for n in range(4)))
    talk = Talk(request, Script([large, large, large, small]))
    assert talk.ask()
    assert [answer == TOO_LARGE for answer in talk.answers] == [False, False, True, False]
    assert isinstance(talk.answers[3], Answer)
    played = Talk(request, Script([cell_s, {"event": "played"}]))
    assert played.play()
    assert played.cells[1].outputs == ()
