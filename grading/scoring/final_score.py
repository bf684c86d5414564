"""What a grade comes to in the end: the report's points, the adjustment, and late credit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grading.domain.base_value import Value
from grading.domain.report import Report
from grading.domain.report_changes import Change
from grading.scoring.changes import changed


class Settled(Value):
    """A grade with people's changes."""

    report: Report
    """With the changes put in."""
    points: float | None
    """Of the rubric; nothing while there is no total."""
    adjustment: float
    credit: float
    final_points: float | None
    """What counts: never below zero, and above the highest points only by bonus or an adjustment upwards."""


def settled(report: Report, changes: Sequence[Change], credit: float = 1.0) -> Settled:
    """final = (points + adjustment) × credit, rounded to hundredths."""
    now = changed(report, changes)
    adjustment = round(sum(one.points or 0.0 for one in _last_adjustments(changes)), 2)
    total = None if now.points is None else counted(now.points, adjustment, now.max_points, credit)
    return Settled(report=now, points=now.points, adjustment=adjustment, credit=credit, final_points=total)


def counted(points: float, adjustment: float, max_points: float, credit: float) -> float:
    """What so many points of a rubric come to with an adjustment and late credit."""
    # whoever is above by bonus keeps that, and what a person adds to it
    most = max(max_points, points) + max(adjustment, 0.0)
    return round(min(max(points + adjustment, 0.0), most) * credit, 2)


def _last_adjustments(changes: Sequence[Change]) -> Iterable[Change]:
    """One for each target: a curve (its bulk) or a person's own word counts once."""
    return {one.target: one for one in changes if one.kind == "adjust"}.values()
