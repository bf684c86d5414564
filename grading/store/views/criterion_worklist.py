"""One criterion across an assignment: the submissions that count, and who has graded the criterion of each.

A person graded a criterion by a change of a kind in `grading.domain.report_changes.GRADING` that is not
undone, the last one counts; or by marking the whole grade as reviewed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, aliased

from grading.domain.report_changes import GRADING
from grading.store.grades.final_score import counting_of_assignment
from grading.store.tables import Assignment, Change, Grade, Round, Submission, User


@dataclass(frozen=True)
class Grader:
    """A person who graded a criterion."""

    user_id: int
    name: str


@dataclass(frozen=True)
class CriterionEntry:
    """A submission, by one of its criteria."""

    submission_id: str
    student_id: int
    student: str
    number: int
    points: float | None
    grader: Grader | None
    """Who graded it; nobody as long as only checks and models did."""


@dataclass(frozen=True)
class CriterionProgress:
    """How many submissions are graded by a person, by one criterion."""

    total: int
    graded: int
    graders: tuple[tuple[Grader, int], ...]
    """Who graded how many, the most first."""

    @property
    def left(self) -> int:
        """Submissions that no person has graded."""
        return self.total - self.graded


Worklist = Mapping[str, tuple[CriterionEntry, ...]]
"""Criterion -> the counting submissions that have it in their grade, by name."""


def load_worklist(session: Session, assignment: Assignment, criterion: str = "") -> Worklist:
    """The submissions of one criterion, or of each criterion of their grades."""
    given = _graders(session, assignment, criterion)
    found: dict[str, list[CriterionEntry]] = defaultdict(list)
    for row in session.execute(_submissions(assignment)):
        reviewer = Grader(row.reviewed_by, row.reviewer or "") if row.reviewed_by is not None else None
        for name, points in row.criterion_points.items():
            if criterion in ("", name):
                grader = given.get((row.round_id, name), reviewer)
                found[name].append(
                    CriterionEntry(row.id, row.student_id, row.name, row.number, points, grader)
                )
    return {name: tuple(entries) for name, entries in found.items()}


def progress(entries: Sequence[CriterionEntry]) -> CriterionProgress:
    """How far a criterion is graded, and by whom."""
    counts = Counter(one.grader for one in entries if one.grader is not None)
    graders = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0].name.lower(), pair[0].user_id))
    return CriterionProgress(len(entries), sum(counts.values()), tuple(graders))


def open_after(entries: Sequence[CriterionEntry], submission_id: str = "") -> tuple[str, ...]:
    """The submissions that no person has graded: those after this one first, then those before it."""
    at = next((n + 1 for n, one in enumerate(entries) if one.submission_id == submission_id), 0)
    around = (*entries[at:], *entries[:at])
    return tuple(
        one.submission_id for one in around if one.grader is None and one.submission_id != submission_id
    )


def _submissions(assignment: Assignment) -> Select[Any]:
    reviewer = aliased(User)
    return (
        select(
            *(Submission.id, Submission.student_id, Submission.number, User.name),
            *(Round.id.label("round_id"), Grade.criterion_points, Grade.reviewed_by),
            reviewer.name.label("reviewer"),
        )
        .join(User, User.id == Submission.student_id)
        .join(Round, (Round.submission_id == Submission.id) & Round.current)
        .join(Grade, Grade.round_id == Round.id)
        .outerjoin(reviewer, reviewer.id == Grade.reviewed_by)
        .where(Submission.id.in_(counting_of_assignment(assignment)))
        .order_by(func.lower(User.name), Submission.id)
    )


def _graders(session: Session, assignment: Assignment, criterion: str) -> dict[tuple[str, str], Grader]:
    """(round, criterion) -> who graded it last, by a change that is not undone."""
    query = (
        select(Change.round_id, Change.target, Change.by, User.name)
        .join(Round, (Round.id == Change.round_id) & Round.current)
        .outerjoin(User, User.id == Change.by)
        .where(Change.submission_id.in_(counting_of_assignment(assignment)))
        .where(Change.kind.in_(GRADING), Change.undone_at.is_(None))
        .order_by(Change.id)
    )
    if criterion:
        query = query.where(Change.target == criterion)
    return {(row.round_id, row.target): Grader(row.by or 0, row.name or "") for row in session.execute(query)}
