"""What keeps the system honest: outbox, keys that count once, drains, kept trials, chores, audit."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base


class IdempotencyKey(Base):
    """A caller's key and what it led to, so that a repeated POST does something once."""

    __tablename__ = "idempotency_keys"
    caller: Mapped[str] = mapped_column(String(100), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    body_hash: Mapped[str] = mapped_column(String(64))
    submission_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"))
    """Of a submission."""
    answer: Mapped[dict[str, Any] | None]
    """What else was answered: status, body, place. Numbers and ids only, nothing of a person."""
    created_at: Mapped[datetime]
    __table_args__ = (Index("idempotency_keys_by_submission", "submission_id"),)


class Outbox(Base):
    """What must still be sent to somebody else; written in the transaction it belongs to."""

    __tablename__ = "outbox"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(40))
    key: Mapped[str] = mapped_column(String(100))
    payload: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    not_before: Mapped[datetime]
    tries: Mapped[int] = mapped_column(Integer, default=0)
    done_at: Mapped[datetime | None]
    error: Mapped[str] = mapped_column(Text, default="")
    __table_args__ = (
        UniqueConstraint("kind", "key"),
        Index("outbox_open", "done_at", "not_before"),
        Index(
            "outbox_dead",
            "kind",
            "id",
            sqlite_where=text("done_at is not null and error <> ''"),
            postgresql_where=text("done_at is not null and error <> ''"),
        ),
    )


class Drain(Base):
    """A machine that an operator took out: it finishes what it has and gets nothing new."""

    __tablename__ = "drains"
    machine: Mapped[str] = mapped_column(String(40), primary_key=True)
    why: Mapped[str] = mapped_column(String(200), default="")
    by: Mapped[str] = mapped_column(String(100))
    since: Mapped[datetime]


class InboundWebhook(Base):
    """A webhook that was accepted; a second one with the same id has no effect."""

    __tablename__ = "inbound_webhooks"
    connection: Mapped[str] = mapped_column(String(40), primary_key=True)
    message_id: Mapped[str] = mapped_column(String(200), primary_key=True)
    body_hash: Mapped[str] = mapped_column(String(64))
    submission_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"))
    received_at: Mapped[datetime]
    answer: Mapped[dict[str, Any] | None]
    """What was answered, where it led to no submission."""
    __table_args__ = (Index("inbound_webhooks_by_submission", "submission_id"),)


class Audit(Base):
    """Who did what to which object, and when. Rows are only added; retention may take the oldest away."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    actor: Mapped[str] = mapped_column(String(100))
    action: Mapped[str] = mapped_column(String(60))
    object: Mapped[str] = mapped_column(String(100), index=True)
    course_id: Mapped[int | None]
    """The course it was done in, for those who teach it; nothing: of no course."""
    detail: Mapped[dict[str, Any]]
    __table_args__ = (
        Index("audit_by_time", "at"),
        Index("audit_by_course", "course_id", "id"),
        Index("audit_by_actor", "actor", "id"),
        Index("audit_by_action", "action", "id"),
    )


class CachedExecution(Base):
    """What running a document showed, by the content of all that decides it: grading again costs nothing."""

    __tablename__ = "cached_executions"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    submission_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"), index=True)
    """Whose work it was, the first time; nothing for the instructor's own code."""
    content: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    __table_args__ = (Index("cached_executions_by_time", "created_at"),)


class PeriodicTask(Base):
    """Something to be done again from time to time: the daily retention, withdrawals after an erasure."""

    __tablename__ = "periodic_tasks"
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    not_before: Mapped[datetime]
    payload: Mapped[dict[str, Any]]
