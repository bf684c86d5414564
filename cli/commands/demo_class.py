"""Life for the demo: due dates, a released grade, a change by a person, a regrade request, an extension."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy.orm import Session

from grading.domain.changes import Change
from grading.domain.errors import NotFound
from grading.domain.lateness import LateRule
from grading.domain.outcome import Report
from grading.domain.permissions import Actor
from grading.store import Store, tables
from grading.store.accounts import users
from grading.store.assignments import settings as assignment_settings
from grading.store.assignments import versions
from grading.store.database import now
from grading.store.grades import change_history, extensions, release
from grading.store.review import edits, regrade_requests

OPEN, RELEASED = "business-analytics/python-basket", "business-analytics/sales-cleaning"
TO_SEE = ("s-1001", "s-1002", "s-1003", "s-1004")
"""Whose grade for RELEASED they can see; the others wait for a person, one of them held."""
STUDENT = "s-1003"
"""Who is signed in as `student`: one grade to look at, and one assignment still to hand in."""
UNHAPPY, CHANGED, EXTENDED = "s-1004", "s-1002", "s-1005"


def name_people(session: Session) -> None:
    """`student` and `instructor` sign in as people with names; the student is one of the samples'."""
    if users.find_user(session, "local", "student") is None:
        user = _user(session, STUDENT)
        user.identities.append(tables.Identity(provider="local", subject="student"))
    if users.find_user(session, "local", "instructor") is None:
        users.create_user(session, "instructor", name="Ben Weber")
    session.flush()


def set_dates(session: Session) -> None:
    """One assignment is due tomorrow, where being late costs something, the other in a week."""
    actor = _instructor(session)
    for slug, days, late in (
        (OPEN, 1, LateRule(per_day=0.1, days=3, grace_minutes=15)),
        (RELEASED, 7, LateRule()),
    ):
        assignment = versions.find_by_name(session, slug)
        settings = assignment_settings.settings_of(assignment)
        if settings.due is None:
            due = (now(session) + timedelta(days=days)).replace(hour=21, minute=59, second=0, microsecond=0)
            changed = settings.model_copy(update={"due": due, "late": late})
            extensions.apply_settings(session, assignment, changed, actor)


def bring_to_life(store: Store, submissions: Mapping[tuple[str, str], str]) -> None:
    """What people do once hand-ins (by assignment and student) are graded; nothing a second time."""
    with store.write() as session:
        actor = _instructor(session)
        asked = release.lock_current_grade(session, submissions[RELEASED, UNHAPPY])
        if asked is None or asked.released_at is not None:
            return
        _give_full_points(session, submissions[RELEASED, CHANGED], actor)
        for student in TO_SEE:
            grade = release.lock_current_grade(session, submissions[RELEASED, student])
            if grade is not None:
                release.release_grade(session, grade.round_id, actor)
        unhappy = users.actor_of(session, _user(session, UNHAPPY))
        reason = "The line with the revenue runs on my computer. Could somebody look at it again?"
        regrade_requests.create_request(session, unhappy, submissions[RELEASED, UNHAPPY], "", reason)
        _extend(session, actor)


def _give_full_points(session: Session, submission_id: str, actor: Actor) -> None:
    """A person gives all points of one criterion that lost some, with a reason."""
    grade = release.lock_current_grade(session, submission_id)
    if grade is None:
        return
    lost = [one for one in Report.model_validate(grade.report).criteria if (one.points or 0) < one.max_points]
    if lost:
        reason = "The task leaves this open; your way is as good."
        wanted = Change(kind="points", target=lost[0].criterion, points=lost[0].max_points, reason=reason)
        edits.change_grade(
            session, submission_id, wanted, change_history.stamp(session, grade.round_id), actor
        )


def _extend(session: Session, actor: Actor) -> None:
    """One student has three days more for the assignment that is still open."""
    assignment = versions.find_by_name(session, OPEN)
    if assignment.due_at is not None:
        until = assignment.due_at + timedelta(days=3)
        extensions.grant_extension(
            session, assignment, [_user(session, EXTENDED).id], until, "Was ill.", actor
        )


def _instructor(session: Session) -> Actor:
    return users.actor_of(session, _user(session, "instructor"))


def _user(session: Session, name: str) -> tables.User:
    found = users.find_user(session, "local", name)
    if found is None:
        raise NotFound(f"The demo knows no “{name}”.")
    return found
