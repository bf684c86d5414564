"""Tests by instructors against work in another process: what arrives there, what cannot be faked."""

from __future__ import annotations

from pathlib import Path

import pytest

from grading.execution import values as execution_values
from tests.integration.sandbox.python_sandboxes import commands, driver, run_tests

WORK = '''
"""A basket."""
import collections, math, sys, os
from dataclasses import dataclass

RATE = 3
Pair = collections.namedtuple("Pair", "x y")

class NoFruit(KeyError):
    def __init__(self, name):
        super().__init__(f"no {name}")
        self.name = name

class Basket:
    made = 0
    def __init__(self, *items):
        self.items = list(items)
        Basket.made += 1
    def add(self, item): self.items.append(item); return self
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __getitem__(self, i): return self.items[i]
    def __eq__(self, other): return isinstance(other, Basket) and self.items == other.items
    def __add__(self, other): return Basket(*self.items, *other.items)
    def __mul__(self, n): return Basket(*self.items * n)
    def __lt__(self, other): return len(self) < len(other)
    def __str__(self): return " and ".join(self.items)
    def __enter__(self): return self
    def __exit__(self, *error): self.items.clear()
    @property
    def first(self): return self.items[0]

class Stack(list):
    def push(self, item): self.append(item)

class Tree:
    def __contains__(self, item): return item == 3

def total(*numbers): return sum(numbers)
def same(value): return value
def rate(): return RATE
def missing(name): raise NoFruit(name)
def hello(name="you"): print("hello", name); print("careful", file=sys.stderr)
def greet(): return f"hello {input('name? ')}"
def lines(): return [line.strip() for line in sys.stdin]
def apply(function, values): return [function(value) for value in values]
def sort(values): values.sort()
def fill(table): table["x"] = [1]; return table
def naturals():
    n = 0
    while True:
        yield n
        n += 1
def endless():
    while True:
        try: pass
        except BaseException: pass
def leave(): sys.exit(3)
def vanish(): os._exit(0)
def interrupted(): raise KeyboardInterrupt
def skipped(): import unittest; raise unittest.SkipTest("no")
def make(): return Basket("apple")
'''

# what a class may define to pass for any result
LIAR = """
class Liar:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __sub__(self, other): return 0
    __rsub__ = __add__ = __radd__ = __round__ = __abs__ = __sub__
    def __hash__(self): return 0
    def __bool__(self): return True
    __class__ = int
class LiarInt(int):
    def __eq__(self, other): return True
    def __hash__(self): return 0
class LiarStr(str):
    def __eq__(self, other): return True
    def __hash__(self): return 0
class LiarList(list):
    def __eq__(self, other): return True
    def __contains__(self, item): return True
    def __len__(self): return 2
def total(*numbers): return Liar()
def number(): return LiarInt(7)
def text(): return LiarStr("no")
def items(): return LiarList([7])
class unittest:
    class TestCase: pass
class pytest:
    @staticmethod
    def raises(*kinds): return Liar()
def approx(*a): return Liar()
def isclose(*a): return True
len = sorted = set = print = lambda *a: 1
def test_mine(): pass
class TestMine:
    def test_mine(self): pass
"""


def outcomes(found: list[execution_values.Tested]) -> dict[str, str]:
    return {test.name: test.state for test in found}


def indented(source: str) -> str:
    return "".join(f"    {line}\n" for line in source.strip().splitlines())


