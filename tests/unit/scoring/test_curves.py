"""Curves: each rule by hand, and what holds for all of them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.scoring.curves import Curve, Standing, distribution, moved

POINTS = (2.0, 4.0, 6.25, 8.0)
CLASS = [Standing(points=one, max_points=10, by_criterion={"a": one / 2, "b": None}) for one in POINTS]


@pytest.mark.parametrize(
    ("curve", "after"),
    [
        (Curve(kind="add", points=1.5), [3.5, 5.5, 7.75, 9.5]),
        (Curve(kind="add", points=3), [5, 7, 9.25, 10]),
        (Curve(kind="add", points=3, above=True), [5, 7, 9.25, 11]),
        (Curve(kind="add", points=-3), [0, 1, 3.25, 5]),
        (Curve(kind="best", points=10), [2.5, 5, 7.81, 10]),
        (Curve(kind="median", points=6), [2.34, 4.68, 7.32, 9.37]),
        (Curve(kind="floor", points=5), [5, 5, 6.25, 8]),
        (Curve(kind="root"), [4.47, 6.32, 7.91, 8.94]),
        (Curve(kind="floor", points=2, criterion="a"), [3, 4, 6.25, 8]),
        (Curve(kind="floor", points=2, criterion="b"), [2, 4, 6.25, 8]),
        (Curve(kind="floor", points=2, criterion="unknown"), [2, 4, 6.25, 8]),
    ],
)
def test_each_rule(curve: Curve, after: list[float]) -> None:
    highest = 5 if curve.criterion else 10
    assert [one.after for one in moved(curve, CLASS, highest)] == pytest.approx(after, abs=0.006)


def test_the_credit_of_a_late_submission_is_taken_afterwards() -> None:
    late = Standing(points=5, max_points=10, adjustment=1, credit=0.5)
    (one,) = moved(Curve(kind="floor", points=8), [late], 10)
    assert (one.delta, one.before, one.after) == (2, 3, 4)


def test_nobody_there_and_nobody_with_points() -> None:
    assert moved(Curve(kind="best", points=10), [], 10) == []
    zeros = [Standing(points=0, max_points=0)] * 2
    for kind in ("best", "median", "root"):
        assert [one.after for one in moved(Curve(kind=kind, points=5), zeros, 0)] == [0, 0]  # type: ignore[arg-type]


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=20),
    st.sampled_from(["add", "best", "median", "floor", "root"]),
    st.integers(-500, 1500),
    st.booleans(),
)
def test_order_stays_and_bounds_hold(points: list[int], kind: str, by: int, above: bool) -> None:
    grades = [Standing(points=one / 100, max_points=10) for one in points]
    curve = Curve.model_validate({"kind": kind, "points": by / 100, "above": above})
    found = moved(curve, grades, 10)
    assert all(one.after >= 0 for one in found)
    assert above or all(one.after <= 10 for one in found)
    pairs = sorted(zip(points, (one.after for one in found), strict=True))
    assert all(low[1] <= high[1] + 0.011 for low, high in itertools.pairwise(pairs))


def test_distribution() -> None:
    assert distribution([0, 0.9, 1, 9.99, 10, 12, -1], 10) == [3, 1, 0, 0, 0, 0, 0, 0, 0, 3]
    assert sum(distribution([1, 2], 0)) == 2
