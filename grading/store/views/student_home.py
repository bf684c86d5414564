"""The student's home page: assignments, newest submissions and last released scores, in three queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Select, Text, and_, bindparam, cast, func, or_, select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.lateness import Lateness, closes, lateness, own_due, rule_of
from grading.store.database import cache_now, clock_column, now
from grading.store.tables import Assignment, Course, Extension, GroupMember, Upload
from grading.store.views import submission_lists
from grading.store.views.submission_lists import Page, SubmissionLine


class AssignmentCard(Value):
    """An assignment as its student sees it."""

    assignment_id: int
    course_id: int
    course_title: str
    title: str
    due: datetime | None
    extended: bool
    closes: datetime | None
    lateness: Lateness
    """Of a submission at this moment."""
    submissions: int
    most: int | None
    newest: SubmissionLine | None
    released: SubmissionLine | None
    """Their last submission with a released grade, where the newest has none yet."""
    uploaded_at: datetime | None
    """Time of the pending upload."""
    invited: bool
    """A classmate invited them into a group."""

    @property
    def open(self) -> bool:
        """Whether something can be submitted now."""
        return not self.lateness.closed and (self.most is None or self.submissions < self.most)


class StudentHome(Value):
    """What the home page of a student shows."""

    cards: tuple[AssignmentCard, ...]
    """Open ones first, by due date."""
    newest: Page
    """The first page of their submissions."""


def load_home(session: Session, user_id: int, course_ids: Collection[int]) -> StudentHome:
    """The home page of a student of these courses."""
    rows = session.execute(_submissions(), {"user_id": user_id}).all()
    lines = {line.id: line for line in submission_lists.group_lines(rows)}
    last = {row.assignment_id: (lines[row.id], row.of_it) for row in rows if row.last == 1}
    newest = sorted({row.newest: row.id for row in rows if row.newest <= submission_lists.PER_PAGE}.items())
    total = rows[0].total if rows else 0
    page = Page(
        items=tuple(lines[id_] for _, id_ in newest),
        page=1,
        pages=max(1, -(-total // submission_lists.PER_PAGE)),
        total=total,
    )
    seen = _of_courses(session, user_id, course_ids) if course_ids else []
    moment = cache_now(session, seen[0].clock) if seen else now(session)
    waiting = [id_ for id_, (line, count) in last.items() if count > 1 and not line.released]
    released = submission_lists.list_last_released(session, user_id, waiting)
    found = [_card(row, last, released.get(row.id), moment) for row in seen]
    return StudentHome(cards=tuple(sorted(found, key=lambda card: _order(card, moment))), newest=page)


def _of_courses(session: Session, user_id: int, course_ids: Collection[int]) -> Sequence[Any]:
    query = _assignments(session.get_bind().dialect.name)
    return session.execute(query, {"user_id": user_id, "course_ids": list(course_ids)}).all()


@cache
def _submissions() -> Select[Any]:
    """The newest submission of each assignment and those of the first page, with their numbers."""
    theirs = submission_lists.counting_query(bindparam("user_id")).c
    last = func.row_number().over(
        partition_by=theirs.assignment_id, order_by=(theirs.number.desc(), theirs.created_at.desc())
    )
    counted = select(
        theirs.id,
        last.label("last"),
        func.row_number().over(order_by=(theirs.created_at.desc(), theirs.id)).label("newest"),
        func.count().over(partition_by=theirs.assignment_id).label("of_it"),
        func.count().over().label("total"),
    ).subquery()
    counts = (counted.c.last, counted.c.newest, counted.c.of_it, counted.c.total)
    chosen = or_(counted.c.last == 1, counted.c.newest <= submission_lists.PER_PAGE)
    return submission_lists.lines_query(counted, *counts).where(chosen)


@cache
def _assignments(dialect: str) -> Select[Any]:
    """The assignments that the student sees, with their extension, upload and invitation."""
    user: Any = bindparam("user_id")
    query: Any = (
        select(
            Assignment.id,
            Assignment.course_id,
            Assignment.title,
            Assignment.due_at,
            cast(Assignment.late, Text).label("late"),
            Assignment.max_submissions,
            Course.title.label("course_title"),
            Extension.due_at.label("own"),
            Upload.created_at.label("uploaded_at"),
            GroupMember.confirmed,
            clock_column(dialect),
        )
        .join(Course, Course.id == Assignment.course_id)
        .outerjoin(Extension, and_(Extension.assignment_id == Assignment.id, Extension.student_id == user))
        .outerjoin(Upload, and_(Upload.assignment_id == Assignment.id, Upload.user_id == user))
        .outerjoin(GroupMember, and_(GroupMember.assignment_id == Assignment.id, GroupMember.user_id == user))
    )
    here = Assignment.course_id.in_(bindparam("course_ids", expanding=True))
    found: Select[Any] = query.where(here, Assignment.visible, Course.archived.is_(False))
    return found


def _card(
    row: Any,
    last: Mapping[int, tuple[SubmissionLine, int]],
    released: SubmissionLine | None,
    moment: datetime,
) -> AssignmentCard:
    rule = rule_of(row.late)
    due = own_due(row.due_at, row.own)
    newest, count = last.get(row.id, (None, 0))
    return AssignmentCard.model_construct(
        assignment_id=row.id,
        course_id=row.course_id,
        course_title=row.course_title,
        title=row.title,
        due=due,
        extended=row.own is not None,
        closes=closes(due, rule),
        lateness=lateness(moment, due, rule),
        submissions=count,
        most=row.max_submissions,
        newest=newest,
        released=released,
        uploaded_at=row.uploaded_at,
        invited=row.confirmed is False,
    )


def _order(card: AssignmentCard, moment: datetime) -> tuple[int, float, str]:
    """Sort key: due next first, then without a date, then past, the latest first."""
    if card.due is None:
        return 1, 0.0, card.title.casefold()
    distance = (card.due - moment).total_seconds()
    return (0 if distance >= 0 else 2), abs(distance), card.title.casefold()
