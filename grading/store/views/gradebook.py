"""The gradebook: the counting grade of each student and assignment of a course, without reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, cast

from sqlalchemy import Executable, Select, bindparam, func, or_, select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.lateness import own_due
from grading.scoring.course import Counted, CourseStanding, course_standing
from grading.store.bulk import chunks
from grading.store.database import now
from grading.store.grades.gradebook_cells import ASSIGNMENTS, STUDENTS, Cell, Column, load_cells, load_columns
from grading.store.tables import (
    Course,
    Extension,
    Identity,
    Membership,
    User,
)

PER_PAGE = 25
CHUNK_SIZE = 100
"""Students whose grades are read together."""
BY_NAME = (func.lower(User.name), User.id)
"""Order by name, ignoring case."""


class Student(Value):
    """A student of the course."""

    id: int
    name: str
    subject: str
    """Their student id."""


class Row(Value):
    """A student with a cell for each column."""

    student: Student
    cells: tuple[Cell, ...]
    standing: CourseStanding


class Gradebook(Value):
    """One page of the gradebook."""

    course_id: int
    course_title: str
    drop_lowest: int
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    page: int
    pages: int
    total: int
    until: datetime | None = None
    """The next due date, after which missing submissions change."""


def load_gradebook(session: Session, course: Course, search: str = "", page: int = 1) -> Gradebook:
    """One page of students, by name; `search` finds names and student ids."""
    students = _students(course.id, search)
    total = session.scalar(students.with_only_columns(func.count(), maintain_column_froms=True)) or 0
    pages = max(1, -(-total // PER_PAGE))
    page = min(max(page, 1), pages)
    order = students.order_by(*BY_NAME).offset((page - 1) * PER_PAGE).limit(PER_PAGE)
    listed, head = load_columns(session, course.id), _named(session, order)
    found = load_rows(session, course, listed, head)
    return Gradebook(
        course_id=course.id, course_title=course.title, drop_lowest=course.drop_lowest, columns=listed,
        rows=found, page=page, pages=pages, total=total, until=_until(session, listed, head),
    )  # fmt: skip


def _until(session: Session, listed: Sequence[Column], head: Sequence[Student]) -> datetime | None:
    dates = [*(column.due_at for column in listed), *_own_dates(session, listed, head).values()]
    return min((one for one in dates if one is not None and one > now(session)), default=None)


def iterate_rows(session: Session, course: Course, listed: Sequence[Column]) -> Iterator[Row]:
    """All rows by name, in chunks."""
    head = _named(session, _students(course.id, "").order_by(*BY_NAME))
    for some in chunks(head, CHUNK_SIZE):
        yield from load_rows(session, course, listed, some)


def students_after(session: Session, course_id: int, after: int, limit: int) -> list[Student]:
    """Students of a course with an id above `after`."""
    some = _students(course_id, "").where(User.id > after).order_by(User.id)
    return _named(session, some.limit(limit))


def load_student_row(session: Session, course: Course, user_id: int) -> Gradebook:
    """A student's own row, with released grades only, and without the student id."""
    listed = load_columns(session, course.id, visible=True)
    known = session.execute(_student(), {"course_id": course.id, "user_id": user_id})
    head = [Student(id=row.id, name=row.name, subject="") for row in known]
    found = load_rows(session, course, listed, head, released_only=True)
    return Gradebook(
        course_id=course.id, course_title=course.title, drop_lowest=course.drop_lowest, columns=listed,
        rows=found, page=1, pages=1, total=len(found),
    )  # fmt: skip


@cache
def _student() -> Executable:
    query = select(User.id, User.name).join(Membership, Membership.user_id == User.id)
    here = Membership.course_id == bindparam("course_id")
    return query.where(here, Membership.role == "student", User.id == bindparam("user_id"))


def _students(course_id: int, search: str) -> Select[Any]:
    query: Any = select(User.id, User.name).join(Membership, Membership.user_id == User.id)
    query = query.where(Membership.course_id == course_id, Membership.role == "student")
    if search := search.strip()[:200]:
        known = select(Identity.user_id).where(Identity.subject.icontains(search, autoescape=True))
        query = query.where(or_(User.name.icontains(search, autoescape=True), User.id.in_(known)))
    return cast("Select[Any]", query)


def _named(session: Session, query: Select[Any]) -> list[Student]:
    """With the student id: the local one, or else that of an LMS."""
    people = session.execute(query).all()
    subjects: dict[int, str] = {}
    for some in chunks([row.id for row in people]):
        for user_id, subject in session.execute(_subjects(), {"users": some}):
            subjects[user_id] = subject
    return [Student(id=row.id, name=row.name, subject=subjects.get(row.id, "")) for row in people]


@cache
def _subjects() -> Any:
    known: Any = select(Identity.user_id, Identity.subject)
    known = known.where(Identity.user_id.in_(bindparam("users", expanding=True)))
    return known.order_by(Identity.provider == "local", Identity.id.desc())


def load_rows(
    session: Session,
    course: Course,
    listed: Sequence[Column],
    students: Sequence[Student],
    *,
    released_only: bool = False,
) -> tuple[Row, ...]:
    """A row for each of these students."""
    ids = [one.id for one in students]
    known = load_cells(session, listed, ids, released_only=released_only) if ids and listed else {}
    due = _own_dates(session, listed, students)
    moment = now(session)
    made = []
    for student in students:
        cells = tuple(
            known.get((column.id, student.id))
            or _without(column, own_due(column.due_at, due.get((column.id, student.id))), moment)
            for column in listed
        )
        counted = [
            Counted.model_construct(
                points=cell.points, max_points=cell.max_points, missing=cell.state == "missing"
            )
            for cell in cells
        ]
        standing = course_standing(counted, course.drop_lowest)
        made.append(Row.model_construct(student=student, cells=cells, standing=standing))
    return tuple(made)


def _without(column: Column, due: datetime | None, moment: datetime) -> Cell:
    missing = due is not None and due < moment
    return Cell.model_construct(state="missing" if missing else "ahead", max_points=column.max_points)


def _own_dates(
    session: Session, listed: Sequence[Column], students: Sequence[Student]
) -> Mapping[tuple[int, int], datetime]:
    """(assignment, student) -> due date of an extension."""
    of_them = {"assignments": [one.id for one in listed], "students": [one.id for one in students]}
    rows = session.execute(_extensions(), of_them)
    return {(row.assignment_id, row.student_id): row.due_at for row in rows}


@cache
def _extensions() -> Any:
    query = select(Extension.assignment_id, Extension.student_id, Extension.due_at)
    return query.where(Extension.assignment_id.in_(ASSIGNMENTS), Extension.student_id.in_(STUDENTS))
