"""Assignments beside each other: how points of a course's assignments are spread, this year and others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from grading.statistics.distribution import Spread, spread


@dataclass(frozen=True)
class AssignmentPoints:
    """An assignment with the final points of all submissions that count, as shares of the highest."""

    id: int
    slug: str
    title: str
    due_at: datetime | None
    shares: tuple[float, ...]


@dataclass(frozen=True)
class ComparedAssignment:
    """The assignment of a slug in one course, and how its points are spread."""

    id: int
    title: str
    spread: Spread | None


@dataclass(frozen=True)
class Comparison:
    """An assignment of the first course, and of each other course the one with its slug, if there is one."""

    slug: str
    title: str
    courses: tuple[ComparedAssignment | None, ...]


def compare(
    first: Sequence[AssignmentPoints], others: Iterable[Sequence[AssignmentPoints]]
) -> tuple[Comparison, ...]:
    """The assignments of a course in its order, beside those of other courses."""
    known = [{one.slug: one for one in course} for course in (first, *others)]
    return tuple(
        Comparison(one.slug, one.title, tuple(_compared(course.get(one.slug)) for course in known))
        for one in first
    )


def _compared(one: AssignmentPoints | None) -> ComparedAssignment | None:
    return None if one is None else ComparedAssignment(one.id, one.title, spread(one.shares))
