"""What is known of each submission that counts, for statistics. No names but for links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grading.statistics.finding_groups import Remark

LevelSource = Literal["blind", "before", "seen", "changed", "accepted"]
"""How a person came to a level: marked without having seen the grader's, marked before without Grader, marked
having seen the level, changed it, or reviewed the grade and left it as it was."""

BLIND: tuple[LevelSource, ...] = ("blind", "before")
"""Of these, who gave the level did not know the grader's."""


@dataclass(frozen=True)
class Judged:
    """A criterion in one submission."""

    criterion: str
    title: str
    stage: str
    max_points: float
    highest: int
    points: float | None
    """As they count, people's changes among them."""
    level: float | None
    """What grading gave, before anybody changed it."""
    by_model: bool
    """A language model had a part in it."""

    @property
    def share(self) -> float | None:
        """Points / highest points."""
        return None if self.points is None or self.max_points <= 0 else self.points / self.max_points


@dataclass(frozen=True)
class Tested:
    """One check of a criterion, or one test of a check, in one submission."""

    criterion: str
    label: str
    earned: float
    """From 0 to 1; of a test 0 or 1."""
    test: bool = False
    hidden: bool = False


@dataclass(frozen=True)
class PersonLevel:
    """The level one person gave a criterion of one submission, beside the grader's."""

    work: str
    criterion: str
    person: int
    level: float
    grader: float | None
    how: LevelSource


@dataclass(frozen=True)
class Took:
    """Seconds of one grading; nothing for what has not happened."""

    preparing: float | None = None
    """From the submission until its checks were done."""
    waiting: float | None = None
    """In the queue."""
    running: float | None = None
    """From being sent to machines to the grade."""
    total: float | None = None


@dataclass(frozen=True)
class StageRun:
    """The run whose result counts, of one stage of one submission."""

    stage: str
    machine: str
    model: str
    seconds: float | None
    output_tokens: int | None


@dataclass(frozen=True)
class Work:
    """A submission that counts, with its current grading."""

    id: str
    student: str
    number: int
    state: str
    final_points: float | None = None
    max_points: float | None = None
    held: bool = False
    to_review: bool = False
    reviewed: bool = False
    criteria: tuple[Judged, ...] = ()
    tested: tuple[Tested, ...] = ()
    remarks: tuple[Remark, ...] = ()
    took: Took = Took()


@dataclass(frozen=True)
class Works:
    """All submissions of an assignment that count, and what people and machines did with them."""

    students: int
    """Enrolled in the course."""
    works: tuple[Work, ...]
    levels: tuple[PersonLevel, ...] = ()
    runs: tuple[StageRun, ...] = ()
