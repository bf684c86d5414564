"""Tables of webhooks: attempts to send events, receivers, secrets of senders."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Float, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from grading.store.tables.base import Base


class SentMessage(Base):
    """One attempt to send an event to a receiver, with its answer; deleted after `messages_days`."""

    __tablename__ = "sent_messages"
    id: Mapped[int] = mapped_column(primary_key=True)
    receiver: Mapped[str] = mapped_column(String(40))
    message_id: Mapped[str] = mapped_column(String(200))
    """The same for all attempts of an event."""
    event: Mapped[str] = mapped_column(String(100))
    """Key of the event in the outbox."""
    type: Mapped[str] = mapped_column(String(40))
    submission_id: Mapped[str | None] = mapped_column(String(32), index=True)
    """No foreign key: the submission may be deleted before the attempt is recorded."""
    attempt: Mapped[int] = mapped_column(Integer)
    at: Mapped[datetime]
    seconds: Mapped[float] = mapped_column(Float)
    url: Mapped[str] = mapped_column(Text)
    """Without its query, which may hold a key."""
    headers: Mapped[dict[str, Any]]
    """As sent, without the signature, except of a test message."""
    body: Mapped[str] = mapped_column(Text)
    status: Mapped[int | None]
    error: Mapped[str] = mapped_column(Text, default="")
    """Empty: the receiver accepted the event."""
    answer: Mapped[str] = mapped_column(Text, default="")
    """The beginning of the response body, as printable text."""
    __table_args__ = (
        Index("sent_messages_by_receiver", "receiver", "id"),
        Index("sent_messages_by_time", "at"),
    )


class EventReceiver(Base):
    """State of an event receiver: consecutive failures, and whether sending is paused."""

    __tablename__ = "event_receivers"
    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    mark: Mapped[str] = mapped_column(String(100))
    """Digest of its address: another address starts with no failures."""
    failures: Mapped[int] = mapped_column(Integer, default=0)
    """Failed attempts since the last success."""
    failing_since: Mapped[datetime | None]
    paused_at: Mapped[datetime | None]


class WebhookSecret(Base):
    """A signing secret of a learning platform: the salt from which the server's key derives it."""

    __tablename__ = "webhook_secrets"
    id: Mapped[int] = mapped_column(primary_key=True)
    connection: Mapped[str] = mapped_column(String(40), index=True)
    salt: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]
    created_by: Mapped[str] = mapped_column(String(100))
    ended_at: Mapped[datetime | None]
