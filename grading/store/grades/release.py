"""Release of grades to students, at once or at a date, and their withdrawal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, false, func, select
from sqlalchemy.orm import Session, defer

from grading.domain.base_value import Value
from grading.domain.errors import CannotUndo, Conflict, GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.store import outbox, periodic_tasks, tables
from grading.store.audit import UNDO, done_at, write_audit
from grading.store.bulk import chunks
from grading.store.database import now
from grading.store.grades import counts
from grading.store.learning_platforms import grade_changed
from grading.store.submissions import mail_notifications

NO_GRADE_TO_RELEASE = define_message("release.no_grade_to_release", "There is no grade to release yet.")
OTHER_GRADING_COUNTS = define_message(
    "release.other_grading_counts", "This submission was regraded in the meantime. Reload the page."
)

POLICIES = ("at_once", "after_review", "at")
TASK_PREFIX = "release:"
"""Prefix of the periodic tasks that release an assignment's grades: its id and the date follow."""
RETRY_AFTER = timedelta(seconds=60)
FOR = timedelta(minutes=2)
"""Results recorded until then after the date are released by the task; later ones when they are recorded."""
EVER = timedelta(days=36_500)


class PolicyRefused(GraderError):
    """Choose when grades are released: immediately, manually, or on a date with day and time."""

    code = "release_refused"
    status = 422
    default_message = define_message(
        "error.policy_refused",
        "Choose when grades are released: immediately, manually, or on a date with day and time.",
    )


def release_grade(session: Session, round_id: str, actor: Actor) -> None:
    """Release the grade of this round to the student. Raises NotFound while there is none."""
    grade = _grade(session, round_id)
    if grade.released_at is None:
        _release(session, [grade], actor.user_id, actor.name)


def release_all(session: Session, assignment_id: int, actor: Actor, only: Sequence[str] | None = None) -> int:
    """Release the current grades of an assignment that are complete and not held; returns how many.

    `only` restricts it to these submissions. Withdrawn grades are released again.
    """
    where = [] if only is None else [tables.Grade.submission_id.in_(only)]
    return _release_ready(session, assignment_id, actor, where, some=only is not None)


def release_rounds(session: Session, assignment_id: int, actor: Actor, rounds: Sequence[str]) -> int:
    """Release the grades of these rounds that are current, complete, not held, and touched by nobody."""
    grade = tables.Grade
    untouched = (grade.reviewed_at.is_(None), grade.released_by.is_(None))
    where = [grade.round_id.in_(rounds), *untouched]
    return _release_ready(session, assignment_id, actor, where, some=True)


def _release_ready(
    session: Session, assignment_id: int, actor: Actor, where: Sequence[ColumnElement[bool]], *, some: bool
) -> int:
    count = _release(session, _ready(session, assignment_id, *where), actor.user_id, actor.name)
    action = "grade.release_some" if some else "grade.release_all"
    write_audit(session, actor.name, action, f"assignment:{assignment_id}", {"count": count})
    return count


def withdraw_grade(session: Session, round_id: str, actor: Actor, reason: str = "") -> None:
    """Withdraw a released grade; the student sees that it was withdrawn. Raises NotFound without a grade."""
    grade = _grade(session, round_id)
    if grade.released_at is not None:
        _withdraw(session, grade, actor, reason)


def withdraw_all(
    session: Session, assignment_id: int, actor: Actor, only: Sequence[str] | None = None, reason: str = ""
) -> int:
    """Withdraw the released grades of an assignment, or of these submissions; returns how many."""
    where: list[ColumnElement[bool]] = [tables.Grade.released_at.is_not(None)]
    where += [] if only is None else [tables.Grade.submission_id.in_(only)]
    found = _current(session, assignment_id, *where)
    for grade in found:
        _withdraw(session, grade, actor, reason)
    return len(found)


def undo_release(session: Session, assignment_id: int, moment: datetime, actor: Actor) -> int:
    """Take back what the actor released at this moment; returns how many. Raises CannotUndo.

    What was released for the first time then is as before its release, what was withdrawn is withdrawn.
    """
    theirs = (tables.Grade.released_at == moment, tables.Grade.released_by == actor.user_id)
    found = _current(session, assignment_id, *theirs)
    if not found:
        raise CannotUndo
    rows = done_at(session, actor.name, moment, "grade.release")
    again = {row.object for row in rows if row.detail.get(UNDO)}
    for grade in found:
        _withdraw(session, grade, actor, "")
        if f"submission:{grade.submission_id}" not in again:
            grade.released_by = None
    return len(found)


