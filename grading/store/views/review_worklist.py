"""Worklist of a review: filters, pages and neighbours of submissions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import Field
from sqlalchemy import ColumnElement, Select, case, exists, func, literal, or_, select, tuple_
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.lateness import LateRule, in_time_until
from grading.domain.round_states import IN_PROGRESS
from grading.store.assignments.versions import load_assignment
from grading.store.grades import counts
from grading.store.tables import (
    Assignment,
    Change,
    Extension,
    Grade,
    Identity,
    RegradeRequest,
    Round,
    Run,
    Submission,
    SubmissionMember,
    User,
)
from grading.store.trust import second_opinions

Look = Literal[
    "", "to_review", "held", "flagged", "unreviewed", "reviewed", "changed", "regrade", "second_opinion"
]
Sort = Literal["name", "-name", "new", "old", "points", "-points", "todo", "criterion"]


class Filters(Value):
    """Filters of the list; by default the submission that counts for each student."""

    everything: bool = False
    """All submissions, not only those that count for students."""
    q: str = Field(default="", max_length=200)
    """Searched in the student's name and ids, and the flags' messages."""
    look: Look = ""
    released: Literal["", "yes", "no", "withdrawn"] = ""
    state: Literal["", "open", "graded", "partial", "failed"] = ""
    low: float | None = None
    high: float | None = None
    criterion: str = Field(default="", max_length=64, pattern=r"^([a-z0-9][a-z0-9_.-]*)?$")
    criterion_low: float | None = None
    criterion_high: float | None = None
    machine: str = Field(default="", max_length=40)
    model: str = Field(default="", max_length=200)
    late: bool = False
    sort: Sort = "name"


class WorklistEntry(Value):
    """A submission in the list."""

    id: str
    number: int
    student: str
    student_id: int
    created_at: datetime
    state: str
    points: float | None
    points_so_far: float | None
    max_points: float | None
    held: bool
    released: bool
    withdrawn: bool
    reviewed: bool
    regrade: bool
    late: bool
    flags: tuple[str, ...]


class Page(Value):
    """One page of the list."""

    items: tuple[WorklistEntry, ...]
    page: int
    pages: int
    total: int
    more: bool
    """There are more than `total`; they were not counted."""
    order: tuple[str, ...] = ()
    """The ids of the whole list, up to one more than are counted."""


PER_PAGE = 25
MOST_COUNTED = 5_000
"""Submissions that are counted and paged through at most."""


def list_ids(session: Session, assignment: Assignment, filters: Filters) -> tuple[str, ...]:
    """The ids that match the filters, in their order; at most one more than are counted."""
    keys, down = _order(filters)
    found = _filtered(session, assignment, filters, (Submission.id,))
    ordered = found.order_by(*((key.desc() if down else key.asc()) for key in keys))
    return tuple(session.scalars(ordered.limit(MOST_COUNTED + 1)))


def load_page(
    session: Session,
    assignment: Assignment,
    filters: Filters,
    page: int = 1,
    order: Sequence[str] | None = None,
) -> Page:
    """One page of submissions, in the order of the filters, which may be given as `order`.

    Ids are found once; everything else is read for the rows of the page.
    """
    if order is None:
        order = list_ids(session, assignment, filters)
    total = min(len(order), MOST_COUNTED)
    pages = max(1, -(-total // PER_PAGE))
    page = min(max(page, 1), pages)
    here = order[:MOST_COUNTED][(page - 1) * PER_PAGE : page * PER_PAGE]
    rows = {row.id: row for row in session.execute(_lines(assignment, here))} if here else {}
    due = _due(session, assignment)
    return Page(
        items=tuple(_line(rows[one], due) for one in here if one in rows),
        page=page,
        pages=pages,
        total=total,
        more=len(order) > total,
        order=tuple(order),
    )


def neighbours(
    session: Session, assignment: Assignment, filters: Filters, submission_id: str, page: Page | None = None
) -> tuple[str | None, str | None]:
    """The submissions before and after this one in the list, even if it does not match the filters any more.

    `page`, a page of the same list, saves a query.
    """
    if page is not None and submission_id in page.order[:-1]:
        at = page.order.index(submission_id)
        return (page.order[at - 1] if at else None), page.order[at + 1]
    keys, down = _order(filters)
    here = session.execute(_joined(assignment, keys).where(Submission.id == submission_id)).one_or_none()
    if here is None:
        return None, None
    place = tuple_(*(literal(value, key.type) for value, key in zip(here, keys, strict=True)))
    found = _filtered(session, assignment, filters, (Submission.id,))

    def nearest(after: bool) -> str | None:
        rising = after != down
        beyond = tuple_(*keys) > place if rising else tuple_(*keys) < place
        order = (key.asc() if rising else key.desc() for key in keys)
        nearest_one: str | None = session.scalar(found.where(beyond).order_by(*order).limit(1))
        return nearest_one

    return nearest(after=False), nearest(after=True)


def find_assignment(session: Session, assignment_id: int) -> Assignment:
    """The assignment. Raises NotFound."""
    return load_assignment(session, assignment_id)


def _joined(assignment: Assignment, columns: tuple[Any, ...]) -> Select[Any]:
    return (
        select(*columns)
        .select_from(Submission)
        .join(Round, (Round.submission_id == Submission.id) & Round.current)
        .join(User, User.id == Submission.student_id)
        .outerjoin(Grade, Grade.round_id == Round.id)
        .where(Submission.assignment_id == assignment.id)
    )


def _lines(assignment: Assignment, ids: Sequence[str]) -> Select[Any]:
    asked = exists().where(RegradeRequest.submission_id == Submission.id, RegradeRequest.state == "open")
    columns = (
        Submission.id,
        Submission.number,
        Submission.created_at,
        Submission.student_id,
        User.name,
        Round.state,
        Grade.final_points,
        Grade.points_so_far,
        Grade.max_points,
        Grade.held,
        Grade.released_at,
        Grade.released_by,
        Grade.reviewed_at,
        Grade.flag_text,
        asked.label("asked"),
    )
    return _joined(assignment, columns).where(Submission.id.in_(ids))


def _filtered(
    session: Session, assignment: Assignment, filters: Filters, columns: tuple[Any, ...]
) -> Select[Any]:
    query = _joined(assignment, columns)
    if not filters.everything:
        query = query.where(Submission.id.in_(counts.student_submissions(assignment)))
    if filters.q.strip():
        query = query.where(_found(filters.q.strip()))
    if filters.late:
        query = query.where(Submission.created_at > _due_in_sql(_due(session, assignment)))
    for wanted in (_looked(filters.look), _released(filters.released), _state(filters.state)):
        query = query if wanted is None else query.where(wanted)
    query = _between(query, Grade.final_points, filters.low, filters.high)
    if filters.criterion:
        query = _between(query, _points(filters), filters.criterion_low, filters.criterion_high)
    for column, wanted_name in ((Run.machine, filters.machine), (Run.model, filters.model)):
        if wanted_name:
            by_it = exists().where(Run.round_id == Round.id, Run.accepted, column == wanted_name)
            query = query.where(by_it)
    return query


def _found(text: str) -> ColumnElement[bool]:
    member = (
        select(SubmissionMember.submission_id)
        .join(User, User.id == SubmissionMember.user_id)
        .where(User.name.icontains(text, autoescape=True))
        .where(SubmissionMember.submission_id == Submission.id)
        .correlate(Submission)
        .exists()
    )
    known = exists().where(
        Identity.user_id == Submission.student_id, Identity.subject.icontains(text, autoescape=True)
    )
    named = User.name.icontains(text, autoescape=True)
    return or_(named, known, member, Grade.flag_text.icontains(text, autoescape=True))


def _looked(look: Look) -> ColumnElement[bool] | None:
    kinds: dict[str, Callable[[], ColumnElement[bool]]] = {
        "to_review": counts.to_review,
        "held": counts.held,
        "flagged": lambda: Grade.flag_text != "",
        "unreviewed": lambda: Grade.id.is_not(None) & Grade.reviewed_at.is_(None),
        "reviewed": lambda: Grade.reviewed_at.is_not(None),
        "changed": lambda: or_(
            Grade.adjustment != 0,
            exists().where(Change.round_id == Round.id, Change.kind != "confirm", Change.undone_at.is_(None)),
        ),
        "second_opinion": second_opinions.differs,
        "regrade": lambda: exists().where(
            RegradeRequest.submission_id == Submission.id, RegradeRequest.state == "open"
        ),
    }
    return kinds[look]() if look else None


def _released(released: str) -> ColumnElement[bool] | None:
    if not released:
        return None
    if released == "yes":
        return Grade.released_at.is_not(None)
    hidden = Grade.id.is_not(None) & Grade.released_at.is_(None)
    return hidden & Grade.released_by.is_not(None) if released == "withdrawn" else hidden


def _state(state: str) -> ColumnElement[bool] | None:
    if not state:
        return None
    return Round.state.in_(IN_PROGRESS) if state == "open" else Round.state == state


def _between(query: Select[Any], points: Any, low: float | None, high: float | None) -> Select[Any]:
    query = query if low is None else query.where(points >= low)
    return query if high is None else query.where(points <= high)


def _points(filters: Filters) -> Any:
    return Grade.criterion_points[filters.criterion].as_float()


def _order(filters: Filters) -> tuple[tuple[Any, ...], bool]:
    """The list's sort key and direction; always total, and never NULL."""
    name, points = func.lower(User.name), func.coalesce(Grade.final_points, -1.0)
    todo = case(
        (counts.held(), 0),
        (Grade.id.is_not(None) & Grade.reviewed_at.is_(None), 1),
        else_=2,
    )
    keys: dict[str, tuple[Any, ...]] = {
        "name": (name,),
        "points": (points, name),
        "todo": (todo, name),
        "new": (Submission.created_at,),
        "old": (Submission.created_at,),
        "criterion": (func.coalesce(_points(filters), -1.0), name) if filters.criterion else (points, name),
    }
    chosen = keys[filters.sort.lstrip("-")]
    return (*chosen, Submission.id), filters.sort in ("new", "-points", "-name")


