"""Which hand-in of each student counts for an assignment: the newest, or the one with the most points."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, aliased

from grading.store.bulk import chunks
from grading.store.tables import Assignment, Grade, Round, Submission, SubmissionMember


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


def released_scores(session: Session, assignment_id: int, users: Sequence[int]) -> dict[int, tuple[Any, ...]]:
    """Who -> (points, of how many, hand-in) of what was released; no points where it was taken back.

    Of those whose grades were released or taken back at some time. A newer hand-in that is not graded yet
    takes nothing away.
    """
    assignment = session.get(Assignment, assignment_id)
    if assignment is None:
        return {}
    found: dict[int, list[Any]] = defaultdict(list)
    for some in chunks(users):
        for row in session.execute(_released_rows(assignment_id, some)):
            found[row.user_id].append(row)
    return {user: _counted_score(rows, assignment.counts) for user, rows in found.items()}


def _released_rows(assignment_id: int, users: Sequence[int]) -> Any:
    what = (Submission.id, Submission.created_at, Grade.final_points, Grade.max_points, Grade.released_at)
    seen = (
        Submission.assignment_id == assignment_id,
        Submission.number > 0,
        Grade.released_at.is_not(None) | Grade.released_by.is_not(None),
        Grade.final_points.is_not(None),
    )
    current = (Round.submission_id == Submission.id) & Round.current
    own = select(Submission.student_id.label("user_id"), *what).join(Round, current)
    own = own.join(Grade, Grade.round_id == Round.id).where(*seen, Submission.student_id.in_(users))
    member = SubmissionMember
    shared = select(member.user_id, *what).join(member, member.submission_id == Submission.id)
    shared = shared.join(Round, current).join(Grade, Grade.round_id == Round.id)
    return own.union_all(
        shared.where(*seen, member.user_id.in_(users), member.user_id != Submission.student_id)
    )


def _counted_score(rows: Sequence[Any], rule: str) -> tuple[Any, ...]:
    """The newest, or the one with the most points of those that are released."""
    released = [one for one in rows if one.released_at is not None]
    if rule == "best" and released:
        best = max(released, key=lambda one: (one.final_points, one.created_at))
    else:
        best = max(rows, key=lambda one: one.created_at)
    points = best.final_points if best.released_at is not None else None
    return points, best.max_points, best.id
