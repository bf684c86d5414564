"""A term on paper: courses with their deadlines, and when each submission comes; all from a seed.

Submissions crowd before a deadline: the rate is inversely proportional to the time that is left, as Alfi,
Parisi and Pietronero found it (Nature Physics 3, 746, 2007), and grows no more in the last minutes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

AN_HOUR = 3600.0
DAY_H = 24.0
WEEK_H = 7 * DAY_H
LEAST_SIZE, MOST_SIZE = 0.25, 4.0
"""Of a run's work, as a factor of a usual one."""


@dataclass(frozen=True)
class Rush:
    """How submissions spread over the time before a deadline."""

    opens_h: float = WEEK_H
    """Hours before the deadline at which the first ones come."""
    last_h: float = 1 / 6
    """Hours before the deadline from which on the rate grows no more: the shorter, the sharper the peak."""

    def share(self, hours: float) -> float:
        """Part of all submissions that comes within so many last hours."""
        return math.log1p(min(hours, self.opens_h) / self.last_h) / math.log1p(self.opens_h / self.last_h)

    def hours_left(self, share: float) -> float:
        """Hours before the deadline within which this part comes; the inverse of `share`."""
        return self.last_h * math.expm1(share * math.log1p(self.opens_h / self.last_h))


@dataclass(frozen=True)
class Course:
    """A course of a term."""

    name: str
    students: int
    deadlines_h: tuple[float, ...]
    """Hours since the term began."""
    taking_part: float = 0.85
    """Share of the students who submit for a deadline."""
    submissions: float = 1.5
    """Submissions of each of them for a deadline, on average: one, and more by chance."""
    regraded: float = 0.0
    """Share of the submissions of a deadline that is graded a second time."""
    work: float = 1.0
    """Work of a submission, as a factor of a usual one."""
    rush: Rush = Rush()


@dataclass(frozen=True, slots=True)
class Work:
    """A submission that comes, or comes again to be regraded."""

    at_s: float
    course: int
    week: int
    """Of its deadline, from 0."""
    again: bool = False
    """Not the first one of its student for this deadline."""
    batch: bool = False
    """Nobody waits for it."""
    sizes: tuple[float, ...] = ()
    """Work of its run of each stage, as a factor of a usual one; empty: usual ones."""


REGRADED_AFTER_H = 3 * DAY_H
SIZE_SPREAD = 0.25
"""Of the logarithm of a run's work."""


def arrivals(
    courses: Sequence[Course],
    seed: int = 1,
    growth: float = 1.0,
    stages: int = 1,
    weeks: Container[int] | None = None,
) -> list[Work]:
    """All submissions of a term in the order of their coming, with `growth` times the students.

    With `weeks`, from 0, only those for the deadlines of these.
    """
    found = [
        work
        for number, course in enumerate(courses)
        for deadline, at_h in enumerate(course.deadlines_h)
        if weeks is None or int(at_h // WEEK_H) in weeks
        for work in _of_deadline(
            random.Random(f"{seed} {number} {deadline}"),
            number,
            course,
            at_h,
            round(course.students * growth),
            stages,
        )
    ]
    return sorted(found, key=lambda work: work.at_s)


def _of_deadline(
    rng: random.Random, number: int, course: Course, at_h: float, students: int, stages: int
) -> Iterator[Work]:
    week = int(at_h // WEEK_H)
    came = 0
    for _ in range(students):
        if rng.random() >= course.taking_part:
            continue
        times = sorted(course.rush.hours_left(rng.random()) for _ in range(_count(rng, course.submissions)))
        for nth, left_h in enumerate(reversed(times)):
            came += 1
            at_s = max(0.0, at_h - left_h) * AN_HOUR
            yield Work(at_s, number, week, again=nth > 0, sizes=_sizes(rng, course.work, stages))
    for _ in range(round(came * course.regraded)):
        at_s = (at_h + REGRADED_AFTER_H) * AN_HOUR
        yield Work(at_s, number, week, again=True, batch=True, sizes=_sizes(rng, course.work, stages))


def _count(rng: random.Random, mean: float) -> int:
    """One, and a geometrically distributed number of further ones."""
    more, count = 1.0 - 1.0 / mean, 1
    while rng.random() < more:
        count += 1
    return count


def _sizes(rng: random.Random, usual: float, stages: int) -> tuple[float, ...]:
    """Of a submission's runs: how long the answer of a stage is says little of that of another one."""
    factors = (rng.lognormvariate(-(SIZE_SPREAD**2) / 2, SIZE_SPREAD) for _ in range(stages))
    return tuple([usual * min(MOST_SIZE, max(LEAST_SIZE, factor)) for factor in factors])
