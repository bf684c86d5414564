"""Impact of a dry run on grades, before and after it is applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import and_, bindparam, func, or_, select
from sqlalchemy.orm import Session, aliased

from grading.domain.base_value import Value
from grading.domain.errors import NotFound
from grading.domain.messages import Message, define_message
from grading.domain.report import Report
from grading.scoring import settled
from grading.scoring.carry_over import Conflict
from grading.statistics.grade_impact import Points
from grading.store import tables
from grading.store.experiments.dry_runs import REASONS
from grading.store.review.carry_over import load_carry_over
from grading.store.tables.assignments import SAMPLE

NO_SUCH_SUBMISSION_IN_RUN = define_message(
    "impact.no_such_submission_in_run", "This submission is not in this dry run."
)

UNSEEN = (REASONS["try"], REASONS["rubric"], "examples")
MOST_READ = 500
"""Grades with people's changes whose reports are read for one page."""


class GradeImpact(Value):
    """The impact on one submission."""

    submission_id: str
    round_id: str
    sample: str
    """starter or solution; empty for a student's submission"""
    student: str
    number: int
    state: str
    failure: Message
    held: bool
    before: float | None
    before_max: float | None
    after: float | None
    after_max: float | None
    released: bool
    changes: int = 0
    """People's changes in the current grade."""
    old_grade: int | None = None
    new_grade: int | None = None

    @property
    def points(self) -> Points | None:
        """Points before and after, where both exist."""
        if self.before is None or self.after is None:
            return None
        return Points(self.before, self.before_max or 0.0, self.after, self.after_max or 0.0)

    @property
    def delta(self) -> float | None:
        """The difference; None where it is not known."""
        return self.points.delta if self.points is not None else None


class Impact(Value):
    """All of them, the largest differences first."""

    rows: tuple[GradeImpact, ...]
    conflicts: Mapping[str, tuple[Any, ...]]
    """Submission -> people's changes that do not fit any more."""


def load_impact(session: Session, dry_run: tables.DryRun) -> Impact:
    """The impact so far, with people's changes included; a constant number of queries."""
    rows = [_move(row) for row in session.execute(_of_dry_run(), {"dry_run": dry_run.id})]
    conflicts: dict[str, tuple[Conflict, ...]] = {}
    if dry_run.applied_at is None:
        rows, conflicts = _with_changes(session, rows)
    order = sorted(rows, key=lambda one: (one.delta is None, -abs(one.delta or 0.0), one.student, one.number))
    return Impact(rows=tuple(order), conflicts=conflicts)


def _counted() -> Any:
    """The current round of a submission, or the one that was current until the dry run was applied."""
    new, prev = tables.Round, aliased(tables.Round, name="prev")
    earlier = and_(new.current, prev.number < new.number, prev.reason.not_in(UNSEEN))
    return (
        select(prev.id)
        .where(prev.submission_id == new.submission_id, prev.id != new.id, or_(prev.current, earlier))
        .order_by(prev.current.desc(), prev.number.desc())
        .limit(1)
        .correlate(new)
        .scalar_subquery()
    )


@cache
def _of_dry_run() -> Any:
    return _query().where(tables.DryRunRound.dry_run_id == bindparam("dry_run"))


@cache
def _query() -> Any:
    link, new, grade = tables.DryRunRound, tables.Round, tables.Grade
    submission, before = tables.Submission, aliased(tables.Grade, name="before")
    changed = (
        select(func.count())
        .where(tables.Change.round_id == before.round_id, tables.Change.undone_at.is_(None))
        .correlate(before)
        .scalar_subquery()
    )
    return (
        select(
            new.submission_id,
            new.id.label("round_id"),
            submission.source,
            submission.number,
            submission.notes,
            tables.User.name.label("student"),
            new.state,
            new.failure,
            grade.held,
            grade.final_points.label("after"),
            grade.max_points.label("after_max"),
            before.final_points.label("before"),
            before.max_points.label("before_max"),
            before.released_at,
            changed.label("changes"),
            before.id.label("old_grade"),
            grade.id.label("new_grade"),
        )
        .join(link, link.round_id == new.id)
        .join(submission, submission.id == new.submission_id)
        .join(tables.User, tables.User.id == submission.student_id)
        .outerjoin(grade, grade.round_id == new.id)
        .outerjoin(before, before.round_id == _counted())
    )


def _move(row: Any) -> GradeImpact:
    tried = row.source == SAMPLE
    return GradeImpact(
        submission_id=row.submission_id,
        round_id=row.round_id,
        sample=str(row.notes[0]) if tried and row.notes else "",
        student=row.student,
        number=row.number,
        state=row.state,
        failure=row.failure,
        held=bool(row.held),
        before=row.before,
        before_max=row.before_max,
        after=row.after,
        after_max=row.after_max,
        released=row.released_at is not None,
        changes=row.changes or 0,
        old_grade=row.old_grade,
        new_grade=row.new_grade,
    )


def _with_changes(
    session: Session, rows: Sequence[GradeImpact]
) -> tuple[list[GradeImpact], dict[str, tuple[Conflict, ...]]]:
    """The points with people's changes; reports are read only where there are any."""
    conflicts: dict[str, tuple[Conflict, ...]] = {}
    found: list[GradeImpact] = []
    pairs = [(one.old_grade, one.new_grade) for one in rows if one.changes]
    known = load_carry_over(session, [(old, new) for old, new in pairs if old and new][:MOST_READ])
    for one in rows:
        with_it = known.get(one.new_grade or 0) if one.changes else None
        if with_it is not None:
            conflicts[one.submission_id] = with_it.kept.conflicts
            after = settled(with_it.report, with_it.kept.changes, with_it.credit).final_points
            one = one.model_copy(update={"after": after})
        found.append(one)
    return found, conflicts


class ReportPair(Value):
    """One submission of a dry run with the reports before and after."""

    move: GradeImpact
    before: Report | None
    after: Report | None


def load_reports(session: Session, dry_run: tables.DryRun, submission_id: str) -> ReportPair:
    """Both reports of one submission. Raises NotFound."""
    where = (
        tables.DryRunRound.dry_run_id == dry_run.id,
        tables.DryRunRound.submission_id == submission_id,
    )
    row = session.execute(_query().where(*where)).first()
    if row is None:
        raise NotFound(NO_SUCH_SUBMISSION_IN_RUN)
    move = _move(row)
    numbers = [number for number in (move.old_grade, move.new_grade) if number is not None]
    grades = session.scalars(select(tables.Grade).where(tables.Grade.id.in_(numbers)))
    reports = {one.id: Report.model_validate(one.report) for one in grades}
    return ReportPair(
        move=move, before=reports.get(move.old_grade or 0), after=reports.get(move.new_grade or 0)
    )
