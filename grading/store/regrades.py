"""Requests for a regrade: asking, withdrawing, answering, listing."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any, Literal

from sqlalchemy import Integer, Select, bindparam, case, func, select
from sqlalchemy.orm import Session, aliased

from grading.changes import Change
from grading.errors import Conflict, NotFound
from grading.may import Actor
from grading.rubric import Value
from grading.store import mails, reviewing, tables
from grading.store.audit import note
from grading.store.database import always, now
from grading.store.review_history import stamp
from grading.store.submissions import add_round

PER_PAGE = 25
MOST_OF_ONE = 30
"""Requests for one hand-in, whatever became of them."""
LONGEST = 4_000
"""Characters of a reason or an answer."""
Verdict = Literal["declined", "points", "again"]
"""declined; accepted with other points; accepted and graded again by the machines"""


class Request(Value):
    """A request with what its readers need."""

    id: int
    submission_id: str
    round_id: str
    course_id: int
    course_title: str
    assignment_id: int
    assignment_title: str
    number: int
    """Of the hand-in."""
    owner_id: int
    """Whose hand-in it is."""
    student_id: int
    student: str
    """Who asked."""
    criterion: str
    reason: str
    state: str
    answer: str
    answered_by: str
    created_at: datetime
    answered_at: datetime | None

    @property
    def open(self) -> bool:
        """Whether it waits for an answer."""
        return self.state == "open"


class Page(Value):
    """One page of requests, the open ones first."""

    items: tuple[Request, ...]
    page: int
    pages: int
    total: int


class Answer(Value):
    """What staff decided; `points` is the new number of a criterion, or what is added to the whole."""

    verdict: Verdict
    words: str
    points: float | None = None


def ask(session: Session, actor: Actor, submission_id: str, criterion: str, reason: str) -> int:
    """Write a request down; returns its number. Raises Conflict where one is open already."""
    # the row is the lock that keeps two equal requests apart
    session.execute(
        select(tables.Submission.id)
        .where(tables.Submission.id == submission_id)
        .with_for_update(key_share=True)
    )
    round_, grade = _graded(session, submission_id)
    known = {one["criterion"] for one in grade.report.get("criteria", [])}
    if criterion and criterion not in known:
        raise NotFound("This grade has no such criterion.")
    row = tables.RegradeRequest
    mine = session.scalars(select(row).where(row.submission_id == submission_id)).all()
    if any(one.state == "open" and one.criterion == criterion for one in mine):
        raise Conflict("You have asked for this already. Wait for the answer, or withdraw that request.")
    if len(mine) >= MOST_OF_ONE:
        raise Conflict("That is a lot of requests for one hand-in. Please talk to your instructor.")
    made = row(
        submission_id=submission_id, round_id=round_.id, student_id=actor.user_id, course_id=round_.course_id,
        criterion=criterion, reason=_storable(reason), created_at=now(session),
    )  # fmt: skip
    session.add(made)
    session.flush()
    note(session, actor.name, "regrade.ask", f"submission:{submission_id}", _about(made))
    return made.id


def withdraw(session: Session, actor: Actor, request_id: int) -> None:
    """Take one's own request back. Raises NotFound, and Conflict when it was answered."""
    row = _locked(session, request_id)
    if row.student_id != actor.user_id:
        raise NotFound("There is no such request.")
    if row.state != "open":
        raise Conflict("This request was answered or withdrawn already.")
    row.state, row.answered_at = "withdrawn", now(session)
    note(session, actor.name, "regrade.withdraw", f"submission:{row.submission_id}", _about(row))


def answer(session: Session, actor: Actor, request_id: int, given: Answer) -> str | None:
    """Decline or accept; returns the new round, where there is one to announce.

    Raises NotFound, Conflict when it was answered already or there is no grade to change.
    """
    row = _locked(session, request_id)
    if row.state != "open":
        raise Conflict("Somebody has answered this request, or it was withdrawn. Nothing was changed.")
    new = None
    if given.verdict == "points":
        _change(session, actor, row, given)
    elif given.verdict == "again":
        new = _again(session, row)
    row.state = "declined" if given.verdict == "declined" else "accepted"
    row.answer, row.answered_by, row.answered_at = _storable(given.words), actor.user_id, now(session)
    said = {**_about(row), "verdict": given.verdict, "points": given.points}
    note(session, actor.name, "regrade.answer", f"submission:{row.submission_id}", said)
    mails.answered(session, row.submission_id, row.student_id, row.id)
    return new


