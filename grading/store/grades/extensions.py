"""Later due dates for single students, and what they do to grades that are there already."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Integer, ScalarSelect, bindparam, func, select
from sqlalchemy.orm import Session

from grading.domain.errors import GraderError, NotFound
from grading.domain.permissions import Actor
from grading.store import tables
from grading.store.assignments.settings import lock
from grading.store.audit import note
from grading.store.database import always, now
from grading.store.grades import lateness

REASON = 1000
"""Characters of a reason."""


class Student(NamedTuple):
    """A student of the course."""

    id: int
    name: str
    extended: bool
    """They have a due date of their own."""


class ExtensionRow(NamedTuple):
    """The own due date of a student of the course."""

    student_id: int
    student: str
    due_at: datetime
    reason: str
    by: str
    at: datetime


class NotExtended(GraderError):
    """The due date of these students cannot be changed so."""

    code = "extension_invalid"
    status = 422


def students(session: Session, assignment: tables.Assignment) -> list[Student]:
    """All students of the course, by name."""
    given = {"assignment_id": assignment.id, "course_id": assignment.course_id}
    return [Student._make(row) for row in session.execute(_students_of(), given)]


def given(session: Session, assignment: tables.Assignment, page: int, each: int) -> list[ExtensionRow]:
    """A page of the extensions of students of the course, by name."""
    wanted = {"assignment_id": assignment.id, "course_id": assignment.course_id, "skipped": (page - 1) * each}
    return [ExtensionRow._make(row) for row in session.execute(_given(each, page == 1), wanted)]


@cache
def _students_of() -> Any:
    own, user = tables.Extension, tables.User
    theirs = (own.student_id == user.id) & (own.assignment_id == bindparam("assignment_id"))
    here = tables.Membership.course_id == bindparam("course_id")
    return (
        select(user.id, user.name, own.student_id.is_not(None))
        .join(tables.Membership, tables.Membership.user_id == user.id)
        .outerjoin(own, theirs)
        .where(here, tables.Membership.role == "student")
        .order_by(func.lower(user.name), user.id)
    )


@cache
def _given(each: int, first: bool) -> Any:
    own, user, member = tables.Extension, tables.User, tables.Membership
    here = (member.user_id == user.id) & (member.course_id == bindparam("course_id"))
    query = (
        select(user.id, user.name, own.due_at, own.reason, func.coalesce(_by(), ""), own.at)
        .join(own, own.student_id == user.id)
        .join(member, here & (member.role == "student"))
        .where(own.assignment_id == bindparam("assignment_id"))
        .order_by(func.lower(user.name), user.id)
        .limit(always(each))
    )
    return query if first else query.offset(bindparam("skipped", type_=Integer))


def _by() -> ScalarSelect[str]:
    giver = tables.User.__table__.alias("giver")
    return select(giver.c.name).where(giver.c.id == tables.Extension.by).scalar_subquery()


def give(
    session: Session,
    assignment: tables.Assignment,
    student_ids: Sequence[int],
    due_at: datetime,
    reason: str,
    actor: Actor,
) -> int:
    """Give these students until `due_at`; grades that are there are settled anew. Returns how many students.

    Raises NotExtended.
    """
    lock(session, assignment)
    wanted = sorted(set(student_ids))
    if not wanted:
        raise NotExtended("Choose at least one student.")
    if set(wanted) - _students(session, assignment.course_id, wanted):
        raise NotExtended("One of these is not a student of this course; load the page again.")
    if assignment.due_at is None:
        raise NotExtended("This assignment has no due date, so nobody needs an extension.")
    if due_at <= assignment.due_at:
        raise NotExtended("An extension ends after the due date that holds for all.")
    moment = now(session)
    for student_id in wanted:
        row = session.get(tables.Extension, (assignment.id, student_id))
        before = row.due_at.isoformat() if row is not None else None
        values = {"due_at": due_at, "reason": _plain(reason), "by": actor.user_id, "at": moment}
        session.merge(tables.Extension(assignment_id=assignment.id, student_id=student_id, **values))
        detail = {
            "student": student_id,
            "due": due_at.isoformat(),
            "before": before,
            "reason": values["reason"],
        }
        note(session, actor.name, "extension.give", f"assignment:{assignment.id}", detail)
    session.flush()
    lateness.settle(session, assignment, actor.name, wanted)
    return len(wanted)


def revoke(session: Session, assignment: tables.Assignment, student_id: int, actor: Actor) -> bool:
    """Take an extension back; grades that are there are settled anew.

    False when there was none. Raises NotFound for who is no student of the course.
    """
    lock(session, assignment)
    row = session.get(tables.Extension, (assignment.id, student_id))
    if row is None:
        if not _students(session, assignment.course_id, [student_id]):
            raise NotFound("There is no such student in this course.")
        return False
    detail = {"student": student_id, "due": row.due_at.isoformat()}
    session.delete(row)
    session.flush()
    note(session, actor.name, "extension.revoke", f"assignment:{assignment.id}", detail)
    lateness.settle(session, assignment, actor.name, [student_id])
    return True


def _students(session: Session, course_id: int, ids: Sequence[int]) -> set[int]:
    member = tables.Membership
    query = select(member.user_id).where(
        member.course_id == course_id, member.role == "student", member.user_id.in_(ids)
    )
    return set(session.scalars(query))


def _plain(text: str) -> str:
    """Without control characters, which databases and readers stumble over."""
    return "".join(c if c.isprintable() else " " for c in text).strip()[:REASON]
