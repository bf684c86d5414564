"""Lists of submissions and assignments, page by page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Integer, Select, Subquery, Text, and_, bindparam, cast, exists, func, select, union_all
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.lateness import IN_TIME, Lateness, lateness, own_due, rule_of
from grading.domain.messages import Message
from grading.domain.round_states import RoundState
from grading.store import tables
from grading.store.database import literal_limit
from grading.store.views import newest_submissions


def counting_query(user_id: Any, assignment_id: Any = None) -> Subquery:
    """The submissions that count for a user, alone or in a group; covering indexes hold these columns."""
    own, member = tables.Submission, tables.SubmissionMember
    columns = select(own.id, own.assignment_id, own.number, own.created_at)
    mine = columns.where(own.student_id == user_id, own.number > 0)  # lower: samples of dry runs
    others = columns.join(member, member.submission_id == own.id)
    others = others.where(member.user_id == user_id, own.student_id != user_id)
    if assignment_id is not None:
        mine = mine.where(own.assignment_id == assignment_id)
        others = others.where(own.assignment_id == assignment_id)
    return mine.union_all(others).subquery()


_COLUMNS = (
    tables.Submission.id,
    tables.Submission.number,
    tables.Submission.student_id,
    tables.Submission.created_at,
    tables.Assignment.course_id,
    tables.Assignment.id.label("assignment_id"),
    tables.Assignment.slug,
    tables.Assignment.title,
    tables.Assignment.due_at,
    cast(tables.Assignment.late, Text).label("late"),  # the same of many lines: it is read once
    tables.Course.slug.label("course"),
    tables.User.name.label("student"),
    tables.Round.state,
    tables.Grade.final_points,
    tables.Grade.points_so_far,
    tables.Grade.max_points,
    tables.Grade.held,
    tables.Grade.released_at,
    tables.Grade.flag_messages,
    tables.Extension.due_at.label("own"),
    tables.SubmissionMember.user_id.label("member"),
)
LINE_COLUMNS = len(_COLUMNS) - 1
"""Number of columns before `member`."""


def line_query(some: Subquery | None = None) -> Select[Any]:
    """The columns of a line, without reports; one row for each member of a group.

    `some` selects the submissions in a subquery that comes first, as planners do not optimise so many
    joins.
    """
    own = tables.Extension
    theirs = and_(
        own.assignment_id == tables.Submission.assignment_id, own.student_id == tables.Submission.student_id
    )
    query: Any = select(*_COLUMNS)
    if some is None:
        query = query.select_from(tables.Submission)
    else:
        query = query.select_from(some).join(tables.Submission, tables.Submission.id == some.c.id)
    found: Select[Any] = (
        query.join(
            tables.Round, and_(tables.Round.submission_id == tables.Submission.id, tables.Round.current)
        )
        .join(tables.Assignment, tables.Assignment.id == tables.Submission.assignment_id)
        .join(tables.Course, tables.Course.id == tables.Assignment.course_id)
        .join(tables.User, tables.User.id == tables.Submission.student_id)
        .outerjoin(tables.Grade, tables.Grade.round_id == tables.Round.id)
        .outerjoin(own, theirs)
        .outerjoin(tables.SubmissionMember, tables.SubmissionMember.submission_id == tables.Submission.id)
    )
    return found


PER_PAGE = 25
MOST_COUNTED = 1000
"""Submissions that are counted; beyond, a list says "more than".

On far pages it counts some pages further.
"""
MOST_PAGES = 400


@dataclass(frozen=True, slots=True)
class SubmissionLine:
    """A submission in a list."""

    id: str
    number: int
    course_id: int
    course: str
    assignment: str
    assignment_id: int
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
    flags: tuple[Message, ...]
    """Messages of the report's flags."""
    lateness: Lateness = IN_TIME
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
    """Filters of a list; None: all. A student's submissions include those of their groups."""

    course_ids: frozenset[int] | None = None
    own: int | None = None
    """With `course_ids`: also what this student submitted in other courses."""
    student_id: int | None = None
    assignment_id: int | None = None
    state: str | None = None