def _change(session: Session, actor: Actor, row: tables.RegradeRequest, given: Answer) -> None:
    """Other points for the criterion, or more or less of the total."""
    round_ = _current(session, row.submission_id)
    wanted = Change(
        kind="points" if row.criterion else "adjust",
        target=row.criterion or f"regrade:{row.id}",
        points=given.points,
        reason=_storable(given.words)[:2000],
    )
    # who answers saw the page of the request, not the grade's: what others changed is no obstacle
    reviewing.change(session, row.submission_id, wanted, stamp(session, round_.id), actor)


def _again(session: Session, row: tables.RegradeRequest) -> str:
    """A new round of the hand-in."""
    current = _current(session, row.submission_id)
    if current.finished_at is None:
        raise Conflict("This hand-in is being graded right now. Wait until that is done.")
    submission = session.get_one(tables.Submission, row.submission_id)
    made = add_round(session, submission, submission.assignment, reason="regrade", priority="interactive")
    return made.id


def _graded(session: Session, submission_id: str) -> tuple[tables.Round, tables.Grade]:
    """The current round and its grade."""
    current = _current(session, submission_id)
    grade = session.scalar(select(tables.Grade).where(tables.Grade.round_id == current.id))
    if grade is None:
        raise Conflict("There is no grade right now: the hand-in is being graded again.")
    return current, grade


def _current(session: Session, submission_id: str) -> tables.Round:
    query = select(tables.Round).where(tables.Round.submission_id == submission_id, tables.Round.current)
    current = session.scalar(query)
    if current is None:
        raise NotFound("There is no such submission.")
    return current


def _locked(session: Session, request_id: int) -> tables.RegradeRequest:
    query = select(tables.RegradeRequest).where(tables.RegradeRequest.id == request_id).with_for_update()
    row = session.scalar(query)
    if row is None:
        raise NotFound("There is no such request.")
    return row


def _about(row: tables.RegradeRequest) -> dict[str, int | str]:
    return {"request": row.id, "criterion": row.criterion}


def _storable(text: str) -> str:
    """Any database takes it: PostgreSQL refuses NUL."""
    return text.replace("\0", "").strip()[:LONGEST]


# --- reading ------------------------------------------------------------------------------------------


def find(session: Session, request_id: int) -> Request:
    """One request. Raises NotFound."""
    found = session.execute(_requests().where(tables.RegradeRequest.id == request_id)).first()
    if found is None:
        raise NotFound("There is no such request.")
    return _request(found)


def of_submission(session: Session, submission_id: str) -> tuple[Request, ...]:
    """All requests for a hand-in, the newest first."""
    return tuple(map(_request, session.execute(_of_submission(), {"submission_id": submission_id})))


@cache
def _of_submission() -> Select[Any]:
    row = tables.RegradeRequest
    return _requests().where(row.submission_id == bindparam("submission_id")).order_by(row.id.desc())


def listing(session: Session, courses: frozenset[int] | None, course_id: int | None, page: int = 1) -> Page:
    """One page of the requests of these courses (nothing: all): open ones first, the oldest of them first."""
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
    query = _among(_requests(), some, one).limit(always(PER_PAGE))
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


def some(
    session: Session,
    staff_of: frozenset[int] | None,
    reader: int,
    *,
    course_id: int | None = None,
    state: str | None = None,
    below: int | None = None,
    limit: int = PER_PAGE,
) -> tuple[Request, ...]:
    """Requests of these courses (nothing: all) and those of the reader, the newest first, below a number."""
    row = tables.RegradeRequest
    query = _requests() if course_id is None else _requests().where(row.course_id == course_id)
    if staff_of is not None:
        query = query.where(row.course_id.in_(staff_of) | (row.student_id == reader))
    query = query if state is None else query.where(row.state == state)
    query = query if below is None else query.where(row.id < below)
    return tuple(map(_request, session.execute(query.order_by(row.id.desc()).limit(limit))))


def courses(session: Session, of: frozenset[int] | None) -> tuple[tuple[int, str], ...]:
    """(number, title) of these courses (nothing: all), for the filter."""
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
