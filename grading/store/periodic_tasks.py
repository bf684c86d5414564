"""Periodic tasks: each is claimed by one of several processes at a time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from grading.store.database import insert_into, now
from grading.store.tables import PeriodicTask

LEASE_S = 60.0
"""Seconds for which a claimed task is not claimed again; one step of it must be done by then."""


def schedule(session: Session, name: str, payload: dict[str, Any] | None = None) -> None:
    """Schedule a task from now on; nothing happens if it exists."""
    row = {"name": name, "not_before": now(session), "payload": payload or {}}
    session.execute(insert_into(session, PeriodicTask).values(row).on_conflict_do_nothing())


def list_due(session: Session, prefix: str) -> list[str]:
    """The names of due tasks with this prefix, the longest due first."""
    query = select(PeriodicTask.name).where(PeriodicTask.name.startswith(prefix, autoescape=True))
    due = query.where(PeriodicTask.not_before <= now(session))
    return list(session.scalars(due.order_by(PeriodicTask.not_before, PeriodicTask.name)))


def is_scheduled(session: Session, name: str) -> bool:
    """Whether a task exists."""
    return session.get(PeriodicTask, name) is not None


def claim(session: Session, name: str) -> dict[str, Any] | None:
    """The payload of a task, for the first process that claims it; None when it is not due."""
    moment = now(session)
    row = session.execute(
        update(PeriodicTask)
        .where(PeriodicTask.name == name, PeriodicTask.not_before <= moment)
        .values(not_before=moment + timedelta(seconds=LEASE_S))
        .returning(PeriodicTask.payload)
    ).one_or_none()
    return None if row is None else dict(row.payload)


def reschedule(session: Session, name: str, after: timedelta) -> None:
    """Schedule the task's next step."""
    session.execute(
        update(PeriodicTask).where(PeriodicTask.name == name).values(not_before=now(session) + after)
    )


def remove(session: Session, name: str) -> None:
    """Remove a task that is finished."""
    session.execute(delete(PeriodicTask).where(PeriodicTask.name == name))