class Page(Value):
    """One page of a list."""

    items: tuple[SubmissionLine, ...]
    page: int
    pages: int
    total: int
    """At least MOST_COUNTED where there may be more."""

    @property
    def more(self) -> bool:
        """Whether counting stopped."""
        return self.total >= max(MOST_COUNTED, (self.page + 4) * PER_PAGE)


def list_submissions(session: Session, filters: Filters, page: int = 1) -> Page:
    """One page of submissions, the newest first."""
    page = min(max(page, 1), MOST_PAGES)
    found = _rows(session, filters, page)
    if not found and page > 1:
        page = min(page, _pages(_count(session, filters, page)))
        found = _rows(session, filters, page)
    total = found[0].total if found else 0
    return Page.model_construct(items=group_lines(found), page=page, pages=_pages(total), total=total)


def _rows(session: Session, filters: Filters, page: int) -> Sequence[Any]:
    """The rows of a page in order, with the total."""
    given = {name: value for name, value in filters if value is not None}
    places = {"skipped": (page - 1) * PER_PAGE, "most": _furthest(page), "shown": page * PER_PAGE}
    query = _lines_of_page(frozenset(given), page == 1, _apart(session, filters))
    return session.execute(query, {**_listed(given), **places}).all()


def _count(session: Session, filters: Filters, page: int) -> int:
    given = {name: value for name, value in filters if value is not None}
    most = bindparam("most", type_=Integer)
    ids = _filtered(frozenset(given), most, _apart(session, filters))
    counted = select(func.count()).select_from(ids.limit(most).subquery())
    return session.scalar(counted, {**_listed(given), "most": _furthest(page)}) or 0


def _listed(given: Mapping[str, Any]) -> dict[str, Any]:
    """As statement parameters."""
    return {name: list(one) if isinstance(one, frozenset) else one for name, one in given.items()}


def _apart(session: Session, filters: Filters) -> bool:
    """Whether each assignment is asked by itself; of what few rounds are, their state's index finds all."""
    return newest_submissions.is_lateral(session) and filters.state in (None, RoundState.GRADED)


@cache
def _lines_of_page(given: frozenset[str], first: bool, lateral: bool) -> Select[Any]:
    # first which they are, by indexes alone, then all that belongs to those few
    some = _of_page(given, first, lateral).subquery()
    order = (some.c.created_at.desc(), some.c.id, tables.SubmissionMember.user_id)
    return line_query(some).add_columns(some.c.total).order_by(*order)


def _of_page(given: frozenset[str], first: bool, lateral: bool) -> Select[Any]:
    most: Any = literal_limit(_furthest(1)) if first else bindparam("most", type_=Integer)
    counted = _filtered(given, most, lateral).limit(most).subquery()
    some = select(func.count()).select_from(counted).scalar_subquery()
    shown: Any = literal_limit(PER_PAGE) if first else bindparam("shown", type_=Integer)
    ids = _filtered(given, shown, lateral)
    newest = ids.add_columns(some.label("total")).order_by(
        ids.selected_columns[1].desc(), ids.selected_columns[0]
    )
    newest = newest.limit(literal_limit(PER_PAGE))
    return newest if first else newest.offset(bindparam("skipped", type_=Integer))


def _furthest(page: int) -> int:
    """How far submissions are counted: some pages beyond this one."""
    return max(MOST_COUNTED, (page + 4) * PER_PAGE)


