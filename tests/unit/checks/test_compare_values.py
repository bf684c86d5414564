from __future__ import annotations

from typing import Any

import pytest

from grading.checks.comparison.numbers import Tolerance
from grading.checks.comparison.values import compare
from grading.execution.values import Shape
from tests.unit.execution.samples import shape, table

NESTED = shape(1)
for _ in range(50):
    NESTED = Shape(kind="list", type="list", items=(NESTED,))


def r(*texts: str, names: tuple[str, ...] = (), type_: str = "numeric", kind: Any = "number") -> Shape:
    items = tuple(Shape(kind=kind, type=type_, text=text) for text in texts)
    return Shape(kind="list", type=type_, items=items, names=names)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (3, 3.0),
        (True, 1),
        (0.1 + 0.2, 0.3),
        (float("nan"), float("nan")),
        (float("-inf"), float("-inf")),
        (1 + 2j, 1 + 2j),
        (10**400, 10**400),
        ([1, [2.0, "a"]], [1.0, [2, "a"]]),
        ({1, 2}, {2, 1}),
        ({(1, 2), (3, 4)}, {(3, 4), (1, 2)}),
        ({0.1 + 0.2}, {0.3}),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1.0}),
        (None, None),
        ("", ""),
    ],
)
def test_values_that_are_the_same(expected: object, got: object) -> None:
    assert compare(shape(expected), shape(got)).same is True


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        (3, 4, "gave 4, not 3"),
        (3, "3", "gave text ('3'), not a number (3)"),
        (3, None, "gave nothing (None), not a number (3)"),
        ("a", "A", "gave 'A', not 'a'"),
        ([1, 2, 3], (1, 2, 3), "gave (1, 2, 3), not [1, 2, 3]"),
        ([1, 2], [1, 2, 3], "gave [1, 2, 3], not [1, 2]"),
        ([1, [2, 3]], [1, [2, 4]], "at [1][1]: 4, not 3"),
        ([[1, 2]], [[1]], "at [0]: it has 1 elements, not 2"),
        ({"a": 1}, {"a": 2}, "at ['a']: 2, not 1"),
        ({"a": 1}, {}, "has no 'a'"),
        ({}, {"b": 1}, "has 'b', which is not expected"),
        ({1, 2}, {1}, "gave {1}, not {1, 2}"),
        (10**20, 10**20 + 1, f"gave {10**20 + 1}, not {10**20}"),
        (float("nan"), 0.0, "gave 0.0, not nan"),
        (1 + 2j, 1 - 2j, "gave 1-2j, not 1+2j"),
        (True, False, "gave False, not True"),
        (None, False, "gave a truth value (False), not nothing (None)"),
    ],
)
def test_the_first_difference_is_said(expected: object, got: object, said: str) -> None:
    verdict = compare(shape(expected), shape(got))
    assert (verdict.same, str(verdict.difference)) == (False, said)


def test_tolerance_is_the_instructors() -> None:
    assert compare(shape(100.0), shape(101.0), Tolerance(0.02, 0)).same
    assert compare(shape(100), shape(101), Tolerance(0.02, 0)).same
    assert not compare(shape(100.0), shape(101.0)).same


def test_huge_whole_numbers_are_not_taken_for_infinity() -> None:
    numbers = [Shape(kind="number", type="int", text="9" * 5000 + digit) for digit in "12"]
    assert compare(numbers[0], numbers[1]).same is False
    assert compare(numbers[0], numbers[0]).same is True


def test_whole_numbers_are_not_rounded() -> None:
    """A factorial that is off by two is wrong, however large it is; unless a tolerance was asked for."""
    wrong = compare(shape(98712365402), shape(98712365400))
    assert not wrong.same
    assert compare(shape(98712365402), shape(98712365400), Tolerance(rel=1e-6)).same
    assert compare(shape(98712365402.0), shape(98712365400.0)).same


def test_arrays_are_as_good_as_lists_and_their_one_element() -> None:
    array = Shape(kind="list", type="numpy.ndarray", items=(shape(1), shape(2)))
    assert compare(shape((1, 2)), array).same
    assert compare(array, shape([1, 2])).same
    assert compare(shape(1), r("1")).same
    assert not compare(shape(1), shape([1])).same


def test_vectors_of_r() -> None:
    assert compare(r("1", "2", type_="integer"), r("1", "2", names=("a", "b"))).same
    assert not compare(r("1", "2", names=("a", "c")), r("1", "2", names=("a", "b"))).same
    assert compare(r("1", "2", names=("a", "b")), r("2", "1", names=("b", "a"))).same
    text = r("x", kind="text", type_="factor"), Shape(kind="text", type="character", text="x")
    assert compare(*text).same
    na, nan = Shape(kind="nothing", type="NA"), Shape(kind="number", type="numeric", text="nan")
    assert compare(na, nan).same
    assert not compare(na, Shape(kind="nothing", type="NULL")).same
    assert str(compare(r("1", "3"), r("1", "2")).difference) == "at [2]: 2, not 3"


