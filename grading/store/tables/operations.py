"""Tables of operations: outbox, idempotency keys, drains, caches, periodic tasks, audit."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
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
    """A caller's key and its effect, so that a repeated POST takes effect once."""

    __tablename__ = "idempotency_keys"
    caller: Mapped[str] = mapped_column(String(100), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    body_hash: Mapped[str] = mapped_column(String(64))
    submission_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"))
    """The submission that the request made, if it made one."""
    answer: Mapped[dict[str, Any] | None]
    """The answer of other requests: status, body, location. Numbers and ids only, no personal data."""
    created_at: Mapped[datetime]
    __table_args__ = (Index("idempotency_keys_by_submission", "submission_id"),)


class Outbox(Base):
    """A message to another process or system, written in the transaction it belongs to."""

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
    """A drained machine: it finishes its runs and gets no new ones."""

    __tablename__ = "drains"
    machine: Mapped[str] = mapped_column(String(40), primary_key=True)
    why: Mapped[str] = mapped_column(String(200), default="")
    by: Mapped[str] = mapped_column(String(100))
    since: Mapped[datetime]


class DatabaseHistory(Base):
    """A history ("timeline") of PostgreSQL in which this database was used; see `grading.store.failover`."""

    __tablename__ = "database_histories"
    identifier: Mapped[str] = mapped_column(String(40), primary_key=True)
    """The cluster's system identifier, a slash, and its timeline."""
    since: Mapped[datetime]


class InboundWebhook(Base):
    """A webhook that was accepted; another one with the same id has no effect."""

    __tablename__ = "inbound_webhooks"
    connection: Mapped[str] = mapped_column(String(40), primary_key=True)
    message_id: Mapped[str] = mapped_column(String(200), primary_key=True)
    body_hash: Mapped[str] = mapped_column(String(64))
    submission_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"))
    received_at: Mapped[datetime]
    answer: Mapped[dict[str, Any] | None]
    """The answer, where the webhook made no submission."""
    __table_args__ = (Index("inbound_webhooks_by_submission", "submission_id"),)


class Audit(Base):
    """Who did what to which object, and when. Append-only; retention deletes the oldest rows."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    actor: Mapped[str] = mapped_column(String(100))
    action: Mapped[str] = mapped_column(String(60))
    object: Mapped[str] = mapped_column(String(100), index=True)
    course_id: Mapped[int | None]
    """The course it was done in, whose instructors may read the row; None: no course."""
    detail: Mapped[dict[str, Any]]
    __table_args__ = (
        Index("audit_by_time", "at"),
        Index("audit_by_course", "course_id", "id"),
        Index("audit_by_actor", "actor", "id"),
        Index("audit_by_action", "action", "id"),
    )


class CachedExecution(Base):
    """Result of a sandbox run under the hash of all its inputs, so that grading again runs nothing."""

    __tablename__ = "cached_executions"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    submission_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"), index=True)
    """Whose work was run first; None for the instructor's own code."""
    content: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    __table_args__ = (Index("cached_executions_by_time", "created_at"),)


class PeriodicTask(Base):
    """A task that is repeated: daily retention, deletions in Redis after an erasure."""

    __tablename__ = "periodic_tasks"
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    not_before: Mapped[datetime]
    payload: Mapped[dict[str, Any]]


class ChangeMarker(Base):
    """A change of something of an assignment; see `grading.store.change_tracking`.

    It has no foreign keys, as it outlives deleted rows.
    """

    __tablename__ = "change_markers"
    course_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    """0: all courses."""
    assignment_id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    """0: the course itself."""
    value: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """Random, the same in all rows of a transaction."""
