"""What holds for an assignment whichever version of its rubric counts: dates, late rule, release, groups."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from grading.authoring.folder import Settings
from grading.errors import AssignmentError
from grading.late import LateRule, lateness
from grading.may import Actor
from grading.store import tables
from grading.store.audit import note as audit
from grading.store.settling import settle


def settings_of(assignment: tables.Assignment) -> Settings:
    """What holds whichever version counts. What an older version of this program kept is not refused."""
    late = LateRule.model_validate(assignment.late or {})
    return Settings.model_construct(
        title=assignment.title,
        slug=assignment.slug,
        language=assignment.language,
        due=assignment.due_at,
        release=assignment.release,
        release_at=assignment.release_at,
        late=late,
        max_hand_ins=assignment.max_hand_ins,
        group_size=assignment.group_size,
        counts=assignment.counts,
        visible=assignment.visible,
    )


def change_settings(session: Session, assignment: tables.Assignment, settings: Settings, actor: Actor) -> int:
    """Keep the settings; how many grades have other points now, because they are late otherwise."""
    lock(session, assignment.id)
    before = _columns(settings_of(assignment))
    if settings.slug != assignment.slug:
        require_free(session, assignment.course_id, settings.slug)
    after = _columns(settings)
    changed = {key: str(value) for key, value in after.items() if before[key] != value}
    set_columns(assignment, settings)
    session.flush()
    if changed:
        audit(session, actor.name, "assignment.settings", f"assignment:{assignment.id}", changed)
    return settle_late(session, assignment) if {"due_at", "late"} & changed.keys() else 0


def settle_late(session: Session, assignment: tables.Assignment) -> int:
    """Work out anew the points of those grades whose lateness leaves another credit now; how many."""
    own = tables.Extension
    whose = and_(own.assignment_id == assignment.id, own.student_id == tables.Submission.student_id)
    rows = session.execute(
        select(tables.Grade.id, tables.Grade.credit, tables.Submission.created_at, own.due_at)
        .join(tables.Submission, tables.Submission.id == tables.Grade.submission_id)
        .outerjoin(own, whose)
        .where(tables.Submission.assignment_id == assignment.id)
    ).all()
    rule = LateRule.model_validate(assignment.late or {})
    moved = [
        row.id
        for row in rows
        if lateness(row.created_at, row.due_at or assignment.due_at, rule).credit != row.credit
    ]
    for grade_id in moved:
        settle(session, session.get_one(tables.Grade, grade_id))
    return len(moved)


def require_free(session: Session, course_id: int, slug: str) -> None:
    """Go on, or raise AssignmentError where the course has an assignment of that name."""
    taken = select(tables.Assignment.id).where(
        tables.Assignment.course_id == course_id, tables.Assignment.slug == slug
    )
    if session.execute(taken).first() is not None:
        raise AssignmentError(f"slug: this course has an assignment “{slug}” already; choose another name")


def _columns(settings: Settings) -> dict[str, Any]:
    return {
        "title": settings.title,
        "slug": settings.slug,
        "language": settings.language,
        "due_at": settings.due,
        "release": settings.release,
        "release_at": settings.release_at,
        "late": settings.late.model_dump(exclude_defaults=True),
        "max_hand_ins": settings.max_hand_ins,
        "group_size": settings.group_size,
        "counts": settings.counts,
        "visible": settings.visible,
    }


def set_columns(assignment: tables.Assignment, settings: Settings) -> None:
    """Write the settings into the row."""
    for name, value in _columns(settings).items():
        setattr(assignment, name, value)


def lock(session: Session, assignment_id: int) -> None:
    """Keep others from changing the assignment until the transaction ends."""
    session.execute(
        select(tables.Assignment.id).where(tables.Assignment.id == assignment_id).with_for_update()
    )
