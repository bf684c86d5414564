"""Change stamps of courses and assignments, by which pages about a whole class validate their caches.

Each transaction that changes what such pages read adds one row for each assignment: a marker with a random
value. The stamp of a course or an assignment is the number of its markers and the sum of their values. It is
read from an index, and changes as soon as one more transaction commits, in whatever order they do. No
transaction waits for another here, as rows are only added; the sweeper merges them (`merge_markers`).
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar

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
    ChangeMarker,
    Course,
    DryRun,
    Example,
    Extension,
    Grade,
    GroupMember,
    GuaranteeSample,
    HumanMark,
    Identity,
    Mark,
    Membership,
    RegradeRequest,
    Round,
    RubricVersion,
    SeparateAnswer,
    Submission,
    SubmissionMember,
    User,
)

Stamp = tuple[int, int]
Stamps = tuple[Stamp, Stamp, Stamp]
"""Number and sum of the markers of an assignment, of its course and of all courses."""
T = TypeVar("T")
MOST_KEPT = 10_000
"""Assignments of which an `AssignmentCache` keeps a value."""
VALUE_BITS = 40
"""Bits of a marker's value: the sum of many thousands of them fits into 64 bits."""
MERGE_FROM = 50
"""Number of markers of an assignment from which on they are merged."""
ALL_COURSES = (0, 0)
TRACKED_MANUALLY = {"change_tracking": "manual"}
"""Execution options of a statement on many rows whose changes the caller records by `mark_changed`."""
_OF_SUBMISSION = (Grade, Round, Change, Mark, SubmissionMember, RegradeRequest, SeparateAnswer)
_OF_ASSIGNMENT = (
    Submission,
    RubricVersion,
    Extension,
    GroupMember,
    Example,
    DryRun,
    GuaranteeSample,
    HumanMark,
)
_TRACKED_TABLES = (*_OF_SUBMISSION, *_OF_ASSIGNMENT, Assignment, Course, Membership)
_INSERT = Base.metadata.tables["change_markers"].insert()
_INSERT_OF = _INSERT.from_select(
    ["course_id", "assignment_id", "value"],
    select(Assignment.course_id, Assignment.id, bindparam("value", type_=BigInteger)).where(
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
"""Tables of which only changes of these columns count."""


@dataclass
class _Changes:
    """What a transaction changed."""

    submissions: set[str] = field(default_factory=set)
    assignments: set[int] = field(default_factory=set)
    known: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of course and assignment, as in the table of markers."""


def stamp(session: Session, course_id: int, assignment_id: int | None = None) -> Stamp:
    """The stamp of an assignment, or of a course and all in it: equal as long as nothing changes there."""
    given = {"course_id": course_id, "assignment_id": assignment_id}
    count, total = session.execute(_marker_sum(assignment_id is not None), given).one()
    return count, int(total)


@cache
def _marker_sum(of_assignment: bool) -> Select[int, int]:
    query = select(func.count(), func.coalesce(func.sum(ChangeMarker.value), 0))
    query = query.where(ChangeMarker.course_id.in_((bindparam("course_id", type_=Integer), 0)))
    if of_assignment:
        query = query.where(ChangeMarker.assignment_id.in_((bindparam("assignment_id", type_=Integer), 0)))
    return query


def stamps_of_assignments(session: Session, courses: Mapping[int, int]) -> dict[int, Stamps]:
    """The stamps of many assignments in one query; `courses` maps each of them to its course."""
    query = select(
        ChangeMarker.course_id, ChangeMarker.assignment_id, func.count(), func.sum(ChangeMarker.value)
    )
    query = query.where(ChangeMarker.course_id.in_({0, *courses.values()}))
    rows = session.execute(query.group_by(ChangeMarker.course_id, ChangeMarker.assignment_id))
    marks = {(course, assignment): (count, int(total)) for course, assignment, count, total in rows}
    none = (0, 0)
    return {
        one: (marks.get((course, one), none), marks.get((course, 0), none), marks.get((0, 0), none))
        for one, course in courses.items()
    }


class AssignmentCache(Generic[T]):
    """Values of many assignments, each loaded again only where its stamps changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[int, tuple[Stamps, T]] = OrderedDict()

    def of(
        self,
        session: Session,
        courses: Mapping[int, int],
        load: Callable[[Session, Collection[int]], Mapping[int, T]],
    ) -> dict[int, T]:
        """Values by assignment; `courses` maps each of these to its course, `load` gives those that miss."""
        # looked at first: what commits while it is loaded gives another stamp next time
        stamps = stamps_of_assignments(session, courses)
        with self._lock:
            known = {one: self._known[one] for one in courses if one in self._known}
        found = {one: value for one, (stamp, value) in known.items() if stamp == stamps[one]}
        missing = courses.keys() - found.keys()
        if missing:
            loaded = load(session, missing)
            with self._lock:
                self._known.update({one: (stamps[one], value) for one, value in loaded.items()})
                while len(self._known) > MOST_KEPT:
                    self._known.popitem(last=False)
            found.update(loaded)
        return found


def mark_changed(session: Session, submission_ids: Iterable[str]) -> None:
    """Record that these submissions change, by statements with the options `TRACKED_MANUALLY`."""
    _changes_of(session).submissions.update(submission_ids)


def mark_assignment_changed(session: Session, course_id: int, assignment_id: int) -> None:
    """Record that something of this assignment changes, by statements that are not tracked."""
    _changes_of(session).known.add((course_id, assignment_id))


def track_changes(writing: sessionmaker[Session]) -> None:
    """Add markers for what sessions of this factory change, when they commit."""
    event.listen(writing, "after_flush", _after_flush)
    event.listen(writing, "do_orm_execute", _statement)
    event.listen(writing, "before_commit", _before_commit)


def _changes_of(session: Session) -> _Changes:
    known: _Changes = session.info.setdefault("changes", _Changes())
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
    """A statement on many rows changes all courses, unless its options say that it is tracked manually."""
    if not (state.is_insert or state.is_update or state.is_delete):
        return
    mapper = state.bind_mapper
    if (
        mapper is not None
        and mapper.class_ in _TRACKED_TABLES
        and "change_tracking" not in state.execution_options
    ):
        _changes_of(state.session).known.add(ALL_COURSES)


def _before_commit(session: Session) -> None:
    if session.in_nested_transaction():
        return  # what is written in a savepoint may be taken back with it
    session.flush()
    seen: _Changes | None = session.info.pop("changes", None)
    if seen is None:
        return
    if ALL_COURSES in seen.known:
        seen = _Changes(known={ALL_COURSES})
    if seen.submissions or seen.assignments:
        of_them = {"submissions": list(seen.submissions), "assignments": list(seen.assignments)}
        session.connection().execute(_INSERT_OF, {**of_them, "value": secrets.randbits(VALUE_BITS)})
    if seen.known:
        value = secrets.randbits(VALUE_BITS)
        rows = [{"course_id": one, "assignment_id": other, "value": value} for one, other in seen.known]
        session.connection().execute(_INSERT, rows)


def merge_markers(session: Session) -> int:
    """Merge the markers of assignments that have many; returns of how many assignments."""
    many = select(ChangeMarker.course_id, ChangeMarker.assignment_id).group_by(
        ChangeMarker.course_id, ChangeMarker.assignment_id
    )
    found = session.execute(many.having(func.count() > MERGE_FROM)).all()
    for course_id, assignment_id in found:
        here = (ChangeMarker.course_id == course_id, ChangeMarker.assignment_id == assignment_id)
        session.execute(delete(ChangeMarker).where(*here))
        # a new one: a value of the past alone could repeat an earlier stamp
        row = {"course_id": course_id, "assignment_id": assignment_id, "value": secrets.randbits(VALUE_BITS)}
        session.execute(insert(ChangeMarker).values(row))
    return len(found)
