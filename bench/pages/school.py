"""How large a school of the benchmarks is, and what there is of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """How large the school is."""

    students: int = 300
    assignments: int = 20
    """Of each course."""
    submissions: int = 100_000
    courses: int = 1
    each: int = 1
    """Courses of a student; divides `courses`."""
    state: str = "graded"
    """Of all rounds: graded or queued."""
    audit: int = 0
    """Rows of the audit beside."""
    full: int | None = None
    """So many of the newest submissions, and those of the first course, have all rows and texts of the usual
    length; of the others retention left what it keeps, and texts are short. None: all are full."""

    @property
    def places(self) -> int:
        """Students of all courses together: each of a student's courses counts."""
        return self.students * self.each

    @property
    def newest(self) -> int:
        """Submissions of which two in three are not released: all of a turn, or each course's last."""
        return self.places * (self.assignments if self.courses == 1 else 1)


@dataclass(frozen=True)
class School:
    """What there is, by numbers."""

    course: int
    assignments: Sequence[int]
    """Of the first course; those of further courses follow them."""
    students: Sequence[int]
    staff: Mapping[str, int]
    version: int
    """The first assignment's rubric version; those of the others follow it."""
