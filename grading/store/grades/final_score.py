"""Grades after people's changes: report, changes and late rule put together, and kept in the grade."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.changes import Change
from grading.domain.lateness import Lateness, LateRule, lateness
from grading.domain.outcome import Report
from grading.scoring import Settled, settled
from grading.store import tables
from grading.store.assignments.settings import due_of


def changes_of(session: Session, round_id: str) -> list[Change]:
    """The changes of a round that were not undone, the first one first."""
    query = (
        select(tables.Change, tables.User.name)
        .outerjoin(tables.User, tables.User.id == tables.Change.by)
        .where(tables.Change.round_id == round_id, tables.Change.undone_at.is_(None))
        .order_by(tables.Change.id)
    )
    return [change_of(row, name or "") for row, name in session.execute(query)]


def change_of(row: Any, by: str) -> Change:
    """A row with the columns of a change as what it changes; `by` is the name of who made it."""
    said = {**row.value, "id": row.id, "kind": row.kind, "target": row.target}
    return Change.model_validate({**said, "reason": row.reason, "by": by})


def lateness_of(session: Session, submission: tables.Submission) -> Lateness:
    """How late a hand-in is, by the rule of now."""
    assignment = submission.assignment
    due = due_of(session, assignment, submission.student_id)
    return lateness(submission.created_at, due, LateRule.model_validate(assignment.late or {}))


def settle(session: Session, grade: tables.Grade) -> Settled:
    """Work the points of a grade out anew and keep them. For everybody who changes what they depend on."""
    submission = session.get_one(tables.Submission, grade.submission_id)
    made = settled(
        Report.model_validate(grade.report),
        changes_of(session, grade.round_id),
        lateness_of(session, submission).credit,
    )
    grade.points, grade.points_so_far = made.points, made.report.points_so_far
    grade.adjustment, grade.credit, grade.final_points = made.adjustment, made.credit, made.final_points
    grade.criterion_points = {one.criterion: one.points for one in made.report.criteria}
    session.flush()
    return made
