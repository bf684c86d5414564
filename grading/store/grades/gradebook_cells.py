"""Cells of the gradebook: the counting submission and score of each student and assignment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import ColumnElement, Engine, Select, and_, bindparam, select
from sqlalchemy.orm import Session, aliased

from grading.domain.base_value import Value
from grading.domain.round_states import RoundState
from grading.store.database import cache_now, clock_column
from grading.store.tables import (
    Assignment,
    Grade,
    Round,
    RubricVersion,
    Submission,
    SubmissionMember,
    User,
)

MAX_COLUMNS = 200
"""Assignments that are shown."""
_POINTS: WeakKeyDictionary[Engine, dict[int, float]] = WeakKeyDictionary()
"""Database -> rubric version -> its points; versions are immutable."""

ASSIGNMENTS: Any = bindparam("assignments", expanding=True)
STUDENTS: Any = bindparam("students", expanding=True)


class Column(Value):
    """An assignment of the course."""

    id: int
    slug: str
    title: str
    due_at: datetime | None
    counts: str
    group_size: int
    max_points: float
    """By the present rubric."""


class Cell(Value):
    """The score that counts of a student for an assignment; without a submission only `state` is set."""

    submission_id: str = ""
    state: str = "ahead"
    """graded, open (not graded yet), partial, failed, missing (past due), ahead (not due yet)"""
    points: float | None = None
    """The score that counts."""
    max_points: float = 0.0
    credit: float = 1.0
    adjustment: float = 0.0
    held: bool = False
    released: bool = False


def load_cells(
    session: Session, listed: Sequence[Column], students: Sequence[int], *, released_only: bool
) -> Mapping[tuple[int, int], Cell]:
    """(assignment, student) -> cell of what they or their group submitted."""
    found: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for query, ids in _queries(listed):
        for row in session.execute(query, {"assignments": ids, "students": list(students)}):
            found[row.assignment_id, row.user_id].append(row)
    rules = {one.id: one.counts for one in listed}
    return {
        key: _cell(_counting(submissions, rules[key[0]]), released_only=released_only)
        for key, submissions in found.items()
    }


def _queries(listed: Sequence[Column]) -> Iterator[tuple[Select[Any], list[int]]]:
    """One submission of each student for each assignment, by an index; then those of their groups."""
    for rule in ("latest", "best"):
        ids = [one.id for one in listed if one.counts == rule]
        if ids:
            yield _picked(rule), ids
    shared = [one.id for one in listed if one.group_size > 1]
    if shared:
        yield _of_groups(), shared


@cache
def _of_groups() -> Select[Any]:
    member = SubmissionMember
    query = _told(member.user_id.label("user_id")).join(member, member.submission_id == Submission.id)
    return query.where(member.user_id.in_(STUDENTS), Submission.assignment_id.in_(ASSIGNMENTS))


@cache
def _picked(rule: str) -> Select[Any]:
    one, assignment, user = aliased(Submission), aliased(Assignment), aliased(User)
    newest = select(one.id).where(one.assignment_id == assignment.id, one.student_id == user.id)
    if rule == "best":
        newest = (
            newest.outerjoin(Round, and_(Round.submission_id == one.id, Round.current))
            .outerjoin(Grade, Grade.round_id == Round.id)
            .order_by(Grade.final_points.desc().nulls_last())
        )
    picked = newest.order_by(one.number.desc()).limit(1).correlate(assignment, user).scalar_subquery()
    pairs = (
        select(user.id.label("user_id"), picked.label("submission_id"))
        .select_from(user)
        .join(assignment, assignment.id.in_(ASSIGNMENTS))
        .where(user.id.in_(STUDENTS))
        .cte("pairs")
    )
    return _told(pairs.c.user_id).join(pairs, pairs.c.submission_id == Submission.id)


def _told(user: ColumnElement[int] | Any) -> Select[Any]:
    return (
        select(
            user, Submission.id, Submission.assignment_id, Submission.created_at, Round.state,
            Grade.final_points, Grade.max_points, Grade.credit, Grade.adjustment, Grade.held,
            Grade.released_at,
        )
        .select_from(Submission)
        .join(Round, and_(Round.submission_id == Submission.id, Round.current))
        .outerjoin(Grade, Grade.round_id == Round.id)
    )  # fmt: skip


def _counting(submissions: Sequence[Any], rule: str) -> Any:
    """The newest, or the one with the most points."""
    if rule == "best" and (graded := [one for one in submissions if one.final_points is not None]):
        return max(graded, key=lambda one: (one.final_points, one.created_at))
    return max(submissions, key=lambda one: one.created_at)


def _cell(row: Any, *, released_only: bool) -> Cell:
    hidden = released_only and row.released_at is None
    state = row.state if RoundState(row.state).final else "open"
    return Cell.model_construct(
        submission_id=row.id,
        state="open" if hidden and state != "failed" else state,
        points=None if hidden else row.final_points,
        max_points=row.max_points or 0.0,
        credit=1.0 if hidden or row.credit is None else row.credit,
        adjustment=0.0 if hidden else row.adjustment or 0.0,
        held=bool(row.held) and not released_only,
        released=row.released_at is not None,
    )


def load_columns(
    session: Session, course_id: int, *, visible: bool = False, assignment_id: int | None = None
) -> tuple[Column, ...]:
    """The assignments of a course by due date: all, those that students see, or one."""
    wanted = {"course_id": course_id, "assignment_id": assignment_id}
    query = _columns(session.get_bind().dialect.name, visible, assignment_id is not None)
    found = session.execute(query, wanted).all()
    if found:
        cache_now(session, found[0].clock)  # what is missing rests on it
    highest = _highest(session, [one.version for one in found if one.version is not None])
    return tuple(
        Column(
            id=one.id, slug=one.slug, title=one.title, due_at=one.due_at, counts=one.counts,
            group_size=one.group_size, max_points=highest.get(one.version, 0.0),
        )
        for one in found
    )  # fmt: skip


@cache
def _columns(dialect: str, visible: bool, single: bool) -> Select[Any]:
    newest = (
        select(RubricVersion.id)
        .where(RubricVersion.assignment_id == Assignment.id, RubricVersion.published_at.is_not(None))
        .order_by(RubricVersion.number.desc())
        .limit(1)
        .scalar_subquery()
    )
    query: Select[Any] = (
        select(
            Assignment.id, Assignment.slug, Assignment.title, Assignment.due_at, Assignment.counts,
            Assignment.group_size, newest.label("version"), clock_column(dialect),
        )
        .where(Assignment.course_id == bindparam("course_id"))
        .order_by(Assignment.due_at.is_(None), Assignment.due_at, Assignment.id)
        .limit(MAX_COLUMNS)
    )  # fmt: skip
    if visible:
        query = query.where(Assignment.visible)
    return query.where(Assignment.id == bindparam("assignment_id")) if single else query


def _highest(session: Session, versions: Sequence[int]) -> Mapping[int, float]:
    known = _POINTS.setdefault(session.get_bind().engine, {})
    missing = [one for one in versions if one not in known]
    if missing:
        query = select(RubricVersion.id, RubricVersion.rubric).where(RubricVersion.id.in_(missing))
        for version, rubric in session.execute(query):
            points = sum(float(one["points"]) for one in rubric.get("criteria", ()) if not one.get("bonus"))
            known[version] = round(points, 2)
    return {one: known[one] for one in versions if one in known}