def _due(session: Session, assignment: Assignment) -> tuple[datetime | None, dict[int, datetime]]:
    """When a submission is late, for all and for those with an extension."""
    rule = LateRule.model_validate(assignment.late or {})
    own = select(Extension.student_id, Extension.due_at).where(Extension.assignment_id == assignment.id)
    if assignment.due_at is None:
        return None, {}
    extended = {
        row.student_id: in_time_until(max(row.due_at, assignment.due_at), rule)
        for row in session.execute(own)
    }
    return in_time_until(assignment.due_at, rule), extended


def _due_in_sql(due: tuple[datetime | None, dict[int, datetime]]) -> ColumnElement[Any]:
    everybody, extended = due
    rest = literal(everybody, Submission.created_at.type)
    own = {student: literal(date, Submission.created_at.type) for student, date in extended.items()}
    return case(own, value=Submission.student_id, else_=rest) if own else rest


def _line(row: Any, due: tuple[datetime | None, dict[int, datetime]]) -> WorklistEntry:
    date = due[1].get(row.student_id, due[0])
    return WorklistEntry(
        id=row.id,
        number=row.number,
        student=row.name,
        student_id=row.student_id,
        created_at=row.created_at,
        state=row.state,
        points=row.final_points,
        points_so_far=row.points_so_far,
        max_points=row.max_points,
        held=bool(row.held),
        released=row.released_at is not None,
        withdrawn=row.released_at is None and row.released_by is not None,
        reviewed=row.reviewed_at is not None,
        regrade=bool(row.asked),
        late=date is not None and row.created_at > date,
        flags=tuple(filter(None, (row.flag_text or "").split("\n"))),
    )