def test_unittest_sees_the_work_as_a_module(tmp_path: Path) -> None:
    tests = """
import io, unittest
from contextlib import redirect_stdout
from unittest.mock import patch
import basket
from basket import *
from basket import Basket as B

class TestBasket(unittest.TestCase):
    def setUp(self): self.basket = basket.Basket("apple")
    def test_total(self): self.assertEqual(basket.total(1, 2), 3)
    def test_star(self): self.assertEqual(total(1, 2), 3)
    def test_wrong(self): self.assertEqual(basket.total(1, 2), 4, "the sum")
    def test_constant(self): self.assertEqual(basket.RATE, 3)
    def test_missing(self): basket.nothing()
    def test_hasattr(self): self.assertFalse(hasattr(basket, "nothing"))
    def test_own_error(self):
        with self.assertRaises(basket.NoFruit) as caught: basket.missing("pear")
        self.assertEqual(caught.exception.name, "pear")
    def test_builtin_error(self):
        with self.assertRaises(KeyError): basket.missing("pear")
    def test_other_error(self):
        with self.assertRaises(ValueError): basket.missing("pear")
    def test_printed(self):
        out = io.StringIO()
        with redirect_stdout(out): basket.hello("Ann")
        self.assertEqual(out.getvalue(), "hello Ann\\n")
    def test_input(self):
        with patch("builtins.input", side_effect=["Ann"]) as asked:
            self.assertEqual(basket.greet(), "hello Ann")
        asked.assert_called_once_with("name? ")
    def test_stdin(self):
        with patch("sys.stdin", io.StringIO("Ann\\nBo\\n")): self.assertEqual(basket.lines(), ["Ann", "Bo"])
    def test_no_input(self): basket.greet()
    def test_function(self): self.assertEqual(basket.apply(lambda x: basket.total(x, 1), [1, 2]), [2, 3])
    def test_function_fails(self):
        with self.assertRaises(ZeroDivisionError): basket.apply(lambda x: 1 / x, [0])
    def test_changed(self):
        values, table = [3, 1, 2], {}
        basket.sort(values)
        basket.fill(table)
        self.assertEqual((values, table), ([1, 2, 3], {"x": [1]}))
    def test_object(self):
        self.assertEqual(len(self.basket.add("pear")), 2)
        self.assertEqual(list(self.basket), ["apple", "pear"])
        self.assertEqual((self.basket[1], self.basket.first), ("pear", "apple"))
        self.assertEqual(str(self.basket), "apple and pear")
        self.assertIn("pear", self.basket)
        self.assertIsInstance(self.basket, B)
        self.assertNotIsInstance(self.basket, basket.Tree)
        self.basket.items = ["fig"]
        self.assertEqual(self.basket.items, ["fig"])
    def test_objects(self):
        self.assertEqual(self.basket, B("apple"))
        self.assertNotEqual(self.basket, B("pear"))
        self.assertEqual(self.basket + B("pear"), B("apple", "pear"))
        self.assertEqual(self.basket * 2, B("apple", "apple"))
        self.assertLess(B(), self.basket)
        self.assertNotEqual(self.basket, ["apple"])
        with self.basket as inside: self.assertIs(inside, self.basket)
        self.assertEqual(len(self.basket), 0)
    def test_class(self): self.assertGreater(basket.Basket.made, 0)
    def test_stack(self):
        stack = basket.Stack()
        stack.push(1)
        self.assertEqual((stack[0], len(stack)), (1, 1))
    def test_tree(self):
        self.assertIn(3, basket.Tree())
        self.assertNotIn(4, basket.Tree())
    def test_named_tuple(self):
        self.assertEqual(basket.Pair(1, 2).x, 1)
        self.assertEqual(basket.Pair(1, 2), (1, 2))
    def test_generator(self):
        numbers = basket.naturals()
        self.assertEqual([next(numbers), next(numbers)], [0, 1])
    def test_leave(self):
        with self.assertRaises(SystemExit): basket.leave()
    def test_leave_unexpected(self): basket.leave()
    def test_interrupted(self): basket.interrupted()
    def test_skipped(self): basket.skipped()
    def test_patched(self):
        with patch("basket.RATE", 5): self.assertEqual(basket.rate(), 5)
        with patch("basket.rate", return_value=9): self.assertEqual(basket.rate(), 9)
        self.assertEqual(basket.rate(), 3)
    def test_patched_badly(self):
        with patch("basket.RATE", io.StringIO()): pass
    def test_derived(self):
        class Mine(basket.Basket): pass
    def test_each(self):
        for number in range(3):
            with self.subTest(number=number): self.assertNotEqual(number, 1)
    @unittest.skip("later")
    def test_later(self): pass
    @unittest.expectedFailure
    def test_expected(self): self.fail()
"""
    found = run_tests(tmp_path, WORK, tests)
    states = {name.removeprefix("TestBasket.test_"): state for name, state in outcomes(found).items()}
    passed = {name for name, state in states.items() if state == "passed"}
    assert {name: state for name, state in states.items() if name not in passed} == {
        "wrong": "failed",
        "missing": "error",
        "other_error": "error",
        "no_input": "error",
        "leave_unexpected": "error",
        "interrupted": "error",
        "skipped": "error",
        "patched_badly": "error",
        "derived": "error",
        "each (number=1)": "failed",
        "later": "skipped",
    }
    assert len(passed) == 24
    said = {test.name.removeprefix("TestBasket.test_"): test.message for test in found}
    assert said["wrong"] == "3 != 4 : the sum"
    assert said["missing"] == "AttributeError: the work has no 'nothing'"
    assert said["no_input"] == "EOFError: nobody can type here, so input() has no answer"
    assert "cannot be patched" in said["patched_badly"]
    assert "cannot derive" in said["derived"]


