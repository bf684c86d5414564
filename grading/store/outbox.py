"""Transactional outbox: messages written in the transaction they belong to, sent by one sender at a time.

A row is open until `done_at` is set. It is done if its `error` is empty then, and dead otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Table, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from grading.store.bulk import chunks
from grading.store.database import now
from grading.store.tables import Base

MAX_ERROR = 500
REPORTED = "reported"
"""Key in the payload of an overdue row: the try at which `list_overdue` returned it."""

_OUTBOX: Table = Base.metadata.tables["outbox"]
_INSERT = {
    "sqlite": sqlite_insert(_OUTBOX).on_conflict_do_nothing(),
    "postgresql": postgresql_insert(_OUTBOX).on_conflict_do_nothing(),
}


@dataclass(frozen=True)
class Delivery:
    """A row claimed for sending; `tries` includes this one."""

    id: int
    kind: str
    key: str
    payload: dict[str, Any]
    created_at: datetime
    tries: int


@dataclass(frozen=True)
class Hold:
    """A row that one process holds and extends; `tries` tells its hold from later ones."""

    kind: str
    key: str
    tries: int
    """Includes this one."""
    error: str = ""
    """Why the try before failed, if that is known."""


_INSERT_RETURNING = {name: statement.returning(_OUTBOX.c.id) for name, statement in _INSERT.items()}
_COLUMNS = ("id", "kind", "key", "payload", "created_at", "tries")


def add(session: Session, kind: str, key: str, payload: dict[str, Any]) -> bool:
    """Add a row that is due at once. False when a row of this kind and key exists; it stays as it is."""
    connection = session.connection()
    row = _row(session, kind, key, payload)
    return connection.execute(_INSERT_RETURNING[connection.dialect.name], row).first() is not None


def add_all(session: Session, kind: str, payloads: Mapping[str, dict[str, Any]]) -> None:
    """Add rows of a kind by their keys, all due at once; rows that exist stay as they are."""
    connection = session.connection()
    rows = [_row(session, kind, key, payload) for key, payload in payloads.items()]
    connection.execute(_INSERT[connection.dialect.name], rows)


def _row(session: Session, kind: str, key: str, payload: dict[str, Any]) -> dict[str, Any]:
    moment = now(session)
    due = {"created_at": moment, "not_before": moment, "tries": 0, "error": ""}
    return {"kind": kind, "key": key, "payload": payload, **due}


def reopen(session: Session, kind: str, key: str) -> bool:
    """Open a row again with all its tries. False when there is none."""
    fresh = {"done_at": None, "not_before": now(session), "tries": 0, "error": ""}
    statement = _OUTBOX.update().where(_OUTBOX.c.kind == kind, _OUTBOX.c.key == key).values(fresh)
    return session.execute(statement.returning(_OUTBOX.c.id)).first() is not None


def reset(session: Session, kind: str, key: str) -> None:
    """Make an open row due at once, with all its tries. One that is done meanwhile stays done."""
    fresh = {"not_before": now(session), "tries": 0, "error": ""}
    session.execute(_OUTBOX.update().where(*_open(kind, key)).values(fresh))


def hold(session: Session, kind: str, key: str, seconds: float) -> Hold | None:
    """Hold a row that is due, which counts a try. None when it is done, or not due."""
    moment = now(session)
    statement = _OUTBOX.update().where(*_open(kind, key), _OUTBOX.c.not_before <= moment)
    later = {"not_before": moment + timedelta(seconds=seconds), "tries": _OUTBOX.c.tries + 1}
    taken = session.execute(statement.values(later).returning(_OUTBOX.c.tries, _OUTBOX.c.error)).first()
    return None if taken is None else Hold(kind, key, taken.tries, taken.error)


def extend_hold(session: Session, mine: Hold, seconds: float) -> bool:
    """Extend a hold by so many seconds from now. False when another process has claimed the row since."""
    later = now(session) + timedelta(seconds=seconds)
    statement = _OUTBOX.update().where(*_held(mine)).values(not_before=later)
    return session.execute(statement.returning(_OUTBOX.c.id)).first() is not None


def release_hold(session: Session, mine: Hold) -> None:
    """Release a hold without counting its try; the row is due at once."""
    fresh = {"not_before": now(session), "tries": _OUTBOX.c.tries - 1}
    session.execute(_OUTBOX.update().where(*_held(mine)).values(fresh))


def postpone(session: Session, mine: Hold, error: str, seconds: float, *, counted: bool = True) -> None:
    """Release a hold after a failure; the row is due after so many seconds. Counts the try if `counted`."""
    later = {
        "not_before": now(session) + timedelta(seconds=seconds),
        "error": _sentence(error),
        "tries": _OUTBOX.c.tries - int(not counted),
    }
    session.execute(_OUTBOX.update().where(*_held(mine)).values(later))


def list_overdue(session: Session, kind: str, overdue_s: float) -> list[str]:
    """Keys of rows that were held or postponed and are overdue by `overdue_s` seconds; each once per try."""
    waits = (_OUTBOX.c.kind == kind, _OUTBOX.c.done_at.is_(None), _OUTBOX.c.tries > 0)
    overdue = _OUTBOX.c.not_before <= now(session) - timedelta(seconds=overdue_s)
    query = select(_OUTBOX.c.id, _OUTBOX.c.key, _OUTBOX.c.tries, _OUTBOX.c.payload).where(*waits, overdue)
    found = [row for row in session.execute(query) if row.payload.get(REPORTED) != row.tries]
    for row in found:
        payload = {**row.payload, REPORTED: row.tries}
        session.execute(_OUTBOX.update().where(_OUTBOX.c.id == row.id).values(payload=payload))
    return [row.key for row in found]


def is_open(session: Session, kind: str, key: str) -> bool:
    """Whether there is an open row of this kind and key, due now or later."""
    return session.execute(select(_OUTBOX.c.id).where(*_open(kind, key))).first() is not None


def _open(kind: str, key: str) -> tuple[ColumnElement[bool], ...]:
    return (_OUTBOX.c.kind == kind, _OUTBOX.c.key == key, _OUTBOX.c.done_at.is_(None))


def _held(mine: Hold) -> tuple[ColumnElement[bool], ...]:
    return (*_open(mine.kind, mine.key), _OUTBOX.c.tries == mine.tries)


def claim(
    session: Session,
    kind: str,
    limit: int,
    lease_s: float,
    *,
    overdue_s: float = 0.0,
    counted: bool = True,
    retries_first: bool = False,
) -> list[Delivery]:
    """Claim rows that are due since `overdue_s` seconds, oldest first; they are leased for `lease_s` seconds.

    Counts a try unless `counted` is False, so that a row that crashes its sender is not sent for ever.
    With `retries_first` rows that were tried go before all others.
    """
    moment = now(session)
    order = [_OUTBOX.c.tries == 0] if retries_first else []
    # PostgreSQL must choose the rows once, in a CTE: as a subquery it may run again and lock more of them;
    # SQLite knows no row locks and needs none, its transactions write one after the other
    chosen = (
        select(_OUTBOX.c.id)
        .where(
            _OUTBOX.c.kind == kind,
            _OUTBOX.c.done_at.is_(None),
            _OUTBOX.c.not_before <= moment - timedelta(seconds=overdue_s),
        )
        .order_by(*order, _OUTBOX.c.not_before, _OUTBOX.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("chosen")
    )
    statement = (
        _OUTBOX.update()
        .where(_OUTBOX.c.id.in_(select(chosen.c.id)))
        .values(not_before=moment + timedelta(seconds=lease_s), tries=_OUTBOX.c.tries + int(counted))
        .returning(*(_OUTBOX.c[name] for name in _COLUMNS))
    )
    return sorted((Delivery(*row) for row in session.execute(statement)), key=lambda taken: taken.id)


def mark_done(session: Session, delivery: Delivery) -> None:
    """Mark a row as sent, whichever sender and try it was."""
    open_still = (_OUTBOX.c.id == delivery.id, _OUTBOX.c.done_at.is_(None))
    session.execute(_OUTBOX.update().where(*open_still).values(done_at=now(session), error=""))


def mark_failed(session: Session, delivery: Delivery, error: str, retry_in_s: float | None) -> bool:
    """Schedule the next try in `retry_in_s` seconds, or mark the row dead (returns True) where that is None.

    Changes nothing if another sender claimed the row since.
    """
    mine = (_OUTBOX.c.id == delivery.id, _OUTBOX.c.done_at.is_(None), _OUTBOX.c.tries == delivery.tries)
    error = _sentence(error)
    if retry_in_s is None:
        statement = _OUTBOX.update().where(*mine).values(done_at=now(session), error=error)
    else:
        later = now(session) + timedelta(seconds=retry_in_s)
        statement = _OUTBOX.update().where(*mine).values(not_before=later, error=error)
    return session.execute(statement.returning(_OUTBOX.c.id)).first() is not None and retry_in_s is None


def defer(session: Session, delivery: Delivery, seconds: float) -> None:
    """Put a claimed row off without counting its try. Changes nothing if another sender claimed it since."""
    mine = (_OUTBOX.c.id == delivery.id, _OUTBOX.c.done_at.is_(None), _OUTBOX.c.tries == delivery.tries)
    later = {"not_before": now(session) + timedelta(seconds=seconds), "tries": _OUTBOX.c.tries - 1}
    session.execute(_OUTBOX.update().where(*mine).values(later))


def fail_all(session: Session, kind: str, error: str) -> int:
    """Mark all open rows of a kind dead; returns how many there were."""
    statement = _OUTBOX.update().where(_OUTBOX.c.kind == kind, _OUTBOX.c.done_at.is_(None))
    ended = statement.values(done_at=now(session), error=_sentence(error)).returning(_OUTBOX.c.id)
    return len(session.execute(ended).all())


def exists(session: Session, kind: str, key: str) -> bool:
    """Whether there is a row of this kind and key, open or not."""
    query = select(_OUTBOX.c.id).where(_OUTBOX.c.kind == kind, _OUTBOX.c.key == key)
    return session.execute(query).first() is not None


def existing_keys(session: Session, kind: str, keys: Sequence[str]) -> set[str]:
    """Those of these keys that have a row of this kind, open or not."""
    query = select(_OUTBOX.c.key).where(_OUTBOX.c.kind == kind)
    return {key for some in chunks(keys) for key in session.scalars(query.where(_OUTBOX.c.key.in_(some)))}


def _sentence(error: str) -> str:
    """An error as stored: never empty, which would mean sent; short; PostgreSQL refuses NUL."""
    return error.replace("\0", "")[:MAX_ERROR] or "failed"
