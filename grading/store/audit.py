"""Audit log: who did what to which object, in which course, and when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ScalarSelect, select
from sqlalchemy.orm import Session

from grading.store import tables
from grading.store.database import now
from grading.store.tables import Audit


def write_audit(
    session: Session,
    actor: str,
    action: str,
    object_: str,
    detail: dict[str, Any] | None = None,
    course_id: int | None = None,
) -> None:
    """Add a row to the audit; `actor` and `object_` look like `user:3`, `submission:1f…`.

    The course of a submission, an assignment or a course is looked up; `course_id` gives it for other
    objects.
    """
    row: dict[str, Any] = {"at": now(session), "actor": actor[:100], "action": action[:60]}
    row |= {"object": object_[:100], "detail": detail or {}}
    session.add(tables.Audit(**row, course_id=_course(object_) if course_id is None else course_id))


def _course(object_: str) -> ScalarSelect[int] | int | None:
    """The course of an object: its id, or a subquery for the statement that inserts the row."""
    kind, _, name = object_.partition(":")
    if kind == "submission":
        of_it = select(tables.Assignment.course_id).join(tables.Submission)
        return of_it.where(tables.Submission.id == name).scalar_subquery()
    if not name.isdecimal() or len(name) > 9:
        return None
    if kind == "assignment":
        of_it = select(tables.Assignment.course_id)
        return of_it.where(tables.Assignment.id == int(name)).scalar_subquery()
    return int(name) if kind == "course" else None


UNDO = "undo"
"""Key of a detail that only serves to undo what was done; no page shows it."""


def done_at(session: Session, actor: str, moment: datetime, *actions: str) -> Sequence[Audit]:
    """The rows of these actions that an actor did at a moment, thus in one transaction."""
    done = (Audit.at == moment, Audit.actor == actor[:100], Audit.action.in_(actions))
    return session.scalars(select(Audit).where(*done).order_by(Audit.id)).all()


VIEW_ACTION = "grade.view"


def viewed_recently(session: Session, actor: str, object_: str, within: timedelta) -> bool:
    """Whether the audit has a view of this object by this actor, not older than `within`."""
    query = select(Audit.id).where(
        Audit.object == object_[:100],
        Audit.actor == actor[:100],
        Audit.action == VIEW_ACTION,
        Audit.at > now(session) - within,
    )
    return session.scalar(query.limit(1)) is not None
