"""Grades whose lateness is judged otherwise as a date or the rule changed: worked out anew, and told."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session

from grading.assignments.editor.folder import Settings
from grading.domain.lateness import LateRule, lateness, own_due
from grading.domain.model import RoundState
from grading.domain.permissions import Actor
from grading.store.assignments.settings import change_settings
from grading.store.audit import note
from grading.store.bulk import chunks
from grading.store.grades import final_score, release
from grading.store.tables import Assignment, Extension, Grade, Round, Submission

ENDED = tuple(state.value for state in RoundState if state.final)


def apply_settings(session: Session, assignment: Assignment, settings: Settings, actor: Actor) -> int:
    """Keep the settings; how many grades have other points now, because they are late otherwise."""
    changed = change_settings(session, assignment, settings, actor)
    return settle(session, assignment, actor.name) if {"due_at", "late"} & changed else 0


def settle(
    session: Session, assignment: Assignment, actor: str, students: Sequence[int] | None = None
) -> int:
    """Those of an assignment, or of these students, that keep another part of their points now; how many.

    Whoever calls it has the assignment locked. Each grade that moves is written down, and who saw it hears.
    """
    mine: list[ColumnElement[bool]] = [Submission.assignment_id == assignment.id]
    mine += [] if students is None else [Submission.student_id.in_(students)]
    # a grade that is just being made may know the old date: it is waited for, and the next one knows the new
    under_way = select(Round.id).join(Submission, Submission.id == Round.submission_id)
    under_way = under_way.where(*mine, Round.state.not_in(ENDED)).order_by(Round.id)
    session.execute(under_way.with_for_update(of=Round, key_share=True))
    moved = _moved(session, assignment, mine)
    for some in chunks(moved):
        query = select(Grade).where(Grade.id.in_(some)).order_by(Grade.id).with_for_update()
        for grade in session.scalars(query.execution_options(populate_existing=True)).all():
            _settle(session, grade, actor)
    return len(moved)


def _moved(session: Session, assignment: Assignment, mine: Sequence[ColumnElement[bool]]) -> list[int]:
    own = Extension
    whose = and_(own.assignment_id == assignment.id, own.student_id == Submission.student_id)
    rows = session.execute(
        select(Grade.id, Grade.credit, Submission.created_at, own.due_at)
        .join(Submission, Submission.id == Grade.submission_id)
        .outerjoin(own, whose)
        .where(*mine)
        .order_by(Grade.id)
    )
    rule = LateRule.model_validate(assignment.late or {})
    return [
        row.id
        for row in rows
        if lateness(row.created_at, own_due(assignment.due_at, row.due_at), rule).credit != row.credit
    ]


def _settle(session: Session, grade: Grade, actor: str) -> None:
    was, credit = grade.final_points, grade.credit
    final_score.settle(session, grade)
    detail = {"credit": {"from": credit, "to": grade.credit}, "from": was, "to": grade.final_points}
    note(session, actor, "grade.late", f"submission:{grade.submission_id}", detail)
    if grade.released_at is not None and grade.final_points != was:
        release.tell(session, grade, "grade.changed", f"changed:{grade.round_id}:late:{grade.credit:g}")
