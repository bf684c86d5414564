"""Which courses and assignments changed, so that pages about a whole class may keep what they made of it.

Each transaction that changes what such pages rest on leaves one row for each assignment: a mark drawn by lot.
All marks together are the stamp of a course or an assignment. It is read by an index, and is another one as
soon as one more transaction has committed, in whatever order they do. Nobody waits for anybody, as rows are
only added; the sweeper puts many into one (`tidy`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Integer,
    Select,
    bindparam,
    delete,
    event,
    func,
    insert,
    inspect,
    or_,
    select,
)
from sqlalchemy.orm import ORMExecuteState, Session, sessionmaker

from grading.store.tables import (
    Assignment,
    Base,
    Change,
    Course,
    DryRun,
    Example,
    Extension,
    Grade,
    GroupMember,
    Identity,
    Mark,
    Membership,
    RegradeRequest,
    Round,
    RubricVersion,
    Submission,
    SubmissionMember,
    Touch,
    User,
)

Stamp = tuple[int, int]
VALUE_BITS = 40
"""Of a mark: many thousands of them have a sum that every database can hold."""
MERGE_FROM = 50
"""Marks of an assignment that are put into one."""
ALL_COURSES = (0, 0)
TRACKED_MANUALLY = {"touches": "by hand"}
"""Execution options of a statement on many rows whose place `touch` is told, or where nothing is to tell."""
_OF_SUBMISSION = (Grade, Round, Change, Mark, SubmissionMember, RegradeRequest)
_OF_ASSIGNMENT = (Submission, RubricVersion, Extension, GroupMember, Example, DryRun)
_WATCHED = (*_OF_SUBMISSION, *_OF_ASSIGNMENT, Assignment, Course, Membership)
_INSERT = Base.metadata.tables["touches"].insert()
_INSERT_OF = _INSERT.from_select(
    ["course_id", "assignment_id", "mark"],
    select(Assignment.course_id, Assignment.id, bindparam("mark", type_=BigInteger)).where(
        or_(
            Assignment.id.in_(bindparam("assignments", expanding=True)),
            Assignment.id.in_(
                select(Submission.assignment_id).where(
                    Submission.id.in_(bindparam("submissions", expanding=True))
                )
            ),
        )
    ),
)
_RELEVANT_COLUMNS: dict[type[Any], tuple[str, ...]] = {
    Round: ("state", "current", "number", "finished_at", "rubric_version_id"),
    User: ("name",),
    Course: ("title", "archived", "drop_lowest"),
}
"""Columns that others than these may change without a touch."""


@dataclass
class _Changes:
    """What a transaction changed."""

    submissions: set[str] = field(default_factory=set)
    assignments: set[int] = field(default_factory=set)
    known: set[tuple[int, int]] = field(default_factory=set)
    """Course and assignment, as the table has them."""


def stamp(session: Session, course_id: int, assignment_id: int | None = None) -> Stamp:
    """Equal as long as nothing of an assignment has changed, or of a course and all in it."""
    given = {"course_id": course_id, "assignment_id": assignment_id}
    count, marks = session.execute(_marks(assignment_id is not None), given).one()
    return count, int(marks)


@cache
def _marks(of_assignment: bool) -> Select[int, int]:
    query = select(func.count(), func.coalesce(func.sum(Touch.mark), 0))
    query = query.where(Touch.course_id.in_((bindparam("course_id", type_=Integer), 0)))
    if of_assignment:
        query = query.where(Touch.assignment_id.in_((bindparam("assignment_id", type_=Integer), 0)))
    return query


def mark_changed(session: Session, submission_ids: Iterable[str]) -> None:
    """These submissions changed, by statements `BY_HAND`."""
    _changes_of(session).submissions.update(submission_ids)


def mark_assignment_changed(session: Session, course_id: int, assignment_id: int) -> None:
    """Something of this assignment changed, by statements that nobody watches."""
    _changes_of(session).known.add((course_id, assignment_id))


def track_changes(writing: sessionmaker[Session]) -> None:
    """Note what these sessions change, when they commit."""
    event.listen(writing, "after_flush", _after_flush)
    event.listen(writing, "do_orm_execute", _statement)
    event.listen(writing, "before_commit", _before_commit)


def _changes_of(session: Session) -> _Changes:
    known: _Changes = session.info.setdefault("touched", _Changes())
    return known


def _after_flush(session: Session, _context: Any) -> None:
    for row in session.dirty:
        names = _RELEVANT_COLUMNS.get(type(row))
        of_it = inspect(row).attrs
        if names is None or any(of_it[name].history.has_changes() for name in names):
            _note(session, row)
    for row in (*session.new, *session.deleted):
        if not isinstance(row, User):
            _note(session, row)


def _note(session: Session, row: Any) -> None:
    if isinstance(row, _OF_SUBMISSION):
        _changes_of(session).submissions.add(row.submission_id)
    elif isinstance(row, _OF_ASSIGNMENT):
        _changes_of(session).assignments.add(row.assignment_id)
    elif isinstance(row, Assignment):
        _changes_of(session).known.add((row.course_id, row.id))
    elif isinstance(row, Course | Membership):
        _changes_of(session).known.add((row.id if isinstance(row, Course) else row.course_id, 0))
    elif isinstance(row, User | Identity):
        _changes_of(session).known.add(ALL_COURSES)


def _statement(state: ORMExecuteState) -> None:
    """A statement on many rows touches everything, unless somebody says what."""
    if not (state.is_insert or state.is_update or state.is_delete):
        return
    mapper = state.bind_mapper
    if mapper is not None and mapper.class_ in _WATCHED and "touches" not in state.execution_options:
        _changes_of(state.session).known.add(ALL_COURSES)


def _before_commit(session: Session) -> None:
    if session.in_nested_transaction():
        return  # what is written in a savepoint may be taken back with it
    session.flush()
    seen: _Changes | None = session.info.pop("touched", None)
    if seen is None:
        return
    if ALL_COURSES in seen.known:
        seen = _Changes(known={ALL_COURSES})
    if seen.submissions or seen.assignments:
        of_them = {"submissions": list(seen.submissions), "assignments": list(seen.assignments)}
        session.connection().execute(_INSERT_OF, {**of_them, "mark": secrets.randbits(VALUE_BITS)})
    if seen.known:
        mark = secrets.randbits(VALUE_BITS)
        rows = [{"course_id": one, "assignment_id": other, "mark": mark} for one, other in seen.known]
        session.connection().execute(_INSERT, rows)


def merge_markers(session: Session) -> int:
    """Put the marks of an assignment into one where there are many; of how many assignments."""
    many = select(Touch.course_id, Touch.assignment_id).group_by(Touch.course_id, Touch.assignment_id)
    found = session.execute(many.having(func.count() > MERGE_FROM)).all()
    for course_id, assignment_id in found:
        here = (Touch.course_id == course_id, Touch.assignment_id == assignment_id)
        session.execute(delete(Touch).where(*here))
        # a new one: a mark of the past alone could be a stamp of the past
        row = {"course_id": course_id, "assignment_id": assignment_id, "mark": secrets.randbits(VALUE_BITS)}
        session.execute(insert(Touch).values(row))
    return len(found)
