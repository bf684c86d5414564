"""The newest or oldest submissions of some courses, found without looking at those of other courses.

Submissions are ordered by time in the index of each assignment. One order over all of them would be walked
through millions of others where a course is new, or ended years ago: planners expect all courses everywhere.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, select, true
from sqlalchemy.orm import Session

from grading.store import tables


def is_lateral(session: Session) -> bool:
    """Whether the database can ask each assignment by itself; SQLite cannot."""
    return session.get_bind().dialect.name == "postgresql"


def of_courses(
    course_ids: Any,
    order: tuple[Any, ...],
    most: Any,
    *conditions: ColumnElement[bool],
    lateral: bool,
    oldest_first: bool = False,
) -> Select[Any]:
    """Id and time of submissions; the first `most` (None: all) in this order of time are among them.

    `lateral`: of each assignment by itself.
    """
    own, assignment = tables.Submission, tables.Assignment
    here = assignment.course_id.in_(course_ids)
    columns: Any = select(own.id, own.created_at).where(*conditions)
    if not lateral:
        columns = columns.where(own.assignment_id.in_(select(assignment.id).where(here)))
        found: Select[Any] = columns if most is None else columns.order_by(*order).limit(most)
        return found
    # equality and the order of time alone would let planners walk the index of the time of all submissions
    each = columns.where(own.assignment_id.between(assignment.id, assignment.id))
    if most is not None:
        first = own.assignment_id.asc() if oldest_first else own.assignment_id.desc()
        each = each.order_by(first, *order).limit(most)
    some = each.correlate(assignment).lateral()
    return select(some.c.id, some.c.created_at).select_from(assignment).join(some, true()).where(here)