def _pages(total: int) -> int:
    return max(1, -(-total // PER_PAGE))


def list_attempts(session: Session, student_id: int, assignment_id: int) -> tuple[SubmissionLine, ...]:
    """All submissions of an assignment that count for a student, the first one first."""
    wanted = {"user_id": student_id, "assignment_id": assignment_id}
    return group_lines(session.execute(_attempts(), wanted))


@cache
def _attempts() -> Select[Any]:
    theirs = counting_query(bindparam("user_id"), bindparam("assignment_id"))
    order = (tables.Submission.number, tables.Submission.created_at, tables.Submission.id)
    return line_query(theirs).order_by(*order, tables.SubmissionMember.user_id)


def last_released(attempts: Iterable[SubmissionLine]) -> SubmissionLine | None:
    """Of the submissions of one student for one assignment, the newest whose grade is released."""
    seen = [one for one in attempts if one.released and one.max_points is not None]
    return max(seen, key=lambda one: (one.number, one.created_at), default=None)


def list_last_released(
    session: Session, student_id: int, assignment_ids: Sequence[int]
) -> Mapping[int, SubmissionLine]:
    """The newest submission with a released grade that counts for a student, by assignment."""
    wanted = {"user_id": student_id, "assignment_ids": list(assignment_ids)}
    rows = session.execute(_last_released(), wanted) if assignment_ids else ()
    return {line.assignment_id: line for line in group_lines(rows)}


@cache
def _last_released() -> Select[Any]:
    theirs = counting_query(bindparam("user_id"))
    newest = (theirs.c.number.desc(), theirs.c.created_at.desc())
    last = func.row_number().over(partition_by=theirs.c.assignment_id, order_by=newest)
    ranked = (
        select(theirs.c.id, last.label("last"))
        .join(tables.Round, and_(tables.Round.submission_id == theirs.c.id, tables.Round.current))
        .join(tables.Grade, tables.Grade.round_id == tables.Round.id)
        .where(tables.Grade.released_at.is_not(None))
        .where(theirs.c.assignment_id.in_(bindparam("assignment_ids", expanding=True)))
        .subquery()
    )
    return line_query(ranked).where(ranked.c.last == 1).order_by(tables.SubmissionMember.user_id)


def list_assignments(
    session: Session, course_ids: frozenset[int] | None, staff_of: frozenset[int] | None = None
) -> tuple[AssignmentLine, ...]:
    """The assignments of these courses (None: all), by course and title.

    With `staff_of`, of other courses only visible ones.
    """
    given = {"course_ids": course_ids, "staff_of": staff_of}
    known = {name: list(ids) for name, ids in given.items() if ids is not None}
    rows = session.execute(_assignments(frozenset(known)), known)
    return tuple(AssignmentLine.model_construct(**row._mapping) for row in rows)


@cache
def _assignments(known: frozenset[str]) -> Any:
    course, assignment = tables.Course, tables.Assignment
    query: Any = select(
        assignment.id,
        assignment.course_id,
        course.slug.label("course"),
        course.title.label("course_title"),
        assignment.slug,
        assignment.title,
        assignment.release,
        assignment.due_at,
    ).join(course)
    if "course_ids" in known:
        query = query.where(assignment.course_id.in_(bindparam("course_ids", expanding=True)))
    if "staff_of" in known:
        of_staff = assignment.course_id.in_(bindparam("staff_of", expanding=True))
        query = query.where(assignment.visible | of_staff)
    return query.order_by(course.title, assignment.title)


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


def _filtered(given: frozenset[str], most: Any, lateral: bool) -> Select[Any]:
    """Id and time of the submissions that match these filters; at least the `most` newest of them."""
    submission = tables.Submission
    of_it: Any = bindparam("assignment_id") if "assignment_id" in given else None
    if "student_id" in given:
        theirs = counting_query(bindparam("student_id"), of_it)
        return _in_state(select(theirs.c.id, theirs.c.created_at), theirs.c.id, given)
    if "course_ids" not in given:
        query: Any = select(submission.id, submission.created_at)
        query = query.where(submission.number > 0)  # lower: samples of dry runs and stress tests
        query = query if of_it is None else query.where(submission.assignment_id == of_it)
        return _in_state(query, submission.id, given)
    here = _of_courses(given, of_it, most, lateral)
    if "own" not in given:
        return here
    theirs = counting_query(bindparam("own"), of_it)
    elsewhere = select(theirs.c.id, theirs.c.created_at).where(theirs.c.assignment_id.not_in(_of_staff()))
    parts = (here.subquery().select(), _in_state(elsewhere, theirs.c.id, given))
    both = union_all(*parts).subquery()
    return select(both.c.id, both.c.created_at)


def _of_courses(given: frozenset[str], of_it: Any, most: Any, lateral: bool) -> Select[Any]:
    """Those of `course_ids`, or of one assignment of them."""
    submission, conditions = tables.Submission, [tables.Submission.number > 0]
    if "state" in given:
        current = and_(tables.Round.submission_id == submission.id, tables.Round.current)
        conditions.append(exists().where(current, tables.Round.state == bindparam("state")))
    if of_it is not None:
        conditions += [submission.assignment_id == of_it, submission.assignment_id.in_(_of_staff())]
        columns: Any = select(submission.id, submission.created_at)
        found: Select[Any] = columns.where(*conditions)
        return found
    listed: Any = bindparam("course_ids", expanding=True)
    order = (submission.created_at.desc(), submission.id)
    return newest_submissions.of_courses(listed, order, most, *conditions, lateral=lateral)


def _of_staff() -> Select[Any]:
    here = tables.Assignment.course_id.in_(bindparam("course_ids", expanding=True))
    return select(tables.Assignment.id).where(here)


def _in_state(query: Select[Any], id_: Any, given: frozenset[str]) -> Select[Any]:
    if "state" not in given:
        return query
    current = and_(tables.Round.submission_id == id_, tables.Round.current)
    return query.join(tables.Round, current).where(tables.Round.state == bindparam("state"))


def load_lines(session: Session, ids: Sequence[str]) -> tuple[SubmissionLine, ...]:
    """These submissions, in this order."""
    rows = session.execute(_lines(), {"ids": list(ids)}) if ids else ()
    found = {line.id: line for line in group_lines(rows)}
    return tuple(found[one] for one in ids if one in found)


@cache
def _lines() -> Select[Any]:
    some = tables.Submission.id.in_(bindparam("ids", expanding=True))
    return line_query().where(some).order_by(tables.SubmissionMember.user_id)


def lines_query(some: Subquery, *more: Any) -> Select[Any]:
    """A query of the columns that `group_lines` needs and `more`, for submissions in a subquery."""
    return line_query(some).add_columns(*more).order_by(tables.SubmissionMember.user_id)


def group_lines(rows: Iterable[Any]) -> tuple[SubmissionLine, ...]:
    """Lines from rows, in the order of their first rows."""
    firsts: dict[str, Any] = {}
    members: dict[str, list[int]] = {}
    for row in rows:
        firsts.setdefault(row.id, row)
        if row.member is not None:
            members.setdefault(row.id, []).append(row.member)
    return tuple(_line(row, tuple(members.get(id_, ()))) for id_, row in firsts.items())


def _line(row: Any, members: tuple[int, ...]) -> SubmissionLine:
    # by their place in the list of `list_queries`: by name they take longer than all else here
    (
        id_, number, student_id, created_at, course_id, assignment_id, slug, title, due_at, late, course,
        student, state, final_points, points_so_far, max_points, held, released_at, flag_messages, own,
    ) = row[: LINE_COLUMNS]  # fmt: skip
    return SubmissionLine(
        id=id_,
        number=number,
        course_id=course_id,
        course=course,
        assignment=slug,
        assignment_id=assignment_id,
        assignment_title=title,
        student_id=student_id,
        student=student,
        state=state,
        created_at=created_at,
        points=final_points,
        points_so_far=points_so_far,
        max_points=max_points,
        held=bool(held),
        released=released_at is not None,
        flags=tuple(Message.model_validate(one) for one in flag_messages or ()),
        lateness=lateness(created_at, own_due(due_at, own), rule_of(late)),
        members=members,
    )
