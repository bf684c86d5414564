"""Courses: lists, the course page, creation, settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Integer, Select, and_, bindparam, func, select
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, GraderError, NotFound
from grading.domain.lateness import own_due
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.shared_messages import NO_SUCH_COURSE
from grading.store.accounts import users
from grading.store.audit import write_audit
from grading.store.tables import (
    Assignment,
    Course,
    Extension,
    Grade,
    Membership,
    Round,
    Submission,
    SubmissionMember,
)

SLUG_FORM = define_message(
    "courses.slug_form", "The short name must have 1 to 64 lowercase letters, digits or hyphens."
)
SLUG_TAKEN = define_message(
    "courses.slug_taken", "A course with the short name '%(slug)s' already exists. Choose another short name."
)
NO_SUCH_INSTRUCTOR = define_message(
    "courses.no_such_instructor",
    "No account has the sign-in name '%(name)s'. Create it first, on the Accounts page.",
)
DROPPED_RANGE = define_message(
    "courses.dropped_range", "Between 0 and %(most)s lowest grades can be dropped."
)
TITLE_FORM = define_message("courses.title_form", "Enter a title of 1 to 200 printable characters.")

MAX_DROPPED = 50


@dataclass(frozen=True)
class CourseEntry:
    """A course in a list."""

    id: int
    slug: str
    title: str
    archived: bool
    assignments: int


@dataclass(frozen=True)
class NewestSubmission:
    """A reader's newest submission; with points only if they are released."""

    id: str
    number: int
    state: str
    created_at: datetime
    released: bool
    points: float | None
    points_so_far: float | None
    max_points: float | None


@dataclass(frozen=True)
class CourseAssignment:
    """An assignment on its course's page, as one reader sees it."""

    id: int
    title: str
    visible: bool
    due_at: datetime | None
    """The reader's own date, where they have an extension."""
    extended: bool
    newest: NewestSubmission | None
    submitted: int
    """Number of students who submitted; 0 for students."""


@dataclass(frozen=True)
class Settings:
    """Settings of a course that an instructor may change."""

    title: str
    archived: bool
    drop_lowest: int


def list_courses(session: Session, course_ids: frozenset[int] | None) -> tuple[CourseEntry, ...]:
    """These courses (None: all) with the number of assignments; active ones first."""
    some = {} if course_ids is None else {"course_ids": list(course_ids)}
    return tuple(CourseEntry(*row) for row in session.execute(_listing(bool(some)), some))


@cache
def _listing(some: bool) -> Any:
    shown = (Course.id, Course.slug, Course.title, Course.archived)
    query: Any = select(*shown, func.count(Assignment.id))
    query = query.outerjoin(Assignment, Assignment.course_id == Course.id)
    if some:
        query = query.where(Course.id.in_(bindparam("course_ids", expanding=True)))
    return query.group_by(Course.id).order_by(Course.archived, Course.title, Course.id)


def load_course(session: Session, course_id: int) -> Course:
    """The course. Raises NotFound."""
    found = session.scalar(_course(), {"course_id": course_id})
    if found is None:
        raise NotFound(NO_SUCH_COURSE)
    return found


@cache
def _course() -> Select[Course]:
    return select(Course).where(Course.id == bindparam("course_id"))


def load_course_title(session: Session, course_id: int) -> Any:
    """A course's `id` and `title` only, for pages. Raises NotFound."""
    found = session.execute(_named(), {"course_id": course_id}).one_or_none()
    if found is None:
        raise NotFound(NO_SUCH_COURSE)
    return found


@cache
def _named() -> Any:
    return select(Course.id, Course.title).where(Course.id == bindparam("course_id"))


def list_assignments(
    session: Session, course_id: int, reader_id: int, counts: Mapping[int, int] | None
) -> tuple[CourseAssignment, ...]:
    """The assignments of a course by due date; staff, who give `counts`, also get hidden ones."""
    newest = _newest(session, course_id, reader_id)
    rows = session.execute(_assignments(counts is not None), {"course_id": course_id, "reader_id": reader_id})
    handed = counts or {}
    return tuple(
        CourseAssignment(
            one.id, one.title, one.visible, own_due(one.due_at, one.own), one.own is not None,
            newest.get(one.id), handed.get(one.id, 0),
        )
        for one in rows
    )  # fmt: skip


@cache
def _assignments(hidden: bool) -> Any:
    """Assignments of a course with the reader's own due date, with or without hidden ones."""
    own = and_(Extension.assignment_id == Assignment.id, Extension.student_id == bindparam("reader_id"))
    query: Any = (
        select(
            Assignment.id, Assignment.title, Assignment.visible, Assignment.due_at,
            Extension.due_at.label("own"),
        )
        .outerjoin(Extension, own)
        .where(Assignment.course_id == bindparam("course_id"))
        .order_by(Assignment.due_at.is_(None), Assignment.due_at, Assignment.title, Assignment.id)
    )  # fmt: skip
    return query if hidden else query.where(Assignment.visible)