SALES = table(order_id=[1.0, 2.0, 3.0], region=["N", "S", None], revenue=[1.5, 2.5, 0.1 + 0.2])


@pytest.mark.parametrize(
    ("got", "said"),
    [
        (table(Revenue=[1.5, 2.5, 0.3], region=["N", "S", None], **{"order.id": [1, 2, 3]}), ""),
        (table(order_id=[1, 2, 3], region=["N", "S", None]), "has no column revenue"),
        (table(**dict(zip(SALES.names, SALES.columns, strict=True)), x=[1, 2, 3]), "has a column x that is"),
        (table(order_id=[1], region=["N"], revenue=[1.5]), "has 1 rows, not 3"),
        (
            table(order_id=[1, 2, 3], region=["N", "W", None], revenue=[1.5, 2.5, 0.3]),
            "has 'W' in column region, row 2, not 'S'",
        ),
        (
            table(order_id=[3, 1, 2], region=[None, "N", "S"], revenue=[0.3, 1.5, 2.5]),
            "has 3 in column order_id, row 1, not 1",
        ),
    ],
)
def test_tables_are_compared_by_columns_and_rows(got: Shape, said: str) -> None:
    verdict = compare(SALES, got)
    assert verdict.same is (said == "")
    assert str(verdict.difference or "").startswith(said)


def test_rows_in_any_order_where_that_is_allowed() -> None:
    other = table(order_id=[3, 1, 2], region=[None, "N", "S"], revenue=[0.3, 1.5, 2.5])
    assert compare(SALES, other, ignore_row_order=True).same
    wrong = table(order_id=[3, 1, 2], region=[None, "N", "N"], revenue=[0.3, 1.5, 2.5])
    assert compare(SALES, wrong, ignore_row_order=True).same is False


def test_names_of_rows_may_be_a_column() -> None:
    by_region = table(region=["N", "S"], revenue=[1, 2])
    assert compare(by_region, table(**{"(index)": ["N", "S"]}, revenue=[1, 2])).same
    assert compare(table(**{"(index)": ["N", "S"]}, revenue=[1, 2]), by_region).same
    filtered = table(**{"(index)": [0, 5]}, region=["N", "S"], revenue=[1, 2])
    assert compare(by_region, filtered).same


def other(text: str, type_: str = "Point", **how: bool) -> Shape:
    return Shape(kind="other", type=type_, text=text, **how)


def test_what_cannot_be_compared_is_not_called_wrong() -> None:
    for text in ("", "<function f>", "Point at 0x7f001122"):
        assert compare(other(text), other(text)).same is None
        assert compare(other(text), other("x")).same is None
        # but nobody gets out of a test by what they return
        assert compare(other("x"), other(text)).same is False
    assert compare(other("Point(1)"), other("Point(1)")).same
    assert compare(other("Point(1)"), other("Point(2)")).same is False
    assert compare(other("<Colour.RED: 1>"), other("<Colour.RED: 1>")).same
    assert compare(other("x" * 100, cut=True), other("x" * 100, cut=True)).same is None
    assert compare(other("<function f>"), shape(3)).same is False
    picture = Shape(kind="picture")
    assert compare(picture, picture).same


def test_what_was_cut() -> None:
    whole, part = shape([1, 2]), shape([1, 2]).model_copy(update={"cut": True})
    assert compare(part, part).same
    assert str(compare(whole, part).difference) == "is longer than expected"
    assert str(compare(part, whole).difference) == "is shorter than expected"


def test_hostile_shapes_end() -> None:
    deep = NESTED
    for _ in range(30):
        deep = Shape(kind="list", type="list", items=(deep,))
    assert compare(deep, deep).same is False  # nobody gets out of a test by the depth of what they return
    wide = Shape(kind="set", type="set", items=tuple(shape(n + 0.5) for n in range(3000)))
    other_set = Shape(kind="set", type="set", items=tuple(shape(n + 0.25) for n in range(3000)))
    assert compare(wide, other_set).same is False
    broken = Shape(kind="table", names=("a", "b"), columns=((1.0,),))
    assert compare(SALES, broken).same is False
    assert compare(shape({}), Shape(kind="map", items=(shape(1),))).same is False


def test_shapes_that_no_language_makes_do_not_pass() -> None:
    right = Shape(kind="table", names=("a", "b"), columns=((1, 2), (3, 4)))
    for second in ((), (3,)):
        assert compare(right, right.model_copy(update={"columns": ((1, 2), second)})).same is False
    pairs = Shape(kind="set", type="set", items=tuple(shape((n, 2)) for n in range(10)))
    junk = Shape(kind="set", type="set", items=tuple(shape((n + 0.5, n)) for n in range(2, 15_000)))
    assert compare(pairs, junk).same is False
