"""Settings of an assignment, independent of its rubric versions: dates, late rule, release, groups."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.assignments.editor.folder import Settings
from grading.domain.errors import AssignmentError
from grading.domain.lateness import LateRule, own_due
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.store import tables
from grading.store.audit import write_audit

SLUG_TAKEN = define_message(
    "assignment_settings.slug_taken",
    "this course already has an assignment “%(slug)s”; choose another short name",
)


def settings_of(assignment: tables.Assignment) -> Settings:
    """The settings as stored, without validating them again."""
    late = LateRule.model_validate(assignment.late or {})
    return Settings.model_construct(
        title=assignment.title,
        slug=assignment.slug,
        language=assignment.language,
        due=assignment.due_at,
        release=assignment.release,
        release_at=assignment.release_at,
        late=late,
        max_submissions=assignment.max_submissions,
        group_size=assignment.group_size,
        counts=assignment.counts,
        visible=assignment.visible,
        code_editor=assignment.code_editor,
    )


def change_settings(
    session: Session, assignment: tables.Assignment, settings: Settings, actor: Actor
) -> frozenset[str]:
    """Store the settings; returns the columns that changed. For grades see `grades.extensions`."""
    lock_assignment(session, assignment)
    before = _columns(settings_of(assignment))
    if settings.slug != assignment.slug:
        require_free_slug(session, assignment.course_id, settings.slug)
    after = _columns(settings)
    changed = {key: str(value) for key, value in after.items() if before[key] != value}
    set_columns(assignment, settings)
    session.flush()
    if changed:
        write_audit(session, actor.name, "assignment.settings", f"assignment:{assignment.id}", changed)
    return frozenset(changed)


def require_free_slug(session: Session, course_id: int, slug: str) -> None:
    """Raise AssignmentError where the course has an assignment with this slug."""
    taken = select(tables.Assignment.id).where(
        tables.Assignment.course_id == course_id, tables.Assignment.slug == slug
    )
    if session.execute(taken).first() is not None:
        raise AssignmentError(SLUG_TAKEN(slug=slug), at="slug")


def _columns(settings: Settings) -> dict[str, Any]:
    return {
        "title": settings.title,
        "slug": settings.slug,
        "language": settings.language,
        "due_at": settings.due,
        "release": settings.release,
        "release_at": settings.release_at,
        "late": settings.late.model_dump(exclude_defaults=True),
        "max_submissions": settings.max_submissions,
        "group_size": settings.group_size,
        "counts": settings.counts,
        "visible": settings.visible,
        "code_editor": settings.code_editor,
    }


def set_columns(assignment: tables.Assignment, settings: Settings) -> None:
    """Write the settings into the row."""
    for name, value in _columns(settings).items():
        setattr(assignment, name, value)


def lock_assignment(session: Session, assignment: tables.Assignment) -> None:
    """Lock the assignment until the transaction ends, and read it again."""
    session.flush()
    # not the key: whoever submits refers to the row, and holds what we may come to need. Only this row: it
    # may have been read together with its course, and PostgreSQL locks nothing on the outer side of a join
    session.refresh(assignment, with_for_update={"key_share": True, "of": tables.Assignment})


def due_of(session: Session, assignment: tables.Assignment, student_id: int) -> datetime | None:
    """The due date of a student: their extension's, or the assignment's."""
    extension = session.get(tables.Extension, (assignment.id, student_id))
    return own_due(assignment.due_at, extension.due_at if extension is not None else None)
