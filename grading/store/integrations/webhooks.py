"""Webhooks: their secrets, receivers and deliveries."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Integer, bindparam, func, select
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, NotFound
from grading.domain.messages import define_message
from grading.store import outbox
from grading.store.audit import write_audit
from grading.store.database import insert_into, literal_limit, now
from grading.store.tables import EventReceiver, Outbox, SentMessage, WebhookSecret

NO_SUCH_RECEIVER = define_message(
    "webhooks.no_such_receiver", "This receiver does not exist or has no failed deliveries."
)
NO_SUCH_TEST = define_message("webhooks.no_such_test", "This test message does not exist.")
NO_SUCH_DELIVERY = define_message(
    "webhooks.no_such_delivery", "This delivery does not exist. Old deliveries are deleted automatically."
)
MESSAGE_GONE = define_message(
    "webhooks.message_gone", "This message was deleted automatically, so it cannot be resent."
)
TWO_LIVE_SECRETS = define_message(
    "webhooks.two_live_secrets",
    "'%(connection)s' already has two valid secrets. Revoke the old one first: grader webhook secret end ID.",
)
NO_SUCH_SECRET = define_message(
    "webhooks.no_such_secret",
    "Secret %(number)s does not exist. To list secrets, run `grader webhook secret list`.",
)

PAUSE_AFTER = timedelta(hours=48)
PAUSE_TRIES = 5
"""A receiver that accepted nothing for PAUSE_AFTER, in at least so many attempts, is paused; no message is
dead."""
MAX_ANSWER = 1000
"""Characters of an answer that are stored."""
PER_PAGE = 50


@dataclass(frozen=True)
class Attempt:
    """An attempt to send an event."""

    receiver: str
    message_id: str
    event: str
    type: str
    submission_id: str | None
    attempt: int
    at: datetime
    seconds: float
    url: str
    headers: Mapping[str, str]
    """Without the signature, except of a test message."""
    body: str
    status: int | None = None
    error: str = ""
    answer: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class ReceiverState:
    """State of an event receiver."""

    name: str
    failures: int
    failing_since: datetime | None
    paused_at: datetime | None
    waiting: int = 0


def record_attempt(session: Session, attempt: Attempt) -> None:
    """Store an attempt."""
    values = {**vars(attempt), "headers": dict(attempt.headers), "answer": readable(attempt.answer)}
    session.add(SentMessage(**values))


def readable(body: bytes) -> str:
    """The beginning of an answer as printable text; other characters become blanks."""
    text = body[: 4 * MAX_ANSWER].decode("utf-8", "replace")[:MAX_ANSWER]
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text).strip()


def is_paused(session: Session, name: str, mark: str) -> bool:
    """Whether sending to this receiver is paused; not at another address than the one that failed."""
    row = session.get(EventReceiver, name)
    return row is not None and row.mark == mark and row.paused_at is not None


def record_success(session: Session, name: str, mark: str) -> None:
    """Reset the failures of a receiver after a success."""
    row = session.get(EventReceiver, name)
    if row is not None and (row.failures or row.mark != mark):
        row.mark, row.failures, row.failing_since, row.paused_at = mark, 0, None, None
        session.flush()


def record_failure(session: Session, name: str, mark: str) -> bool:
    """Count a failure; returns whether the receiver is paused from now on."""
    moment = now(session)
    fresh = {"name": name, "mark": mark, "failures": 0}
    session.execute(insert_into(session, EventReceiver).values(**fresh).on_conflict_do_nothing())
    row = session.get_one(EventReceiver, name, with_for_update=True, populate_existing=True)
    if row.mark != mark:
        row.mark, row.failures, row.failing_since, row.paused_at = mark, 0, None, None
    row.failures += 1
    row.failing_since = row.failing_since or moment
    over = row.failures >= PAUSE_TRIES and moment - row.failing_since >= PAUSE_AFTER
    if not over or row.paused_at is not None:
        return False
    row.paused_at = moment
    write_audit(session, "system", "receiver.pause", f"receiver:{name}", {"failures": row.failures})
    return True


def resume_receiver(session: Session, name: str, actor: str) -> int:
    """Resume sending to a receiver at once; returns the number of waiting messages. Raises NotFound."""
    row = session.get(EventReceiver, name, with_for_update=True)
    if row is None:
        raise NotFound(NO_SUCH_RECEIVER)
    row.failures, row.failing_since, row.paused_at = 0, None, None
    mine = (Outbox.kind == f"to:{name}", Outbox.done_at.is_(None))
    due = Outbox.__table__.update().where(*mine).values(not_before=now(session)).returning(Outbox.id)  # type: ignore[attr-defined]
    count = len(session.execute(due).all())
    write_audit(session, actor, "receiver.resume", f"receiver:{name}", {"waiting": count})
    return count


def list_receivers(session: Session, names: Sequence[str] | None = None) -> list[ReceiverState]:
    """All receivers with attempts, or these, with the number of messages that wait for each."""
    waiting = {kind.removeprefix("to:"): count for kind, count in session.execute(_waiting())}
    rows = {row.name: row for row in session.execute(_receivers())}
    found = []
    for name in sorted({*rows, *waiting}) if names is None else names:
        row = rows.get(name)
        since, at = (row.failing_since, row.paused_at) if row is not None else (None, None)
        found.append(ReceiverState(name, row.failures if row else 0, since, at, waiting.get(name, 0)))
    return found


@cache
def _waiting() -> Any:
    query = select(Outbox.kind, func.count()).where(Outbox.kind.like("to:%"), Outbox.done_at.is_(None))
    return query.group_by(Outbox.kind)


@cache
def _receivers() -> Any:
    one = EventReceiver
    return select(one.name, one.failures, one.failing_since, one.paused_at)


@dataclass(frozen=True)
class DeliveryEntry:
    """An attempt in a list."""

    id: int
    receiver: str
    type: str
    attempt: int
    at: datetime
    status: int | None
    error: str


@dataclass(frozen=True)
class DeliveryPage:
    """A page of attempts, the newest first."""

    items: tuple[DeliveryEntry, ...]
    page: int
    pages: int
    total: int


def list_deliveries(session: Session, receiver: str = "", state: str = "", page: int = 1) -> DeliveryPage:
    """Attempts, of one receiver or all; `state` is `taken`, `failed` or empty for both."""
    given = {"receiver": receiver}
    total = session.scalar(_count(bool(receiver), state), given) or 0
    pages = max(1, -(-total // PER_PAGE))
    page = min(max(page, 1), pages)
    query = _listing(bool(receiver), state, page == 1)
    rows = session.execute(query, {**given, "skipped": (page - 1) * PER_PAGE})
    return DeliveryPage(tuple(DeliveryEntry(*row) for row in rows), page, pages, total)


def list_deliveries_before(
    session: Session,
    receiver: str,
    state: str,
    before: int | None,
    limit: int,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[DeliveryEntry]:
    """Attempts with smaller ids than `before`, the newest first, chosen as `list_deliveries` does."""
    one = SentMessage
    query = select(one.id, one.receiver, one.type, one.attempt, one.at, one.status, one.error)
    query = _wanted(query, bool(receiver), state).order_by(one.id.desc()).limit(limit)
    query = query if before is None else query.where(one.id < before)
    query = query if since is None else query.where(one.at >= since)
    query = query if until is None else query.where(one.at < until)
    return [DeliveryEntry(*row) for row in session.execute(query, {"receiver": receiver})]


@cache
def _listing(of_one: bool, state: str, first: bool) -> Any:
    one = SentMessage
    query = select(one.id, one.receiver, one.type, one.attempt, one.at, one.status, one.error)
    newest = _wanted(query, of_one, state).order_by(one.id.desc()).limit(literal_limit(PER_PAGE))
    return newest if first else newest.offset(bindparam("skipped", type_=Integer))


@cache
def _count(of_one: bool, state: str) -> Any:
    return _wanted(select(func.count()).select_from(SentMessage), of_one, state)


def _wanted(query: Any, of_one: bool, state: str) -> Any:
    query = query.where(SentMessage.receiver == bindparam("receiver")) if of_one else query
    query = query.where(SentMessage.error == "") if state == "taken" else query
    return query.where(SentMessage.error != "") if state == "failed" else query


def load_delivery(session: Session, number: int) -> SentMessage:
    """An attempt. Raises NotFound."""
    row = session.get(SentMessage, number)
    if row is None:
        raise NotFound(NO_SUCH_DELIVERY)
    return row


def replay_delivery(session: Session, number: int, actor: str) -> SentMessage:
    """Send the message of an attempt again under the same id. Raises NotFound."""
    row = load_delivery(session, number)
    kind = test_kind(row.receiver) if row.event.startswith(TEST) else f"to:{row.receiver}"
    if not outbox.reopen(session, kind, row.event):
        raise NotFound(MESSAGE_GONE)
    detail: dict[str, Any] = {"message": row.message_id, "receiver": row.receiver}
    write_audit(session, actor, "delivery.replay", f"delivery:{number}", detail)
    return row


TEST = "test:"
"""The beginning of a test message's kind and key in the outbox."""


