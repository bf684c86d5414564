"""Points of all assignments of a course, for comparisons; read again only where something changed."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import exists, select
from sqlalchemy.orm import Session, aliased

from grading.domain.base_value import Value
from grading.statistics.comparison import AssignmentPoints
from grading.store.change_tracking import AssignmentCache
from grading.store.grades import counts
from grading.store.tables import Assignment, Course, Grade, Round, Submission

SharesCache = AssignmentCache[tuple[float, ...]]


class OtherCourse(Value):
    """A course with assignments that have the slugs of another course's."""

    id: int
    title: str
    archived: bool


def load_points(session: Session, course_id: int, cached: SharesCache) -> tuple[AssignmentPoints, ...]:
    """The assignments of a course by due date, with the points of the submissions that count for students."""
    columns = (Assignment.id, Assignment.slug, Assignment.title, Assignment.due_at)
    order = (Assignment.due_at.is_(None), Assignment.due_at, Assignment.title)
    listed = session.execute(select(*columns).where(Assignment.course_id == course_id).order_by(*order)).all()
    shares = cached.of(session, {row.id: course_id for row in listed}, _load_shares)
    return tuple(AssignmentPoints(*row, shares[row.id]) for row in listed)


def _load_shares(session: Session, assignment_ids: Collection[int]) -> dict[int, tuple[float, ...]]:
    found: dict[int, list[float]] = {one: [] for one in assignment_ids}
    query = (
        select(Submission.assignment_id, Grade.final_points, Grade.max_points)
        .join(Assignment, Assignment.id == Submission.assignment_id)
        .join(Round, (Round.submission_id == Submission.id) & Round.current)
        .join(Grade, Grade.round_id == Round.id)
        .where(
            Submission.assignment_id.in_(assignment_ids),
            Grade.final_points.is_not(None),
            Grade.max_points > 0,
        )
        .where(counts.counts_for_student())
    )
    for assignment_id, points, most in session.execute(query):
        found[assignment_id].append((points or 0.0) / most)
    return {one: tuple(shares) for one, shares in found.items()}


def list_other_courses(
    session: Session, course_id: int, among: Collection[int] | None, limit: int
) -> list[OtherCourse]:
    """The newest courses that share a slug of an assignment with this one; of `among` only, unless None."""
    mine, theirs = aliased(Assignment), aliased(Assignment)
    shared = exists().where(
        theirs.course_id == Course.id, mine.slug == theirs.slug, mine.course_id == course_id
    )
    query = select(Course.id, Course.title, Course.archived).where(Course.id != course_id, shared)
    if among is not None:
        query = query.where(Course.id.in_(among))
    rows = session.execute(query.order_by(Course.id.desc()).limit(limit))
    return [OtherCourse.model_validate(row._mapping) for row in rows]