def undo_withdrawal(session: Session, assignment_id: int, moment: datetime, actor: Actor) -> int:
    """Release again what the actor withdrew at this moment; returns how many. Raises CannotUndo."""
    rows = done_at(session, actor.name, moment, "grade.withdraw")
    ids = [row.object.removeprefix("submission:") for row in rows]
    grade = tables.Grade
    still = (grade.released_at.is_(None), grade.released_by == actor.user_id)
    found = [
        one
        for some in chunks(ids)
        for one in _current(session, assignment_id, *still, grade.submission_id.in_(some))
    ]
    if not found:
        raise CannotUndo
    return _release(session, found, actor.user_id, actor.name)


def set_policy(
    session: Session, assignment: tables.Assignment, policy: str, at: datetime | None, actor: Actor
) -> None:
    """Set when grades of an assignment are released from now on. Raises PolicyRefused."""
    if policy not in POLICIES or (policy == "at" and at is None):
        raise PolicyRefused
    was = {"release": assignment.release, "at": _text(assignment.release_at)}
    assignment.release, assignment.release_at = policy, at if policy == "at" else None
    to = {"release": policy, "at": _text(assignment.release_at)}
    write_audit(
        session, actor.name, "assignment.release", f"assignment:{assignment.id}", {"from": was, "to": to}
    )


def list_due_releases(session: Session) -> list[str]:
    """Names of tasks for assignments whose release date has passed and that were not released for it."""
    moment = now(session)
    of_them = select(tables.Assignment.id, tables.Assignment.release_at)
    of_them = of_them.where(tables.Assignment.release == "at", tables.Assignment.release_at <= moment)
    names = [f"{TASK_PREFIX}{row.id}:{row.release_at.timestamp():.0f}" for row in session.execute(of_them)]
    if not names:
        return []
    known = select(tables.PeriodicTask.name).where(
        tables.PeriodicTask.name.in_(names), tables.PeriodicTask.not_before > moment
    )
    over = set(session.scalars(known))
    return [name for name in names if name not in over]


def release_due(session: Session, name: str) -> int:
    """Run a task of `list_due_releases`; returns how many grades were released.

    Withdrawn ones stay withdrawn.
    """
    periodic_tasks.schedule(session, name)
    if periodic_tasks.claim(session, name) is None:
        return 0
    assignment = session.get(tables.Assignment, int(name.split(":")[1]))
    moment = now(session)
    date = assignment.release_at if assignment is not None and assignment.release == "at" else None
    if assignment is None or date is None or date > moment:
        periodic_tasks.remove(session, name)
        return 0
    never = tables.Grade.released_by.is_(None)
    count = _release(session, _ready(session, assignment.id, never), None, "system")
    if count:
        detail = {"count": count, "at": _text(date)}
        write_audit(session, "system", "grade.release_all", f"assignment:{assignment.id}", detail)
    periodic_tasks.reschedule(session, name, RETRY_AFTER if moment < date + FOR else EVER)
    return count


def is_automatic(release: str, release_at: datetime | None, moment: datetime) -> bool:
    """Whether grades that are not held are released automatically at this moment."""
    return release == "at_once" or (release == "at" and release_at is not None and release_at <= moment)


def add_event(session: Session, grade: tables.Grade, what: str, key: str) -> None:
    """Add an event about a grade to the outbox; it contains the submission's id, not the points."""
    news = {"type": what, "submission": grade.submission_id}
    grade_changed(session, [grade.submission_id])
    if not outbox.add(session, "event", key, news):
        # a grade of this round was released before: this is another time
        outbox.add(session, "event", f"{key}:{now(session):%Y%m%d%H%M%S%f}", news)


def lock_current_grade(session: Session, submission_id: str) -> tables.Grade | None:
    """The grade that counts, locked.

    The round is locked first, so that no other becomes current meanwhile.
    """
    session.flush()
    round_ = tables.Round
    query = select(round_.id).where(round_.submission_id == submission_id, round_.current)
    # twice: who waited for another round that took the place finds it the second time
    for locking in (query, query):
        round_id = session.scalar(locking.with_for_update(key_share=True))
        if round_id is not None:
            break
    else:
        return None
    grade = select(tables.Grade).where(tables.Grade.round_id == round_id).with_for_update()
    # as it is now that it is locked, whatever of it the session read before
    return session.scalar(grade.execution_options(populate_existing=True))