@dataclass(frozen=True)
class SentTest:
    """A test message, and the attempt to send it, once there is one."""

    receiver: str
    type: str
    created_at: datetime
    attempt: SentMessage | None


def test_kind(receiver: str) -> str:
    """The kind of the outbox rows of test messages to a receiver."""
    return f"{TEST}{receiver}"


def send_test(session: Session, receiver: str, kind: str, submission: str, actor: str) -> str:
    """Let the sweeper send an event that did not happen, once, also to a paused receiver; returns its key."""
    number = secrets.token_hex(16)
    payload = {"type": kind, "submission": submission, "id": f"msg_test_{number}"}
    at = now(session).isoformat(timespec="seconds")
    outbox.add(session, test_kind(receiver), f"{TEST}{number}", {**payload, "at": at})
    detail = {"kind": kind, "message": payload["id"]}
    write_audit(session, actor, "delivery.test", f"receiver:{receiver}", detail)
    return f"{TEST}{number}"


def load_test(session: Session, receiver: str, key: str) -> SentTest:
    """A test message. Raises NotFound."""
    row = session.scalar(select(Outbox).where(Outbox.kind == test_kind(receiver), Outbox.key == key))
    if row is None:
        raise NotFound(NO_SUCH_TEST)
    mine = (SentMessage.receiver == receiver, SentMessage.event == key, SentMessage.at >= row.created_at)
    query = select(SentMessage).where(*mine).order_by(SentMessage.id.desc()).limit(1)
    attempt = session.scalar(query) if row.done_at is not None else None
    return SentTest(receiver, row.payload["type"], row.created_at, attempt)