def test_unittest_that_does_not_end_costs_only_itself(tmp_path: Path) -> None:
    tests = """
import unittest
import basket

class TestBasket(unittest.TestCase):
    def test_calls(self):
        while basket.total(1) == 1: pass
    def test_iteration(self): list(basket.naturals())
    def test_own(self):
        while True: pass
    def test_theirs(self): basket.endless()
    def test_total(self): self.assertEqual(basket.total(1, 2), 3)
"""
    found = run_tests(tmp_path, WORK, tests, seconds=0.3)
    states = {name.removeprefix("TestBasket.test_"): state for name, state in outcomes(found).items()}
    too_long = dict.fromkeys(("calls", "iteration", "own", "theirs"), "too long")
    assert states == too_long | {"total": "passed"}


def test_pytest_files_run_too(tmp_path: Path) -> None:
    tests = """
import pytest
import basket
from basket import Basket

@pytest.fixture
def full(): return Basket("apple")

@pytest.mark.parametrize("numbers, sum_", [((1, 2), 3), ((1, 1), 3)])
def test_total(numbers, sum_): assert basket.total(*numbers) == sum_
def test_printed(capsys):
    basket.hello()
    out, err = capsys.readouterr()
    assert (out, err) == ("hello you\\n", "careful\\n")
def test_raises():
    with pytest.raises(basket.NoFruit, match="no pear"): basket.missing("pear")
def test_stdin(monkeypatch):
    import io
    monkeypatch.setattr("sys.stdin", io.StringIO("Ann\\n"))
    assert basket.greet() == "hello Ann"
def test_constant(monkeypatch):
    monkeypatch.setattr(basket, "RATE", 7)
    assert basket.rate() == 7
def test_constant_again(): assert basket.rate() == 3
def test_fixture(full): assert len(full) == 1
def test_no_input(): basket.greet()
def test_leave(): basket.leave()
def test_interrupted(): basket.interrupted()
@pytest.mark.skip(reason="later")
def test_later(): pass
@pytest.mark.xfail
def test_expected(): assert basket.total() == 1
def test_no_fixture(nothing): pass
class TestInClass:
    def test_it(self): assert basket.total(0.1, 0.2) == pytest.approx(0.3)
"""
    found = run_tests(tmp_path, WORK, tests)
    states = outcomes(found)
    not_passed = {name: state for name, state in states.items() if state != "passed"}
    assert not_passed == {
        "test_total[numbers1-3]": "failed",
        "test_no_input": "error",
        "test_leave": "error",
        "test_interrupted": "error",
        "test_later": "skipped",
        "test_no_fixture": "error",
    }
    assert len(states) == 15
    said = {test.name: test.message for test in found}
    assert said["test_total[numbers1-3]"].startswith("assert 2 == 3")
    assert str(tmp_path) not in "".join(said.values())


def test_a_pytest_that_does_not_end_is_ended(tmp_path: Path) -> None:
    found = run_tests(tmp_path, WORK, "def test_endless():\n    while True: pass\n", seconds=0.3)
    assert outcomes(found) == {"test_endless": "too long"}


VALUES = {
    "plain": "None True 1 -5 2**53+1 -2**200 0.5 -0.0 1e300 1+2j 'ä\\udc80\\n' b'\\x00' ()".split(),
    "containers": [
        "[1, [2, (3, {4})]]",
        "{'a': 1, 2: 'b', (3,): None, 1.5: []}",
        "{frozenset({1}), (2, 3)}",
        "bytearray(b'ab')",
        "collections.Counter('aab')",
        "collections.deque([1])",
        "collections.OrderedDict(a=1)",
    ],
    "library": [
        "datetime.datetime(2024, 2, 29, 1, 2, 3, 4)",
        "datetime.date(2024, 2, 29)",
        "datetime.time(1, 2)",
        "datetime.timedelta(days=-1, microseconds=5)",
        "decimal.Decimal('1.10')",
        "fractions.Fraction(-1, 3)",
        "int",
        "ValueError",
    ],
}


