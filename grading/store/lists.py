"""Lists of submissions and assignments, as frozen values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, false, func, select
from sqlalchemy.orm import Session, defer

from grading.late import Lateness, LateRule, lateness, own_due
from grading.rubric import Value
from grading.store import tables
from grading.store.door import counting_for
from grading.store.views import current_rounds

PER_PAGE = 25
MOST_COUNTED = 10_000
"""A list says "more than" instead of counting further."""


class SubmissionLine(Value):
    """A submission in a list."""

    id: str
    number: int
    course_id: int
    course: str
    assignment: str
    assignment_title: str
    student_id: int
    student: str
    state: str
    created_at: datetime
    points: float | None
    points_so_far: float | None
    max_points: float | None
    held: bool
    released: bool
    flags: tuple[str, ...]
    """Messages of the report's flags."""
    lateness: Lateness = Lateness()
    members: tuple[int, ...] = ()
    """Users it counts for beside the student."""


class AssignmentLine(Value):
    """An assignment in a list."""

    id: int
    course_id: int
    course: str
    course_title: str
    slug: str
    title: str
    release: str
    due_at: datetime | None = None

    @property
    def path(self) -> str:
        """`course/slug`."""
        return f"{self.course}/{self.slug}"


class Filters(Value):
    """What a list shows; nothing means all. A student's are all that count for them, also a group's."""

    course_ids: frozenset[int] | None = None
    own: int | None = None
    """With `course_ids`: also what this student handed in elsewhere."""
    student_id: int | None = None
    assignment_id: int | None = None
    state: str | None = None


class Page(Value):
    """One page of a list."""

    items: tuple[SubmissionLine, ...]
    page: int
    pages: int
    total: int
    """At most MOST_COUNTED."""


def list_submissions(session: Session, filters: Filters, page: int = 1) -> Page:
    """One page of submissions, the newest first."""
    # first which they are, by indexes alone, then all that belongs to those few
    ids = _filtered(select(tables.Submission.id), filters)
    some = ids.limit(MOST_COUNTED).subquery()
    total = session.execute(select(func.count()).select_from(some)).scalar_one()
    pages = max(1, -(-total // PER_PAGE))
    page = min(max(page, 1), pages)
    newest = ids.order_by(tables.Submission.created_at.desc(), tables.Submission.id)
    shown: list[str] = list(session.scalars(newest.offset((page - 1) * PER_PAGE).limit(PER_PAGE)))
    lines = _lines(session, _all_of_them().where(tables.Submission.id.in_(shown)))
    lines.sort(key=lambda line: shown.index(line.id))
    return Page(items=tuple(lines), page=page, pages=pages, total=total)


def attempts(session: Session, student_id: int, assignment_id: int) -> tuple[SubmissionLine, ...]:
    """All hand-ins of an assignment that count for a student, the first one first."""
    query = _all_of_them().where(
        # not through `_filtered`: one list of ids within another is looked for among all hand-ins
        counting_for(student_id, assignment_id),
        tables.Submission.assignment_id == assignment_id,
    )
    return tuple(_lines(session, query.order_by(tables.Submission.number, tables.Submission.created_at)))


def assignments(
    session: Session, course_ids: frozenset[int] | None, staff_of: frozenset[int] | None = None
) -> tuple[AssignmentLine, ...]:
    """The assignments of these courses (nothing: all), by course and title.

    With `staff_of`, of other courses only those that students see.
    """
    query = select(tables.Assignment, tables.Course).join(tables.Course)
    if course_ids is not None:
        query = query.where(tables.Assignment.course_id.in_(course_ids))
    if staff_of is not None:
        query = query.where(tables.Assignment.visible | tables.Assignment.course_id.in_(staff_of))
    rows = session.execute(query.order_by(tables.Course.title, tables.Assignment.title))
    return tuple(assignment_line(assignment, course) for assignment, course in rows)


def assignment_line(assignment: tables.Assignment, course: tables.Course) -> AssignmentLine:
    """An assignment as a value."""
    return AssignmentLine(
        id=assignment.id,
        course_id=course.id,
        course=course.slug,
        course_title=course.title,
        slug=assignment.slug,
        title=assignment.title,
        release=assignment.release,
        due_at=assignment.due_at,
    )


def _filtered(query: Select[tuple[str]], filters: Filters) -> Select[tuple[str]]:
    submission, assignment = tables.Submission, tables.Assignment
    if filters.course_ids is not None:
        mine = counting_for(filters.own) if filters.own is not None else false()
        in_courses = select(assignment.id).where(assignment.course_id.in_(filters.course_ids))
        query = query.where(submission.assignment_id.in_(in_courses) | mine)
    if filters.student_id is not None:
        query = query.where(counting_for(filters.student_id))
    if filters.assignment_id is not None:
        query = query.where(submission.assignment_id == filters.assignment_id)
    if filters.state is not None:
        current = and_(tables.Round.submission_id == submission.id, tables.Round.current)
        query = query.join(tables.Round, current).where(tables.Round.state == filters.state)
    return query


def _all_of_them() -> Select[Any]:
    """Submissions with all that a line needs, but for reports and other large things."""
    own = tables.Extension
    same = and_(
        own.assignment_id == tables.Submission.assignment_id, own.student_id == tables.Submission.student_id
    )
    query = current_rounds().outerjoin(own, same).add_columns(own.due_at)
    return query.options(defer(tables.Grade.report), defer(tables.Grade.criterion_points))


def _lines(session: Session, query: Select[Any]) -> list[SubmissionLine]:
    rows = session.execute(query).all()
    member = tables.SubmissionMember
    theirs = select(member.submission_id, member.user_id).where(
        member.submission_id.in_([row[0].id for row in rows])
    )
    members: dict[str, list[int]] = {}
    for submission_id, user_id in session.execute(theirs.order_by(member.user_id)) if rows else ():
        members.setdefault(submission_id, []).append(user_id)
    return [_line(row, tuple(members.get(row[0].id, ()))) for row in rows]


def _line(row: Any, members: tuple[int, ...]) -> SubmissionLine:
    submission, round_, assignment, course, student, grade, own_date = row
    rule = LateRule.model_validate(assignment.late or {})
    return SubmissionLine(
        id=submission.id,
        number=submission.number,
        course_id=course.id,
        course=course.slug,
        assignment=assignment.slug,
        assignment_title=assignment.title,
        student_id=student.id,
        student=student.name,
        state=round_.state,
        created_at=submission.created_at,
        points=grade.final_points if grade else None,
        points_so_far=grade.points_so_far if grade else None,
        max_points=grade.max_points if grade else None,
        held=bool(grade and grade.held),
        released=bool(grade and grade.released_at),
        flags=tuple(filter(None, grade.flag_text.split("\n"))) if grade else (),
        lateness=lateness(submission.created_at, own_due(assignment.due_at, own_date), rule),
        members=members,
    )
