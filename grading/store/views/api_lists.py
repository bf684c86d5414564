"""Lists of the API with keyset pagination, which costs the same on every page.

Each function takes the key after which its page begins, and the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, func, or_, select, tuple_
from sqlalchemy.orm import Session, joinedload

from grading.domain.base_value import Value
from grading.store import tables
from grading.store.courses import roster
from grading.store.courses.courses import CourseEntry, load_course
from grading.store.courses.roster import Person
from grading.store.grades import gradebook_cells
from grading.store.submissions.intake import counts_for
from grading.store.views import gradebook, submission_lists
from grading.store.views.submission_lists import SubmissionLine


def list_courses(
    session: Session, ids: frozenset[int] | None, archived: bool | None, after: int, limit: int
) -> tuple[CourseEntry, ...]:
    """These courses (None: all) by id."""
    course = tables.Course
    count = select(func.count()).where(tables.Assignment.course_id == course.id).scalar_subquery()
    query = select(course, count).where(course.id > after).order_by(course.id).limit(limit)
    if ids is not None:
        query = query.where(course.id.in_(ids))
    if archived is not None:
        query = query.where(course.archived == archived)
    rows = session.execute(query)
    return tuple(CourseEntry(one.id, one.slug, one.title, one.archived, many) for one, many in rows)


def list_members(
    session: Session, course_id: int, role: str | None, search: str, after: int, limit: int
) -> tuple[Person, ...]:
    """The members of a course by id; `search` finds names, addresses and ids."""
    here = tables.Membership
    query = (
        select(*roster.PERSON_COLUMNS, here.role)
        .select_from(tables.User)
        .join(here, here.user_id == tables.User.id)
        .where(here.course_id == course_id, tables.User.id > after)
        .order_by(tables.User.id)
        .limit(limit)
    )
    if role:
        query = query.where(here.role == role)
    return roster.find_people(session, query, search)


def list_assignments(
    session: Session,
    course_ids: frozenset[int] | None,
    staff_of: frozenset[int] | None,
    after: int,
    limit: int,
) -> Sequence[tables.Assignment]:
    """The assignments of these courses (None: all); outside of `staff_of` only visible ones."""
    own = tables.Assignment
    query = select(own).where(own.id > after).order_by(own.id).limit(limit)
    if course_ids is not None:
        query = query.where(own.course_id.in_(course_ids))
    if staff_of is not None:
        query = query.where(own.visible | own.course_id.in_(staff_of))
    return session.scalars(query.options(joinedload(own.course, innerjoin=True))).all()


class SubmissionFilters(Value):
    """Filters of submissions; None: all."""

    staff_of: frozenset[int] | None = None
    """Courses whose submissions are all included; of others only those that count for `reader`."""
    reader: int = 0
    course_id: int | None = None
    assignment_id: int | None = None
    student_id: int | None = None
    state: str | None = None
    flagged: bool | None = None
    released: bool | None = None
    since: datetime | None = None
    until: datetime | None = None
    ids: tuple[str, ...] = ()
    """Only these; empty: all."""
    oldest_first: bool = False


def list_submissions(
    session: Session, wanted: SubmissionFilters, after: tuple[datetime, str] | None, limit: int
) -> tuple[SubmissionLine, ...]:
    """Submissions in order of time; first their ids by indexes alone, then the columns of those few."""
    own, round_, grade = tables.Submission, tables.Round, tables.Grade
    place = tuple_(own.created_at, own.id)
    order = (own.created_at, own.id) if wanted.oldest_first else (own.created_at.desc(), own.id.desc())
    query: Select[Any] = (
        select(own.id)
        .join(round_, and_(round_.submission_id == own.id, round_.current))
        .order_by(*order)
        .limit(limit)
    )
    if wanted.flagged is not None or wanted.released is not None:
        query = query.outerjoin(grade, grade.round_id == round_.id)
    for condition in (*_whose(wanted), *_which(wanted)):
        query = query.where(condition)
    if after is not None:
        query = query.where(place > after if wanted.oldest_first else place < after)
    return submission_lists.load_lines(session, list(session.scalars(query)))


def _whose(wanted: SubmissionFilters) -> list[Any]:
    own = tables.Submission
    found: list[Any] = []
    if wanted.staff_of is not None:
        theirs = select(tables.Assignment.id).where(tables.Assignment.course_id.in_(wanted.staff_of))
        found.append(or_(own.assignment_id.in_(theirs), counts_for(wanted.reader)))
    if wanted.course_id is not None:
        of_course = select(tables.Assignment.id).where(tables.Assignment.course_id == wanted.course_id)
        found.append(own.assignment_id.in_(of_course))
    if wanted.assignment_id is not None:
        found.append(own.assignment_id == wanted.assignment_id)
    if wanted.student_id is not None:
        found.append(counts_for(wanted.student_id))
    return found


def _which(wanted: SubmissionFilters) -> list[Any]:
    own, round_, grade = tables.Submission, tables.Round, tables.Grade
    found: list[Any] = []
    if wanted.state is not None:
        found.append(round_.state == wanted.state)
    if wanted.released is not None:
        shown = grade.released_at.is_not(None)
        found.append(shown if wanted.released else grade.released_at.is_(None))
    if wanted.flagged is not None:
        flagged = func.coalesce(grade.flag_text, "") != ""
        if wanted.staff_of is not None:  # a filter must not tell what the lines do not
            staff = select(tables.Assignment.id).where(tables.Assignment.course_id.in_(wanted.staff_of))
            flagged = and_(flagged, or_(grade.released_at.is_not(None), own.assignment_id.in_(staff)))
        found.append(flagged if wanted.flagged else ~flagged)
    if wanted.ids:
        found.append(own.id.in_(wanted.ids))
    if wanted.since is not None:
        found.append(own.created_at >= wanted.since)
    if wanted.until is not None:
        found.append(own.created_at < wanted.until)
    return found


def list_grades(
    session: Session, assignment: tables.Assignment, after: int, limit: int
) -> tuple[gradebook.Row, ...]:
    """The counting grades of one assignment by student id; each row has one cell."""
    course = load_course(session, assignment.course_id)
    listed = gradebook_cells.load_columns(session, course.id, assignment_id=assignment.id)
    return gradebook.load_rows(
        session, course, listed, gradebook.students_after(session, course.id, after, limit)
    )