def test_values_arrive_as_they_left(tmp_path: Path) -> None:
    values = [code for group in VALUES.values() for code in group]
    tests = (
        "import collections, datetime, decimal, fractions, math, unittest, basket\n"
        "class T(unittest.TestCase):\n"
    )
    for number, code in enumerate(values):
        tests += (
            f"    def test_{number}(self):\n        value = {code}\n"
            "        back = basket.same(value)\n"
            "        self.assertEqual(repr(back), repr(value))\n"
            "        self.assertIs(type(back), type(value))\n"
        )
    tests += "    def test_nan(self): self.assertTrue(math.isnan(basket.same(math.nan)))\n"
    tests += "    def test_error(self): self.assertEqual(basket.same(ValueError('x', 3)).args, ('x', 3))\n"
    tests += "    def test_none(self): basket.same(object())\n"
    found = run_tests(tmp_path, WORK, tests)
    wrong = [(test.name, test.message) for test in found if test.state != "passed"]
    sentence = "NotPlain: a object of the tests cannot be handed to the work, which runs in a box of its own"
    assert [test for test in wrong if test[0] not in ("T.test_none", "T.test_error")] == []
    assert dict(wrong)["T.test_none"] == sentence


def test_arrays_and_tables_arrive_as_they_left(tmp_path: Path) -> None:
    tests = """
import unittest
import numpy as np, pandas as pd
import basket
class T(unittest.TestCase):
    def back(self, value): return basket.same(value)
    def test_arrays(self):
        for array in (np.arange(6).reshape(2, 3), np.array([1.5, np.nan, np.inf]), np.array(["a", "bc"]),
                      np.array([True, False]), np.array([], dtype="int8"), np.array([1 + 2j]),
                      np.array(["2024-01-02", "NaT"], dtype="datetime64[D]"),
                      np.array([None, "a"], dtype=object)):
            back = self.back(array)
            np.testing.assert_array_equal(back, array)
            self.assertEqual(back.dtype, array.dtype)
    def test_scalar(self): self.assertIs(type(self.back(np.float32(0.5))), np.float32)
    def test_frames(self):
        for frame in (pd.DataFrame({"a": [1, 2], "b": ["x", None]}), pd.DataFrame({"a": [1.5]}, index=["p"]),
                      pd.DataFrame({"d": pd.to_datetime(["2024-01-02", None])}), pd.DataFrame({"a": []}),
                      pd.DataFrame({"a": [1, 2], "b": [1, 1], "c": [5, 6]}).groupby(["a", "b"]).sum()):
            pd.testing.assert_frame_equal(self.back(frame), frame, check_index_type=False)
    def test_series(self):
        series = pd.Series([1, 2], index=["p", "q"], name="n")
        pd.testing.assert_series_equal(self.back(series), series, check_index_type=False)
"""
    assert {
        test.name: test.message for test in run_tests(tmp_path, WORK, tests) if test.state != "passed"
    } == {}


def test_no_class_of_the_work_passes_for_a_result(tmp_path: Path) -> None:
    claims = [
        "self.assertEqual(basket.total(), 4)",
        "self.assertEqual(4, basket.total())",
        "self.assertAlmostEqual(basket.total(), 4)",
        "self.assertAlmostEqual(4, basket.total(), delta=1)",
        "self.assertGreater(basket.total(), 4)",
        "self.assertLessEqual(4, basket.total())",
        "self.assertIn(4, basket.total())",
        "self.assertIn(basket.total(), [4])",
        "self.assertIsInstance(basket.total(), int)",
        "self.assertEqual([basket.total()], [4])",
        "self.assertEqual({basket.total(): 1}, {4: 1})",
        "self.assertTrue(math.isclose(basket.total(), 4))",
        "self.assertEqual(basket.number(), 4)",
        "self.assertEqual(basket.text(), 'yes')",
        "self.assertEqual(basket.items(), [1, 2])",
        "self.assertIn(1, basket.items())",
        "self.assertEqual(len(basket.items()), 2)",
        "np.testing.assert_allclose(basket.total(), 4)",
        "with self.assertRaises(ValueError): basket.total()",
    ]
    tests = "import math, unittest, basket\nimport numpy as np\nfrom basket import *\n"
    tests += "class T(unittest.TestCase):\n"
    tests += "".join(f"    def test_{n}(self): {claim}\n" for n, claim in enumerate(claims[:-1]))
    tests += f"    def test_raises(self):\n        {claims[-1]}\n"
    found = run_tests(tmp_path, LIAR, tests)
    assert len(found) == len(claims)
    assert [test.name for test in found if test.state == "passed"] == []


