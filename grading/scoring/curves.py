"""Curves: rules that move the points of a whole class, and what they come to for each.

A curve looks at points before the credit of a late submission, of the total or of one criterion, and gives
points to add or take away. Nobody is moved below zero, and above the highest points only where wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import median
from typing import Literal

from pydantic import Field

from grading.domain.base_value import Value
from grading.scoring.final_score import counted

Kind = Literal["add", "best", "median", "floor", "root"]
"""add      so many points more (or less)
best     multiply, so that the best gets so many points
median   multiply, so that the median is so many points
floor    nobody has less than so many points
root     highest × √(points / highest)
"""
BINS = 10


class Curve(Value):
    """A rule for a class."""

    kind: Kind
    points: float = Field(default=0.0, ge=-10_000, le=10_000)
    """How many; of no use to `root`."""
    criterion: str = ""
    """Empty: the total."""
    above: bool = False
    """Whether somebody may get more than the highest points by it."""


class Standing(Value):
    """A grade as it stands: points in hundredths, of all criteria and of each."""

    points: float
    """Of the rubric."""
    max_points: float
    adjustment: float = 0.0
    credit: float = 1.0
    by_criterion: Mapping[str, float | None] = Field(default_factory=dict)


class Moved(Value):
    """What a curve does to one grade; before and after are what counts, with late credit."""

    delta: float
    """Points to add to the adjustment."""
    before: float
    after: float


def moved(curve: Curve, grades: Sequence[Standing], highest: float) -> list[Moved]:
    """What the curve does to each of these; `highest` are the points of the criterion, or of the rubric.

    A grade in which the criterion was not judged stays as it is.
    """
    found = [_looked_at(curve, one) for one in grades]
    known = [points for points in found if points is not None]
    after = [None if points is None else _after(curve, points, known, highest) for points in found]
    return [
        _moved(one, 0.0 if new is None or old is None else round(new - old, 2))
        for one, old, new in zip(grades, found, after, strict=True)
    ]


def _looked_at(curve: Curve, grade: Standing) -> float | None:
    if curve.criterion:
        return grade.by_criterion.get(curve.criterion)
    return grade.points + grade.adjustment


def _after(curve: Curve, points: float, everybody: Sequence[float], highest: float) -> float:
    new = points
    if curve.kind == "add":
        new = points + curve.points
    elif curve.kind == "floor":
        new = max(points, curve.points)
    elif curve.kind == "root" and highest > 0:
        # above the highest points, by bonus, the root would take away
        new = max(points, highest * sqrt(max(points, 0.0) / highest))
    elif curve.kind in ("best", "median"):
        now = max(everybody) if curve.kind == "best" else median(everybody)
        new = points * curve.points / now if now > 0 else points
    if not curve.above:
        new = min(new, max(highest, points))  # whoever is above already stays
    return max(new, 0.0)


def _moved(grade: Standing, delta: float) -> Moved:
    def counts(adjustment: float) -> float:
        return counted(grade.points, adjustment, grade.max_points, grade.credit)

    return Moved(
        delta=delta, before=counts(grade.adjustment), after=counts(round(grade.adjustment + delta, 2))
    )


def distribution(points: Iterable[float], highest: float, bins: int = BINS) -> list[int]:
    """How many grades lie in each of so many equal parts from 0 to `highest`; the last has what is above."""
    counts = [0] * bins
    for one in points:
        part = int(one / highest * bins) if highest > 0 else 0
        counts[min(max(part, 0), bins - 1)] += 1
    return counts
