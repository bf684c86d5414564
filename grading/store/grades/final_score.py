"""Final score: report, people's changes and late credit combined, and stored in the grade."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, aliased

from grading.domain.lateness import Lateness, LateRule, lateness
from grading.domain.report import Report
from grading.domain.report_changes import Change
from grading.scoring import Settled, settled
from grading.store import tables
from grading.store.assignments.settings import due_of
from grading.store.bulk import chunks
from grading.store.tables import Assignment, Grade, Round, Submission, SubmissionMember


def list_changes(session: Session, round_id: str) -> list[Change]:
    """The changes of a round that are not undone, the first one first."""
    query = (
        select(tables.Change, tables.User.name)
        .outerjoin(tables.User, tables.User.id == tables.Change.by)
        .where(tables.Change.round_id == round_id, tables.Change.undone_at.is_(None))
        .order_by(tables.Change.id)
    )
    return [to_change(row, name or "") for row, name in session.execute(query)]


def to_change(row: Any, by: str) -> Change:
    """A row with the columns of a change as a value; `by` is the author's name."""
    fields = {**row.value, "id": row.id, "kind": row.kind, "target": row.target}
    return Change.model_validate({**fields, "reason": row.reason, "by": by})


def lateness_of(session: Session, submission: tables.Submission) -> Lateness:
    """Lateness of a submission by the present late rule."""
    assignment = submission.assignment
    due = due_of(session, assignment, submission.student_id)
    return lateness(submission.created_at, due, LateRule.model_validate(assignment.late or {}))


def update_final_score(session: Session, grade: tables.Grade) -> Settled:
    """Compute a grade's points again and store them; called after every change of what they depend on."""
    submission = session.get_one(tables.Submission, grade.submission_id)
    made = settled(
        Report.model_validate(grade.report),
        list_changes(session, grade.round_id),
        lateness_of(session, submission).credit,
    )
    grade.points, grade.points_so_far = made.points, made.report.points_so_far
    grade.adjustment, grade.credit, grade.final_points = made.adjustment, made.credit, made.final_points
    grade.criterion_points = {one.criterion: one.points for one in made.report.criteria}
    session.flush()
    return made


def counting_submissions(assignment_id: int, counts: str) -> Select[tuple[str]]:
    """A query for the ids of counting submissions; `counts` as in `Assignment.counts`.

    It jumps from student to student in an index, so its cost grows with students, not submissions.
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


def counting_of_assignment(assignment: Assignment) -> Select[tuple[str]]:
    """The counting submissions of an assignment, by its own rule."""
    return counting_submissions(assignment.id, assignment.counts)


def released_scores(session: Session, assignment_id: int, users: Sequence[int]) -> dict[int, tuple[Any, ...]]:
    """User -> (points, maximum, submission) of released grades; points are None after a withdrawal.

    Includes users whose grades were ever released. A newer submission that is not graded yet changes
    nothing.
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