def newest_deliveries(session: Session, names: Sequence[str]) -> dict[str, DeliveryEntry]:
    """The latest attempt to send to each of these receivers."""
    one = SentMessage
    ids = [select(func.max(one.id)).where(one.receiver == name).scalar_subquery() for name in names]
    query = select(one.id, one.receiver, one.type, one.attempt, one.at, one.status, one.error)
    found = session.execute(query.where(one.id.in_(ids))) if ids else ()
    return {row.receiver: DeliveryEntry(*row) for row in found}


MAX_LIVE = 2
"""Live secrets of a connection: the present one and its successor."""


@dataclass(frozen=True)
class NewSecret:
    """A new secret; `secret` is shown once."""

    id: int
    secret: str


def create_secret(session: Session, connection: str, secret_key: str, actor: str) -> NewSecret:
    """Create a secret. Raises Conflict when two are live."""
    query = select(WebhookSecret.id).where(*_live(connection)).with_for_update()
    if len(session.scalars(query).all()) >= MAX_LIVE:
        raise Conflict(TWO_LIVE_SECRETS(connection=connection))
    row = WebhookSecret(
        connection=connection, salt=secrets.token_hex(32), created_at=now(session), created_by=actor[:100]
    )
    session.add(row)
    session.flush()
    write_audit(
        session, actor, "webhook_secret.create", f"webhook_secret:{row.id}", {"connection": connection}
    )
    return NewSecret(row.id, _derive(secret_key, connection, row.salt))


def live_secrets(session: Session, connection: str, secret_key: str) -> list[str]:
    """The secrets that verify messages of this connection."""
    salts = session.scalars(select(WebhookSecret.salt).where(*_live(connection)).order_by(WebhookSecret.id))
    return [_derive(secret_key, connection, salt) for salt in salts]


@dataclass(frozen=True)
class SecretEntry:
    """A secret in a list, without its value."""

    id: int
    connection: str
    created_at: datetime
    created_by: str
    ended_at: datetime | None


def list_secrets(session: Session) -> list[SecretEntry]:
    """All secrets, also revoked ones."""
    table = WebhookSecret
    columns = (table.id, table.connection, table.created_at, table.created_by, table.ended_at)
    return [
        SecretEntry(*row) for row in session.execute(select(*columns).order_by(table.connection, table.id))
    ]


def revoke_secret(session: Session, number: int, actor: str) -> str:
    """Revoke a secret; returns its connection. Raises NotFound."""
    row = session.get(WebhookSecret, number)
    if row is None:
        raise NotFound(NO_SUCH_SECRET(number=number))
    if row.ended_at is None:
        row.ended_at = now(session)
        detail = {"connection": row.connection}
        write_audit(session, actor, "webhook_secret.end", f"webhook_secret:{number}", detail)
    return row.connection


def _live(connection: str) -> tuple[ColumnElement[bool], ...]:
    return (WebhookSecret.connection == connection, WebhookSecret.ended_at.is_(None))


def _derive(secret_key: str, connection: str, salt: str) -> str:
    text = f"webhook secret:{connection}:{salt}".encode()
    key = hmac.new(secret_key.encode(), text, hashlib.sha256).digest()
    return "whsec_" + base64.b64encode(key).decode()
