"""Extensions of due dates for single students, and rescoring of grades when lateness changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Integer, ScalarSelect, and_, bindparam, func, select
from sqlalchemy.orm import Session

from grading.assignments.editor.folder import Settings
from grading.domain.errors import CannotUndo, GraderError, NotFound
from grading.domain.lateness import LateRule, lateness, own_due
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.round_states import RoundState
from grading.domain.shared_messages import NOT_A_STUDENT
from grading.store import tables
from grading.store.assignments.settings import change_settings, lock_assignment
from grading.store.audit import UNDO, done_at, write_audit
from grading.store.bulk import chunks
from grading.store.database import literal_limit, now
from grading.store.grades import final_score, release
from grading.store.tables import Assignment, Extension, Grade, Round, Submission

NO_STUDENT_CHOSEN = define_message("extensions.no_student_chosen", "Choose at least one student.")
NO_DUE_DATE = define_message(
    "extensions.no_due_date", "This assignment has no due date, so extensions are not needed."
)
BEFORE_DUE_DATE = define_message(
    "extensions.before_due_date", "An extension must end after the due date for everyone."
)
NO_SUCH_STUDENT = define_message("extensions.no_such_student", "This student is not in this course.")

REASON = 1000
"""Maximum length of a reason."""


class Student(NamedTuple):
    """A student of the course."""

    id: int
    name: str
    extended: bool
    """They have an extension."""


class ExtensionRow(NamedTuple):
    """The extension of a student of the course."""

    student_id: int
    student: str
    due_at: datetime
    reason: str
    by: str
    at: datetime


class NotExtended(GraderError):
    """This extension cannot be saved."""

    code = "extension_invalid"
    status = 422
    default_message = define_message("error.not_extended", "This extension cannot be saved.")


def list_students(session: Session, assignment: tables.Assignment) -> list[Student]:
    """All students of the course, by name."""
    given = {"assignment_id": assignment.id, "course_id": assignment.course_id}
    return [Student._make(row) for row in session.execute(_students_of(), given)]


def list_extensions(
    session: Session, assignment: tables.Assignment, page: int, each: int
) -> list[ExtensionRow]:
    """A page of the extensions of the course's students, by name."""
    wanted = {"assignment_id": assignment.id, "course_id": assignment.course_id, "skipped": (page - 1) * each}
    return [ExtensionRow._make(row) for row in session.execute(_given(each, page == 1), wanted)]


def list_extensions_after(
    session: Session, assignment: tables.Assignment, after: int, limit: int
) -> list[ExtensionRow]:
    """The extensions of the course's students with ids above `after`, by id."""
    wanted = {"assignment_id": assignment.id, "course_id": assignment.course_id}
    user = tables.User
    query = _given(limit, True).order_by(None).order_by(user.id).where(user.id > after)
    return [ExtensionRow._make(row) for row in session.execute(query, wanted)]


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
        .limit(literal_limit(each))
    )
    return query if first else query.offset(bindparam("skipped", type_=Integer))


def _by() -> ScalarSelect[str]:
    giver = tables.User.__table__.alias("giver")
    return select(giver.c.name).where(giver.c.id == tables.Extension.by).scalar_subquery()


def grant_extension(
    session: Session,
    assignment: tables.Assignment,
    student_ids: Sequence[int],
    due_at: datetime,
    reason: str,
    actor: Actor,
) -> int:
    """Extend the due date of these students to `due_at` and rescore their grades; returns how many students.

    Raises NotExtended.
    """
    lock_assignment(session, assignment)
    wanted = sorted(set(student_ids))
    if not wanted:
        raise NotExtended(NO_STUDENT_CHOSEN)
    if set(wanted) - _students(session, assignment.course_id, wanted):
        raise NotExtended(NOT_A_STUDENT)
    if assignment.due_at is None:
        raise NotExtended(NO_DUE_DATE)
    if due_at <= assignment.due_at:
        raise NotExtended(BEFORE_DUE_DATE)
    moment = now(session)
    for student_id in wanted:
        row = session.get(tables.Extension, (assignment.id, student_id))
        before = row.due_at.isoformat() if row is not None else None
        replaced = row.reason if row is not None else ""
        values = {"due_at": due_at, "reason": _plain(reason), "by": actor.user_id, "at": moment}
        session.merge(tables.Extension(assignment_id=assignment.id, student_id=student_id, **values))
        detail = {
            "student": student_id,
            "due": due_at.isoformat(),
            "before": before,
            "reason": values["reason"],
            **({UNDO: replaced} if replaced else {}),
        }
        write_audit(session, actor.name, "extension.give", f"assignment:{assignment.id}", detail)
    session.flush()
    rescore_lateness(session, assignment, actor.name, wanted)
    return len(wanted)


def revoke_extension(session: Session, assignment: tables.Assignment, student_id: int, actor: Actor) -> bool:
    """Revoke an extension and rescore the student's grades.

    False when there was none. Raises NotFound for users who are no students of the course.
    """
    lock_assignment(session, assignment)
    row = session.get(tables.Extension, (assignment.id, student_id))
    if row is None:
        if not _students(session, assignment.course_id, [student_id]):
            raise NotFound(NO_SUCH_STUDENT)
        return False
    detail = {"student": student_id, "due": row.due_at.isoformat()}
    detail |= {UNDO: row.reason} if row.reason else {}
    session.delete(row)
    session.flush()
    write_audit(session, actor.name, "extension.revoke", f"assignment:{assignment.id}", detail)
    rescore_lateness(session, assignment, actor.name, [student_id])
    return True