def _grade(session: Session, round_id: str) -> tables.Grade:
    submission = select(tables.Round.submission_id).where(tables.Round.id == round_id)
    grade = lock_current_grade(session, session.scalar(submission) or "")
    if grade is None:
        raise NotFound(NO_GRADE_TO_RELEASE)
    if grade.round_id != round_id:
        raise Conflict(OTHER_GRADING_COUNTS)
    return grade


def _current(session: Session, assignment_id: int, *where: ColumnElement[bool]) -> list[tables.Grade]:
    """Grades of current rounds without reports, locked in one order to avoid deadlocks."""
    query = (
        select(tables.Grade)
        .join(tables.Round, tables.Round.id == tables.Grade.round_id)
        .join(tables.Submission, tables.Submission.id == tables.Round.submission_id)
        .where(tables.Submission.assignment_id == assignment_id, tables.Round.current, *where)
        .order_by(tables.Grade.id)
        .options(defer(tables.Grade.report))
        .with_for_update(of=tables.Grade)
        .execution_options(populate_existing=True)
    )
    session.flush()
    found = session.scalars(query).all()
    # now that they are locked: another may have taken a place while this waited
    counts = select(tables.Round.id).join(tables.Submission).where(tables.Round.current)
    still = set(session.scalars(counts.where(tables.Submission.assignment_id == assignment_id)))
    return [grade for grade in found if grade.round_id in still]


def _ready(session: Session, assignment_id: int, *where: ColumnElement[bool]) -> list[tables.Grade]:
    open_ones = (tables.Grade.held == false(), tables.Grade.points.is_not(None))
    return _current(session, assignment_id, *open_ones, tables.Grade.released_at.is_(None), *where)


def _release(session: Session, grades: Sequence[tables.Grade], by: int | None, name: str) -> int:
    moment = now(session)
    for grade in grades:
        withdrawn = grade.released_by is not None
        grade.released_at, grade.released_by = moment, by
        detail = {"held": grade.held, UNDO: withdrawn} if withdrawn else {"held": grade.held}
        write_audit(session, name, "grade.release", f"submission:{grade.submission_id}", detail)
        add_event(session, grade, "grade.released", f"released:{grade.round_id}")
    session.flush()
    mail_notifications.add_result_letters(session, [grade.round_id for grade in grades])
    return len(grades)


def _withdraw(session: Session, grade: tables.Grade, actor: Actor, reason: str) -> None:
    was = _text(grade.released_at)
    grade.released_at, grade.released_by = None, actor.user_id
    detail = {"released": was, "reason": reason}
    write_audit(session, actor.name, "grade.withdraw", f"submission:{grade.submission_id}", detail)
    add_event(session, grade, "grade.withdrawn", f"withdrawn:{grade.round_id}")


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat(timespec="seconds") if moment else None


class ReleaseCounts(Value):
    """Numbers of an assignment's current grades by state of release.

    What waits for staff is counted as everywhere, see `grading.store.grades.counts`; what can be released or
    withdrawn at once includes superseded submissions.
    """

    ready: int
    """Complete, not held, not released."""
    held: int
    """Held, and not released, of submissions that count."""
    incomplete: int
    """Incomplete, and not released, of submissions that count."""
    released: int
    withdrawn: int


def count_grades(session: Session, assignment_id: int) -> ReleaseCounts:
    """Count grades that could be released, and released ones."""
    grade = tables.Grade
    hidden = grade.released_at.is_(None)
    whole = grade.points.is_not(None)
    assignment = session.get_one(tables.Assignment, assignment_id)
    counting = tables.Submission.id.in_(counts.student_submissions(assignment))

    def number(*where: ColumnElement[bool]) -> Any:
        return func.count(grade.id).filter(*where)

    query = (
        select(
            number(hidden, whole, grade.held == false()).label("ready"),
            number(counts.held(), counting).label("held"),
            number(hidden, grade.points.is_(None), grade.held == false(), counting).label("incomplete"),
            number(grade.released_at.is_not(None)).label("released"),
            number(hidden, grade.released_by.is_not(None)).label("withdrawn"),
        )
        .join(tables.Round, (tables.Round.id == grade.round_id) & tables.Round.current)
        .join(tables.Submission, tables.Submission.id == tables.Round.submission_id)
        .where(tables.Submission.assignment_id == assignment_id)
    )
    return ReleaseCounts.model_validate(dict(session.execute(query).one()._mapping))
