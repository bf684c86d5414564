"""What grades of an assignment rest on: rubric version, models, weights, prompts; and where each one stands.

A guarantee holds for grades of one rubric version that the origins of its sample gave, no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.report_changes import GRADING
from grading.store.grades import counts
from grading.store.tables import Assignment, Change, Grade, Round, Submission, User

CHUNK_SIZE = 50
"""Reports in memory at a time."""
State = Literal["open", "held", "partial", "released", "reviewed", "withdrawn"]


class Origin(Value):
    """What graded a stage."""

    stage: str
    engine: str
    model: str
    digest: str = ""
    """Of the weights; empty where the engine names none."""
    prompt_version: str = ""


@dataclass(frozen=True)
class Level:
    """A criterion as it was graded."""

    title: str
    level: float | None
    highest: int


@dataclass(frozen=True)
class GradedSubmission:
    """A submission that counts, by its current grade."""

    submission_id: str
    student: str
    number: int
    round_id: str
    rubric_version_id: int
    graded_at: datetime
    held: bool
    """When it was graded, whatever a second opinion or a person said since."""
    state: State
    released_at: datetime | None
    levels: Mapping[str, Level]
    """By criterion, in the order of the report."""
    origins: frozenset[Origin]

    @property
    def whole(self) -> bool:
        """Whether each criterion has a level."""
        return bool(self.levels) and all(one.level is not None for one in self.levels.values())


def load_graded(session: Session, assignment: Assignment) -> dict[str, GradedSubmission]:
    """The graded submissions that count for students, by id."""
    return {one.submission_id: one for one in _graded(session, assignment)}


def _graded(session: Session, assignment: Assignment) -> Iterator[GradedSubmission]:
    chosen = counts.student_submissions(assignment).subquery()
    query = (
        select(
            *(
                Submission.id,
                Submission.number,
                User.name,
                Round.id.label("round_id"),
                Round.rubric_version_id,
            ),
            *(Grade.created_at, Grade.points, Grade.held, Grade.released_at, Grade.released_by),
            *(Grade.reviewed_at, Grade.report),
        )
        .join(chosen, chosen.c.id == Submission.id)
        .join(User, User.id == Submission.student_id)
        .join(Round, (Round.submission_id == Submission.id) & Round.current)
        .join(Grade, Grade.round_id == Round.id)
        .execution_options(yield_per=CHUNK_SIZE)
    )
    for row in session.execute(query):
        yield GradedSubmission(
            submission_id=row.id,
            student=row.name,
            number=row.number,
            round_id=row.round_id,
            rubric_version_id=row.rubric_version_id,
            graded_at=row.created_at,
            held=row.report["held"],
            state=_state(row),
            released_at=row.released_at,
            levels={
                one["criterion"]: Level(one["title"], one["level"], one["highest"])
                for one in row.report["criteria"]
            },
            origins=frozenset(_origins(row.report)),
        )


def _state(row: Any) -> State:
    if row.released_at is not None:
        return "released"
    if row.released_by is not None:
        return "withdrawn"
    if row.points is None:
        return "partial"
    if row.reviewed_at is not None:
        return "reviewed"
    return "held" if row.held else "open"


def _origins(report: Mapping[str, Any]) -> Iterator[Origin]:
    """What gave the levels; stages without criteria give none."""
    for stage in {one["stage"] for one in report["criteria"]} & report["stages"].keys():
        names = ("engine", "model", "digest", "prompt_version")
        origin = report["stages"][stage]
        yield Origin(stage=stage, **{name: origin.get(name) or "" for name in names})


def load_person_graded(session: Session, assignment: Assignment) -> set[tuple[str, str]]:
    """(round, criterion) that a person graded by a change that is not undone."""
    query = (
        select(Change.round_id, Change.target)
        .join(Submission, Submission.id == Change.submission_id)
        .where(Submission.assignment_id == assignment.id, Change.kind.in_(GRADING))
        .where(Change.undone_at.is_(None))
    )
    return {(row.round_id, row.target) for row in session.execute(query)}