def undo_extensions(session: Session, assignment: tables.Assignment, moment: datetime, actor: Actor) -> int:
    """Undo the extensions that the actor gave or revoked at this moment; returns for how many students.

    Extensions that changed since stay. Raises CannotUndo where no other is left.
    """
    lock_assignment(session, assignment)
    rows = done_at(session, actor.name, moment, "extension.give", "extension.revoke")
    rows = [row for row in rows if row.object == f"assignment:{assignment.id}"]
    undone = [student for row in rows if (student := _undo_one(session, assignment, row, moment, actor))]
    if not undone:
        raise CannotUndo
    session.flush()
    rescore_lateness(session, assignment, actor.name, undone)
    return len(undone)


def _undo_one(
    session: Session, assignment: tables.Assignment, row: tables.Audit, moment: datetime, actor: Actor
) -> int | None:
    """Undo what a row of the audit says; returns the student, or None where it changed since."""
    detail, given = row.detail, row.action == "extension.give"
    student_id = int(detail["student"])
    current = session.get(tables.Extension, (assignment.id, student_id))
    untouched = current is not None and current.at == moment if given else current is None
    if not untouched or not _students(session, assignment.course_id, [student_id]):
        return None
    before = detail["before"] if given else detail["due"]
    action = "extension.give" if before else "extension.revoke"
    if before:
        values = {"due_at": datetime.fromisoformat(before), "reason": detail.get(UNDO, "")}
        values |= {"by": actor.user_id, "at": now(session)}
        session.merge(tables.Extension(assignment_id=assignment.id, student_id=student_id, **values))
        entry = {"student": student_id, "due": before, "before": detail["due"] if given else None}
    else:
        session.delete(current)
        entry = {"student": student_id, "due": detail["due"]}
    write_audit(session, actor.name, action, row.object, entry)
    return student_id


def _students(session: Session, course_id: int, ids: Sequence[int]) -> set[int]:
    member = tables.Membership
    query = select(member.user_id).where(
        member.course_id == course_id, member.role == "student", member.user_id.in_(ids)
    )
    return set(session.scalars(query))


def _plain(text: str) -> str:
    """A text without control characters, which databases and readers do not accept."""
    return "".join(c if c.isprintable() else " " for c in text).strip()[:REASON]


FINAL_STATES = tuple(state.value for state in RoundState if state.final)


def apply_settings(session: Session, assignment: Assignment, settings: Settings, actor: Actor) -> int:
    """Store the settings; returns how many grades changed because their lateness did."""
    changed = change_settings(session, assignment, settings, actor)
    return rescore_lateness(session, assignment, actor.name) if {"due_at", "late"} & changed else 0


def rescore_lateness(
    session: Session, assignment: Assignment, actor: str, students: Sequence[int] | None = None
) -> int:
    """Rescore grades of an assignment, or of these students, whose late credit changed; returns how many.

    The caller holds the assignment's lock. Each change is audited, and students who saw the grade are
    notified.
    """
    mine: list[ColumnElement[bool]] = [Submission.assignment_id == assignment.id]
    mine += [] if students is None else [Submission.student_id.in_(students)]
    # a grade that is just being made may know the old date: it is waited for, and the next one knows the new
    under_way = select(Round.id).join(Submission, Submission.id == Round.submission_id)
    under_way = under_way.where(*mine, Round.state.not_in(FINAL_STATES)).order_by(Round.id)
    session.execute(under_way.with_for_update(of=Round, key_share=True))
    moved = _moved(session, assignment, mine)
    for some in chunks(moved):
        query = select(Grade).where(Grade.id.in_(some)).order_by(Grade.id).with_for_update()
        for grade in session.scalars(query.execution_options(populate_existing=True)).all():
            _rescore(session, grade, actor)
    return len(moved)


def _moved(session: Session, assignment: Assignment, mine: Sequence[ColumnElement[bool]]) -> list[int]:
    own = Extension
    whose = and_(own.assignment_id == assignment.id, own.student_id == Submission.student_id)
    rows = session.execute(
        select(Grade.id, Grade.credit, Submission.created_at, own.due_at)
        .join(Submission, Submission.id == Grade.submission_id)
        .outerjoin(own, whose)
        .where(*mine)
        .order_by(Grade.id)
    )
    rule = LateRule.model_validate(assignment.late or {})
    return [
        row.id
        for row in rows
        if lateness(row.created_at, own_due(assignment.due_at, row.due_at), rule).credit != row.credit
    ]


def _rescore(session: Session, grade: Grade, actor: str) -> None:
    was, credit = grade.final_points, grade.credit
    final_score.update_final_score(session, grade)
    detail = {"credit": {"from": credit, "to": grade.credit}, "from": was, "to": grade.final_points}
    write_audit(session, actor, "grade.late", f"submission:{grade.submission_id}", detail)
    if grade.released_at is not None and grade.final_points != was:
        release.add_event(session, grade, "grade.changed", f"changed:{grade.round_id}:late:{grade.credit:g}")
