"""What the numbers on Home, in lists and in statistics count: each condition is written here once.

All of them are about submissions that count for students: neither dry runs nor tests by staff, and no
submission that another one of the same student replaces.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, or_, select, true
from sqlalchemy.orm import aliased

from grading.store.grades.final_score import counting_of_assignment
from grading.store.tables import Assignment, Grade, Membership, Round, Submission
from grading.store.tables.assignments import SAMPLE

WITHOUT_POINTS = -1.0
"""Sorts below all points."""


def to_review() -> ColumnElement[bool]:
    """Graded, whole or in part, and neither reviewed nor released."""
    return Grade.id.is_not(None) & Grade.reviewed_at.is_(None) & Grade.released_at.is_(None)


def held() -> ColumnElement[bool]:
    """Held for review, and not released since; a review ends it."""
    return (Grade.held == true()) & Grade.released_at.is_(None)


def by_students(course_id: Any) -> ColumnElement[bool]:
    """Submitted by or for a student: no dry run, and no test by the course's staff."""
    staff = exists().where(
        Membership.course_id == course_id,
        Membership.user_id == Submission.student_id,
        Membership.role != "student",
    )
    return (Submission.source != SAMPLE) & (Submission.number > 0) & ~staff


def student_submissions(assignment: Assignment) -> Select[str]:
    """Ids of the submissions of an assignment that count for its students."""
    chosen = counting_of_assignment(assignment).subquery()
    query = select(Submission.id).join(chosen, chosen.c.id == Submission.id)
    return query.where(by_students(assignment.course_id))


def counts_for_student() -> ColumnElement[bool]:
    """The same for few submissions of many assignments, in a query of Submission, Round and Assignment."""
    other = aliased(Submission)
    theirs, mine = _points(other), _points(Submission)
    newer = other.number > Submission.number
    better = or_(theirs > mine, and_(theirs == mine, newer))
    of_same = (other.assignment_id == Submission.assignment_id, other.student_id == Submission.student_id)
    # one condition for each rule, so that an index finds newer ones by their number
    replaced = case(
        (Assignment.counts == "best", exists().where(*of_same, better)), else_=exists().where(*of_same, newer)
    )
    return by_students(Round.course_id) & ~replaced


def _points(one: Any) -> ColumnElement[float]:
    """The final points of the current round of a submission of the query around."""
    round_, grade = aliased(Round), aliased(Grade)
    query = select(grade.final_points).join(round_, (round_.id == grade.round_id) & round_.current)
    mine = query.where(round_.submission_id == one.id).correlate(one)
    return func.coalesce(mine.scalar_subquery(), WITHOUT_POINTS)
