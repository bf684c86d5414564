"""Later due dates for single students, and what they do to grades that are there already."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import ScalarSelect, func, select
from sqlalchemy.orm import Session

from grading.errors import GraderError, NotFound
from grading.may import Actor
from grading.store import lateness_again, tables
from grading.store.assignment_settings import lock
from grading.store.audit import note
from grading.store.database import now

REASON = 1000
"""Characters of a reason."""


class ExtensionRow(NamedTuple):
    """A student of the course with their own due date, if they have one."""

    student_id: int
    student: str
    due_at: datetime | None
    reason: str = ""
    by: str = ""
    at: datetime | None = None


class NotExtended(GraderError):
    """The due date of these students cannot be changed so."""

    code = "extension_invalid"
    status = 422


def listed(session: Session, assignment: tables.Assignment) -> list[ExtensionRow]:
    """All students of the course, those with an extension first, then by name."""
    own, user, by = tables.Extension, tables.User, _by()
    query = (
        select(user.id, user.name, own.due_at, own.reason, by, own.at)
        .join(tables.Membership, tables.Membership.user_id == user.id)
        .outerjoin(own, (own.student_id == user.id) & (own.assignment_id == assignment.id))
        .where(tables.Membership.course_id == assignment.course_id, tables.Membership.role == "student")
        .order_by(own.due_at.is_(None), func.lower(user.name), user.id)
    )
    return [
        ExtensionRow(row[0], row[1], row[2], row[3] or "", row[4] or "", row[5])
        for row in session.execute(query)
    ]


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
    lateness_again.settle(session, assignment, actor.name, wanted)
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
    lateness_again.settle(session, assignment, actor.name, [student_id])
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