def test_names_of_the_work_take_nothing_from_the_tests(tmp_path: Path) -> None:
    tests = """
import pytest
from pytest import approx
from math import isclose
from basket import *
def test_raises():
    with pytest.raises(ValueError): total()
def test_approx(): assert 3 == approx(4)
def test_isclose(): assert isclose(3, 4)
def test_len(): assert len([1, 2]) == 1
"""
    found = outcomes(run_tests(tmp_path, LIAR, tests))
    assert found == dict.fromkeys(("test_raises", "test_approx", "test_isclose", "test_len"), "failed")


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("import basket\ndef test_a(: pass\n", "line 2: invalid syntax"),
        ("import basket, not_here\ndef test_a(): pass\n", "ModuleNotFoundError: No module named 'not_here'"),
        ("import unittest, not_here\nclass T(unittest.TestCase): pass\n", "ModuleNotFoundError: No module"),
        ("import pytest\nimport basket\n", "the file has no tests"),
        ("import basket\n", "the file has no tests"),
        ("import sys\nsys.exit(0)\n", "SystemExit: 0"),
        (
            "import os\nfrom basket import nothing\n",
            "ImportError: cannot import name 'nothing' from 'basket'",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_one_error(tmp_path: Path, tests: str, message: str) -> None:
    (test,) = run_tests(tmp_path, WORK, tests)
    assert (test.name, test.state) == ("test_basket.py", "error")
    assert test.message.startswith(message)


def test_work_that_ends_itself_fails_its_test_and_the_rest_is_not_reached(tmp_path: Path) -> None:
    tests = "import unittest, basket\nclass T(unittest.TestCase):\n"
    tests += "".join(f"    def test_{n}(self): basket.vanish()\n" for n in range(3))
    tests += "    def test_own(self): self.assertEqual(1, 1)\n"
    states = list(outcomes(run_tests(tmp_path, WORK, tests)).values())
    assert states == ["error", "not reached", "not reached", "passed"]


@pytest.mark.parametrize(
    "reply",
    [
        {"ok": {"t": "nonsense"}},
        {"ok": {"t": "named", "n": "x y", "f": ["1"], "v": [1]}},
        {"ok": {"t": "ndarray", "d": "O8,V9", "s": [10**9], "v": []}},
        {"ok": {"t": "handle", "id": "x"}},
        {"ok": {"t": "builtin", "n": "exec"}},
        {"ok": {"t": "error", "v": {}}},
        {"raised": {"c": {"t": "builtin", "n": "KeyboardInterrupt"}, "a": [], "s": ""}},
        {"raised": {"c": 3, "a": [], "s": ""}},
        {"changed": {"0": [1]}},
        {"callback": 99, "a": [], "k": {}},
        {"out": 3},
        {},
    ],
)
def test_answers_that_the_work_made_up_are_at_most_an_error(tmp_path: Path, reply: dict[str, object]) -> None:
    _, tests_argv = commands()
    tests = (
        "import unittest, basket\nclass T(unittest.TestCase):\n    def test_a(self): assert basket.x == 3\n"
    )
    with driver(tests_argv, tmp_path / "tests") as held:
        file = {"path": "t.py", "source": tests, "seconds": 5}
        held.send({"do": "test", "module": "basket", "file": file})
        states = []
        sent = 0
        while (message := held.read()) is not None and message["event"] != "tests done":
            if message["event"] == "remote":
                sent += 1
                held.send({"do": "remote", "body": reply if sent == 1 else {"ok": 4}})
            else:
                states.append(message["state"])
        assert states in (["error"], ["failed"])
        assert held.end() == 0
