"""Views of regrade requests: one, those of a submission, pages of them."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Integer, Select, bindparam, case, func, select
from sqlalchemy.orm import Session, aliased

from grading.domain.base_value import Value
from grading.domain.errors import NotFound
from grading.domain.shared_messages import NO_SUCH_REQUEST
from grading.store import tables
from grading.store.database import literal_limit

PER_PAGE = 25


class Request(Value):
    """A request with what pages show of it."""

    id: int
    submission_id: str
    round_id: str
    course_id: int
    course_title: str
    assignment_id: int
    assignment_title: str
    number: int
    """Number of the submission."""
    owner_id: int
    """The submission's student."""
    student_id: int
    student: str
    """Who made the request."""
    criterion: str
    reason: str
    state: str
    answer: str
    answered_by: str
    created_at: datetime
    answered_at: datetime | None

    @property
    def open(self) -> bool:
        """Whether it is unanswered."""
        return self.state == "open"


class Page(Value):
    """One page of requests, open ones first."""

    items: tuple[Request, ...]
    page: int
    pages: int
    total: int


def load_request(session: Session, request_id: int) -> Request:
    """A request. Raises NotFound."""
    found = session.execute(_requests().where(tables.RegradeRequest.id == request_id)).first()
    if found is None:
        raise NotFound(NO_SUCH_REQUEST)
    return _request(found)


def list_of_submission(session: Session, submission_id: str) -> tuple[Request, ...]:
    """All requests for a submission, the newest first."""
    return tuple(map(_request, session.execute(_of_submission(), {"submission_id": submission_id})))


@cache
def _of_submission() -> Select[Any]:
    row = tables.RegradeRequest
    return _requests().where(row.submission_id == bindparam("submission_id")).order_by(row.id.desc())


def list_requests(
    session: Session, courses: frozenset[int] | None, course_id: int | None, page: int = 1
) -> Page:
    """One page of the requests of these courses (None: all): open ones first, the oldest of them first."""
    kind = courses is not None, course_id is not None
    given = {"courses": list(courses or ()), "course_id": course_id}
    total = session.scalar(_count(*kind), given) or 0
    pages = max(1, -(-total // PER_PAGE))
    page = min(max(page, 1), pages)
    rows = session.execute(_listing(*kind, page == 1), {**given, "skipped": (page - 1) * PER_PAGE})
    items = tuple(Request.model_construct(**row._mapping) for row in rows)
    return Page.model_construct(items=items, page=page, pages=pages, total=total)


@cache
def _listing(some: bool, one: bool, first: bool) -> Any:
    row = tables.RegradeRequest
    waits = case((row.state == "open", 0), else_=1)
    query = _among(_requests(), some, one).limit(literal_limit(PER_PAGE))
    query = query.order_by(waits, case((row.state == "open", row.id)), row.id.desc())
    return query if first else query.offset(bindparam("skipped", type_=Integer))


@cache
def _count(some: bool, one: bool) -> Any:
    return _among(select(func.count()).select_from(tables.RegradeRequest), some, one)


def _among(query: Any, some: bool, one: bool) -> Any:
    """Of these courses, of this one, or of both."""
    course = tables.RegradeRequest.course_id
    query = query.where(course.in_(bindparam("courses", expanding=True))) if some else query
    return query.where(course == bindparam("course_id")) if one else query


def list_below(
    session: Session,
    staff_of: frozenset[int] | None,
    reader: int,
    *,
    course_id: int | None = None,
    state: str | None = None,
    below: int | None = None,
    limit: int = PER_PAGE,
) -> tuple[Request, ...]:
    """Requests of these courses (None: all) and of the reader, the newest first, below an id."""
    row = tables.RegradeRequest
    query = _requests() if course_id is None else _requests().where(row.course_id == course_id)
    if staff_of is not None:
        query = query.where(row.course_id.in_(staff_of) | (row.student_id == reader))
    query = query if state is None else query.where(row.state == state)
    query = query if below is None else query.where(row.id < below)
    return tuple(map(_request, session.execute(query.order_by(row.id.desc()).limit(limit))))


def list_courses(session: Session, of: frozenset[int] | None) -> tuple[tuple[int, str], ...]:
    """(id, title) of these courses (None: all), for the filter."""
    found = session.execute(_courses(of is not None), {"courses": list(of or ())})
    return tuple((number, title) for number, title in found)


@cache
def _courses(some: bool) -> Any:
    query = select(tables.Course.id, tables.Course.title).order_by(tables.Course.title)
    return query.where(tables.Course.id.in_(bindparam("courses", expanding=True))) if some else query


@cache
def _requests() -> Select[Any]:
    row, answerer = tables.RegradeRequest, aliased(tables.User)
    query: Select[Any] = (
        select(  # type: ignore[assignment]  # of more columns than it has a type for
            row.id,
            row.submission_id,
            row.round_id,
            row.course_id,
            tables.Course.title.label("course_title"),
            tables.Assignment.id.label("assignment_id"),
            tables.Assignment.title.label("assignment_title"),
            tables.Submission.number,
            tables.Submission.student_id.label("owner_id"),
            row.student_id,
            tables.User.name.label("student"),
            row.criterion,
            row.reason,
            row.state,
            row.answer,
            func.coalesce(answerer.name, "").label("answered_by"),
            row.created_at,
            row.answered_at,
        )
        .join(tables.Submission, tables.Submission.id == row.submission_id)
        .join(tables.Assignment, tables.Assignment.id == tables.Submission.assignment_id)
        .join(tables.Course, tables.Course.id == row.course_id)
        .join(tables.User, tables.User.id == row.student_id)
        .outerjoin(answerer, answerer.id == row.answered_by)
    )
    return query


def _request(row: Any) -> Request:
    return Request.model_validate(dict(row._mapping))
