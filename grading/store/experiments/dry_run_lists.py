"""Lists of gradings that do not count yet, and of the hand-ins that can be chosen for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from grading.store import tables
from grading.store.database import always
from grading.store.experiments.dry_runs import ENDED, REASONS

MOST_LISTED = 25
RECENT = 25


@dataclass(frozen=True, slots=True)
class DryRunLine:
    """A dry run in a list; counts of its rounds."""

    id: str
    purpose: str
    version: int
    by: str
    created_at: datetime
    applied_at: datetime | None
    discarded_at: datetime | None
    total: int
    ended: int

    @property
    def done(self) -> bool:
        """Whether all its gradings have ended."""
        return self.ended >= self.total

    @property
    def open(self) -> bool:
        """Whether something can still be decided."""
        return self.applied_at is None and self.discarded_at is None


def lines(session: Session, assignment_id: int, dry_run_id: str | None = None) -> list[DryRunLine]:
    """The dry runs of an assignment, or one of them, the newest first, in one query."""
    about = {"assignment_id": assignment_id, "dry_run_id": dry_run_id}
    return [DryRunLine(*row) for row in session.execute(_lines(dry_run_id is not None), about)]


@cache
def _lines(one: bool) -> Any:
    run, link, round_, version = tables.DryRun, tables.DryRunRound, tables.Round, tables.RubricVersion
    query: Any = (
        select(  # as a line has them
            run.id,
            run.purpose,
            version.number.label("version"),
            func.coalesce(tables.User.name, "").label("by"),
            run.created_at,
            run.applied_at,
            run.discarded_at,
            func.count(link.round_id).label("total"),
            func.count().filter(round_.state.in_(ENDED)).label("ended"),
        )
        .join(version, version.id == run.rubric_version_id)
        .outerjoin(tables.User, tables.User.id == run.by)
        .outerjoin(link, link.dry_run_id == run.id)
        .outerjoin(round_, round_.id == link.round_id)
        .group_by(run.id, version.number, tables.User.name)
        .order_by(run.created_at.desc(), run.id)
    )
    newest = select(run.id).where(
        run.assignment_id == bindparam("assignment_id"), run.purpose.in_(list(REASONS))
    )
    if one:
        newest = newest.where(run.id == bindparam("dry_run_id"))
    newest = newest.order_by(run.created_at.desc(), run.id).limit(MOST_LISTED)
    return query.where(run.id.in_(newest.subquery().select()))


@dataclass(frozen=True, slots=True)
class Recent:
    """A hand-in that can be chosen."""

    id: str
    student: str
    number: int
    points: float | None


def recent(session: Session, assignment_id: int) -> tuple[tuple[Recent, ...], bool]:
    """The newest hand-ins of an assignment, and whether there are more."""
    rows = session.execute(_recent(), {"assignment_id": assignment_id}).all()
    return tuple(Recent(*row) for row in rows[:RECENT]), len(rows) > RECENT


@cache
def _recent() -> Any:
    submission, round_, grade = tables.Submission, tables.Round, tables.Grade
    return (
        select(submission.id, tables.User.name.label("student"), submission.number, grade.final_points)
        .join(tables.User, tables.User.id == submission.student_id)
        .join(round_, (round_.submission_id == submission.id) & round_.current)
        .outerjoin(grade, grade.round_id == round_.id)
        .where(submission.assignment_id == bindparam("assignment_id"))
        .order_by(submission.created_at.desc(), submission.id)
        .limit(always(RECENT + 1))
    )


def states(session: Session, dry_run_id: str) -> dict[str, int]:
    """How many of its gradings are in each state."""
    link, round_ = tables.DryRunRound, tables.Round
    query = select(round_.state, func.count()).join(link, link.round_id == round_.id)
    rows = session.execute(query.where(link.dry_run_id == dry_run_id).group_by(round_.state))
    return {row[0]: row[1] for row in rows}
