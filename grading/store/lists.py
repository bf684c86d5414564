"""Lists of submissions and assignments, as frozen values."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from sqlalchemy import Select, false, func, select
from sqlalchemy.orm import Session

from grading.rubric import Value
from grading.store import tables
from grading.store.views import Row, current_rounds

PER_PAGE = 25


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
    """What a list shows; nothing means all."""

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


def list_submissions(session: Session, filters: Filters, page: int = 1) -> Page:
    """One page of submissions, the newest first."""
    query = _filtered(current_rounds(), filters)
    counted = query.with_only_columns(func.count(), maintain_column_froms=True)
    total = session.execute(counted).scalar_one()
    pages = max(1, -(-total // PER_PAGE))
    page = min(max(page, 1), pages)
    order = query.order_by(tables.Submission.created_at.desc(), tables.Submission.id)
    rows = session.execute(order.offset((page - 1) * PER_PAGE).limit(PER_PAGE))
    return Page(items=tuple(_line(row) for row in rows), page=page, pages=pages, total=total)


def attempts(session: Session, student_id: int, assignment_id: int) -> tuple[SubmissionLine, ...]:
    """All hand-ins of a student for an assignment, the first one first."""
    query = _filtered(current_rounds(), Filters(student_id=student_id, assignment_id=assignment_id))
    return tuple(_line(row) for row in session.execute(query.order_by(tables.Submission.number)))


def assignments(session: Session, course_ids: frozenset[int] | None) -> tuple[AssignmentLine, ...]:
    """The assignments of these courses (nothing: all) that can be handed in, by course and title."""
    query = select(tables.Assignment, tables.Course).join(tables.Course)
    if course_ids is not None:
        query = query.where(tables.Assignment.course_id.in_(course_ids))
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


def _filtered(query: Select[Row], filters: Filters) -> Select[Row]:
    if filters.course_ids is not None:
        mine = tables.Submission.student_id == filters.own if filters.own is not None else false()
        query = query.where(tables.Course.id.in_(filters.course_ids) | mine)
    if filters.student_id is not None:
        query = query.where(tables.Submission.student_id == filters.student_id)
    if filters.assignment_id is not None:
        query = query.where(tables.Assignment.id == filters.assignment_id)
    if filters.state is not None:
        query = query.where(tables.Round.state == filters.state)
    return query


def _line(row: Any) -> SubmissionLine:
    submission, round_, assignment, course, student, grade = cast("Row", row)
    report = grade.report if grade else {}
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
        flags=tuple(flag.get("message", "") for flag in report.get("flags", [])),
    )
