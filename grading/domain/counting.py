"""Which of a student's submissions of an assignment counts: the latest, or the best by known points."""

from __future__ import annotations

from collections.abc import Sequence

from grading.domain.base_value import Value


class Attempt(Value):
    """One of a student's submissions of an assignment."""

    id: str
    number: int
    points: float | None
    """None: not graded completely, or not for this reader."""


def counting(rule: str, attempts: Sequence[Attempt]) -> Attempt | None:
    """The one that counts by a rule of `Assignment.counts`; None where nobody can know yet."""
    if rule != "best":
        return max(attempts, key=lambda one: one.number, default=None)
    graded = [one for one in attempts if one.points is not None]
    return max(graded, key=lambda one: (one.points or 0.0, one.number), default=None)
