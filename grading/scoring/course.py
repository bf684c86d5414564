"""What a student's grades of a course come to, and which of them are dropped. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from grading.domain.base_value import Value


class Counted(Value):
    """One assignment of a student."""

    points: float | None
    """What counts; nothing while that is not known, which is no zero."""
    max_points: float
    missing: bool = False
    """It was due, and nothing was submitted: that is known, and counts as no points."""

    @property
    def known(self) -> bool:
        """Whether it counts by now."""
        return self.points is not None or self.missing

    @property
    def share(self) -> float:
        """Of the points that there were."""
        return (self.points or 0.0) / self.max_points if self.max_points > 0 else 1.0


class CourseStanding(Value):
    """A student's course so far."""

    points: float
    max_points: float
    """Of what is known and not dropped."""
    dropped: frozenset[int]
    """Places of the assignments that do not count."""
    open: int
    """Assignments of which nothing is known yet."""


def course_standing(grades: Sequence[Counted], drop_lowest: int) -> CourseStanding:
    """The sum without the `drop_lowest` lowest shares; of equal ones the later is dropped, and one stays."""
    known = [place for place, one in enumerate(grades) if one.known]
    most = max(0, min(drop_lowest, len(known) - 1))
    dropped = frozenset(sorted(known, key=lambda place: (grades[place].share, -place))[:most])
    kept = [grades[place] for place in known if place not in dropped]
    return CourseStanding(
        points=round(sum(one.points or 0.0 for one in kept), 2),
        max_points=round(sum(one.max_points for one in kept), 2),
        dropped=dropped,
        open=len(grades) - len(known),
    )