def _newest(session: Session, course_id: int, reader_id: int) -> Mapping[int, NewestSubmission]:
    """The reader's newest submission for each assignment, including those of their groups."""
    found = {}
    for row in session.execute(_newest_submissions(), {"course_id": course_id, "reader_id": reader_id}):
        shown: tuple[Any, ...] = (row.final_points, row.points_so_far, row.max_points)
        released = row.released_at is not None
        points = shown if released else (None, None, None)
        found[row.assignment_id] = NewestSubmission(
            row.id, row.number, row.state, row.created_at, released, *points
        )
    return found


@cache
def _newest_submissions() -> Any:
    course_id, reader_id = bindparam("course_id", type_=Integer), bindparam("reader_id", type_=Integer)
    of_course = select(Assignment.id).where(Assignment.course_id == course_id)
    last = (
        select(Submission.assignment_id, func.max(Submission.number).label("number"))
        .where(Submission.student_id == reader_id, Submission.assignment_id.in_(of_course))
        .group_by(Submission.assignment_id)
        .subquery()
    )
    mine = and_(
        Submission.assignment_id == last.c.assignment_id,
        Submission.number == last.c.number,
        Submission.student_id == reader_id,
    )
    together = select(SubmissionMember.submission_id).where(SubmissionMember.user_id == reader_id)
    own = select(Submission.id).join(last, mine)
    with_others = select(Submission.id).where(
        Submission.id.in_(together), Submission.assignment_id.in_(of_course)
    )
    return (
        select(
            Submission.id, Submission.assignment_id, Submission.number, Submission.created_at, Round.state,
            Grade.released_at, Grade.final_points, Grade.points_so_far, Grade.max_points,
        )
        .join(Round, and_(Round.submission_id == Submission.id, Round.current))
        .outerjoin(Grade, Grade.round_id == Round.id)
        .where(Submission.id.in_(own.union(with_others)))
        .order_by(Submission.created_at)
    )  # fmt: skip


def count_submitters(session: Session, course_id: int) -> Mapping[int, int]:
    """Number of students who submitted, by assignment; one index lookup for each student."""
    one = (
        select(Submission.id)
        .where(Submission.assignment_id == Assignment.id, Submission.student_id == Membership.user_id)
        .limit(1)
        .correlate(Assignment, Membership)
        .scalar_subquery()
    )
    query = (
        select(Assignment.id, func.count())
        .join(Membership, Membership.course_id == Assignment.course_id)
        .where(Assignment.course_id == course_id, Membership.role == "student", one.is_not(None))
        .group_by(Assignment.id)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def create_course(session: Session, slug: str, title: str, instructor: str, actor: Actor) -> int:
    """Create a course, with its first instructor if one is given; returns its id. Raises Conflict."""
    slug, title, instructor = slug.strip(), _title(title), instructor.strip()
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", slug):
        raise GraderError(SLUG_FORM)
    if session.scalar(select(Course.id).where(Course.slug == slug)) is not None:
        raise Conflict(SLUG_TAKEN(slug=slug))
    user = users.find_user(session, "local", instructor) if instructor else None
    if instructor and (user is None or user.disabled):
        raise GraderError(NO_SUCH_INSTRUCTOR(name=instructor[:100]))
    course = Course(slug=slug, title=title)
    session.add(course)
    session.flush()
    write_audit(session, actor.name, "course.create", f"course:{course.id}", {"slug": slug})
    if user is not None:
        users.enrol(session, user.id, course.id, "instructor")
        detail = {"before": "", "after": "instructor"}
        write_audit(session, actor.name, "role.change", f"user:{user.id}", detail, course.id)
    return course.id


def settings_of(course: Course) -> Settings:
    """The course's present settings."""
    return Settings(course.title, course.archived, course.drop_lowest)


def lock_course(session: Session, course_id: int) -> Course:
    """The course, locked until the transaction ends."""
    return session.get_one(Course, course_id, with_for_update=True, populate_existing=True)


def change_settings(session: Session, course_id: int, wanted: Settings, actor: Actor) -> None:
    """Change the settings that differ."""
    if not 0 <= wanted.drop_lowest <= MAX_DROPPED:
        raise GraderError(DROPPED_RANGE(most=MAX_DROPPED))
    wanted = Settings(_title(wanted.title), wanted.archived, wanted.drop_lowest)
    course = session.get_one(Course, course_id, with_for_update=True)
    before = settings_of(course)
    names = ("title", "archived", "drop_lowest")
    changed = {
        name: getattr(wanted, name) for name in names if getattr(wanted, name) != getattr(before, name)
    }
    for name, value in changed.items():
        setattr(course, name, value)
    if changed:
        was = {name: getattr(before, name) for name in changed}
        write_audit(
            session, actor.name, "course.change", f"course:{course_id}", {"before": was, "after": changed}
        )


def _title(text: str) -> str:
    title = text.strip()
    if not 0 < len(title) <= 200 or not title.isprintable():
        raise GraderError(TITLE_FORM)
    return title
