"""What there is of an assignment, for the steps of its editor."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Integer, Select, Text, bindparam, cast, func, select
from sqlalchemy.orm import Session, aliased

from grading.assignments.editor.steps import Written
from grading.domain.errors import NotFound
from grading.domain.round_states import RoundState
from grading.store.assignments.versions import NO_RUBRIC
from grading.store.tables import Assignment, DryRun, DryRunRound, Round, RubricVersion

_TESTS = ("try", "rubric")
"""Purposes of runs that show what a version gives."""
_GRADED = (RoundState.GRADED, RoundState.PARTIAL)


def load_written(session: Session, assignment: Assignment) -> Written:
    """What its newest version has, in one query. Raises NotFound where it has none."""
    row: Any = session.execute(_newest(), {"assignment_id": assignment.id}).one_or_none()
    if row is None:
        raise NotFound(NO_RUBRIC)
    return Written(
        rubric=row.rubric,
        task=row.task,
        solution=row.solution,
        tested=row.tested,
        draft=row.published_at is None,
        published=row.published,
        due=assignment.due_at is not None,
        visible=assignment.visible,
    )


@cache
def _newest() -> Select[Any]:
    version, other, of_it = RubricVersion, aliased(RubricVersion), bindparam("assignment_id", type_=Integer)
    tested = (
        select(DryRun.id)
        .join(DryRunRound, DryRunRound.dry_run_id == DryRun.id)
        .join(Round, Round.id == DryRunRound.round_id)
        .where(DryRun.assignment_id == of_it, DryRun.rubric_version_id == version.id)
        .where(DryRun.purpose.in_(_TESTS), Round.state.in_(_GRADED))
    )
    published = select(other.id).where(other.assignment_id == of_it, other.published_at.is_not(None))
    query: Select[Any] = select(
        version.rubric,
        (func.trim(version.task) != "").label("task"),
        (cast(version.solution, Text) != "[]").label("solution"),
        tested.exists().label("tested"),
        version.published_at,
        published.exists().label("published"),
    )
    return query.where(version.assignment_id == of_it).order_by(version.number.desc()).limit(1)
