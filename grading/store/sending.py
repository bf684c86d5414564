"""What was sent to receivers of events, try by try, and receivers that are left alone for a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from grading.errors import NotFound
from grading.store import outbox
from grading.store.audit import note
from grading.store.database import now
from grading.store.tables import EventReceiver, Outbox, SentMessage

PAUSE_AFTER = timedelta(hours=48)
PAUSE_TRIES = 5
"""A receiver that took nothing for so long, in at least so many tries, is left alone: nothing is given up."""
MAX_ANSWER = 1000
"""Characters of an answer that are kept."""
PER_PAGE = 50


@dataclass(frozen=True)
class Attempt:
    """One try to send a message."""

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
    """Without the signature."""
    body: str
    status: int | None = None
    error: str = ""
    answer: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Standing:
    """How a receiver does."""

    name: str
    failures: int
    failing_since: datetime | None
    paused_at: datetime | None
    waiting: int = 0


def write_down(session: Session, attempt: Attempt) -> None:
    """Keep a try."""
    values = {**vars(attempt), "headers": dict(attempt.headers), "answer": readable(attempt.answer)}
    session.add(SentMessage(**values))


def readable(said: bytes) -> str:
    """The beginning of an answer as text: whatever is no text or would not be shown is a blank."""
    text = said[: 4 * MAX_ANSWER].decode("utf-8", "replace")[:MAX_ANSWER]
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text).strip()


def paused(session: Session, name: str, mark: str) -> bool:
    """Whether this receiver is left alone; not at another address than the one where nothing worked."""
    row = session.get(EventReceiver, name)
    return row is not None and row.mark == mark and row.paused_at is not None


def worked(session: Session, name: str, mark: str) -> None:
    """It took a message."""
    row = session.get(EventReceiver, name)
    if row is not None and (row.failures or row.mark != mark):
        row.mark, row.failures, row.failing_since, row.paused_at = mark, 0, None, None


def failed(session: Session, name: str, mark: str) -> bool:
    """It did not; whether it is left alone from now on."""
    moment = now(session)
    fresh = {"name": name, "mark": mark, "failures": 0}
    insert = sqlite_insert if session.get_bind().dialect.name == "sqlite" else postgresql_insert
    session.execute(insert(EventReceiver).values(**fresh).on_conflict_do_nothing())
    row = session.get_one(EventReceiver, name, with_for_update=True, populate_existing=True)
    if row.mark != mark:
        row.mark, row.failures, row.failing_since, row.paused_at = mark, 0, None, None
    row.failures += 1
    row.failing_since = row.failing_since or moment
    over = row.failures >= PAUSE_TRIES and moment - row.failing_since >= PAUSE_AFTER
    if not over or row.paused_at is not None:
        return False
    row.paused_at = moment
    note(session, "system", "receiver.pause", f"receiver:{name}", {"failures": row.failures})
    return True


def resume(session: Session, name: str, actor: str) -> int:
    """Send to a receiver again, at once; how many messages wait for it. Raises NotFound."""
    row = session.get(EventReceiver, name, with_for_update=True)
    if row is None:
        raise NotFound("There is no such receiver, or it never failed.")
    row.failures, row.failing_since, row.paused_at = 0, None, None
    mine = (Outbox.kind == f"to:{name}", Outbox.done_at.is_(None))
    due = Outbox.__table__.update().where(*mine).values(not_before=now(session)).returning(Outbox.id)  # type: ignore[attr-defined]
    count = len(session.execute(due).all())
    note(session, actor, "receiver.resume", f"receiver:{name}", {"waiting": count})
    return count


def standings(session: Session, names: Sequence[str] | None = None) -> list[Standing]:
    """All receivers that were ever sent something, or these, with how many messages wait for each."""
    open_ones = select(Outbox.kind, func.count()).where(Outbox.kind.like("to:%"), Outbox.done_at.is_(None))
    waiting = {row[0].removeprefix("to:"): row[1] for row in session.execute(open_ones.group_by(Outbox.kind))}
    rows = {row.name: row for row in session.scalars(select(EventReceiver))}
    found = []
    for name in sorted({*rows, *waiting}) if names is None else names:
        row = rows.get(name)
        since, at = (row.failing_since, row.paused_at) if row is not None else (None, None)
        found.append(Standing(name, row.failures if row else 0, since, at, waiting.get(name, 0)))
    return found


@dataclass(frozen=True)
class Page:
    """Some tries, the newest first, and how many pages there are of them."""

    items: tuple[SentMessage, ...]
    page: int
    pages: int
    total: int


def listing(session: Session, receiver: str = "", state: str = "", page: int = 1) -> Page:
    """Tries, of one receiver or all; `state` is `taken`, `failed` or empty for both."""
    where: list[ColumnElement[bool]] = [SentMessage.receiver == receiver] if receiver else []
    where += [SentMessage.error == ""] if state == "taken" else []
    where += [SentMessage.error != ""] if state == "failed" else []
    total = session.scalar(select(func.count()).select_from(SentMessage).where(*where)) or 0
    pages = max(1, -(-total // PER_PAGE))
    page = min(max(page, 1), pages)
    query = select(SentMessage).where(*where).order_by(SentMessage.id.desc())
    items = session.scalars(query.limit(PER_PAGE).offset((page - 1) * PER_PAGE))
    return Page(tuple(items), page, pages, total)


def one(session: Session, number: int) -> SentMessage:
    """A try. Raises NotFound."""
    row = session.get(SentMessage, number)
    if row is None:
        raise NotFound("There is no such delivery; old ones are removed after a while.")
    return row


def replay(session: Session, number: int, actor: str) -> SentMessage:
    """Send the message of a try again, under the same id. Raises NotFound."""
    row = one(session, number)
    if not outbox.again(session, f"to:{row.receiver}", row.event):
        raise NotFound("This message is kept no longer, so it cannot be sent again.")
    detail: dict[str, Any] = {"message": row.message_id, "receiver": row.receiver}
    note(session, actor, "delivery.replay", f"delivery:{number}", detail)
    return row
