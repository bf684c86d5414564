"""Which hand-in of each student counts for an assignment: the newest, or the one with the most points."""

from __future__ import annotations

from sqlalchemy import Select, func, select
from sqlalchemy.orm import aliased

from grading.store.tables import Assignment, Grade, Round, Submission


def counting(assignment_id: int, counts: str) -> Select[tuple[str]]:
    """The ids of these hand-ins; `counts` as in `Assignment.counts`.

    The students are found by jumping from one to the next in an index, so that this costs by the student and
    not by the hand-in.
    """
    mine = Submission.assignment_id == assignment_id
    first = select(func.min(Submission.student_id).label("id")).where(mine)
    students = first.cte("students", recursive=True)
    after = select(func.min(Submission.student_id)).where(mine, Submission.student_id > students.c.id)
    students = students.union_all(select(after.scalar_subquery()).where(students.c.id.is_not(None)))
    one = aliased(Submission)
    # tries of a rubric have numbers below 1
    mine_of = (one.assignment_id == assignment_id, one.student_id == students.c.id, one.number > 0)
    picked = select(one.id).where(*mine_of)
    if counts == "best":
        picked = (
            picked.outerjoin(Round, (Round.submission_id == one.id) & Round.current)
            .outerjoin(Grade, Grade.round_id == Round.id)
            .order_by(Grade.final_points.desc().nulls_last())
        )
    newest = picked.order_by(one.number.desc()).limit(1).correlate(students).scalar_subquery()
    return select(newest.label("id")).where(students.c.id.is_not(None))


def counts_of(assignment: Assignment) -> Select[tuple[str]]:
    """Those of an assignment, by its own rule."""
    return counting(assignment.id, assignment.counts)
