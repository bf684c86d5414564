"""What must still be sent to somebody else: written with the thing it tells, taken by one sender at a time.

A row is open until `done_at` is set. With an empty `error` it is done then, with another it is dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Table, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from grading.store.database import now
from grading.store.tables import Base

MAX_ERROR = 500

_OUTBOX: Table = Base.metadata.tables["outbox"]


@dataclass(frozen=True)
class Delivery:
    """A row that was taken to be sent; `tries` counts this one, too."""

    id: int
    kind: str
    key: str
    payload: dict[str, Any]
    created_at: datetime
    tries: int


_TAKEN = ("id", "kind", "key", "payload", "created_at", "tries")


def put(session: Session, kind: str, key: str, payload: dict[str, Any]) -> bool:
    """Write a row, due at once. False when there is one of this kind and key, which stays as it is."""
    insert = sqlite_insert if session.get_bind().dialect.name == "sqlite" else postgresql_insert
    moment = now(session)
    row = {"kind": kind, "key": key, "payload": payload, "created_at": moment, "not_before": moment}
    statement = insert(_OUTBOX).values(**row, tries=0, error="").on_conflict_do_nothing()
    return session.execute(statement.returning(_OUTBOX.c.id)).first() is not None


def again(session: Session, kind: str, key: str) -> bool:
    """Open a row again with all its tries. False when there is none."""
    fresh = {"done_at": None, "not_before": now(session), "tries": 0, "error": ""}
    statement = _OUTBOX.update().where(_OUTBOX.c.kind == kind, _OUTBOX.c.key == key).values(fresh)
    return session.execute(statement.returning(_OUTBOX.c.id)).first() is not None


def hold(session: Session, kind: str, key: str, seconds: float) -> bool:
    """Take one row that is due, without counting a try. False when it is done, or held by somebody else."""
    moment = now(session)
    free = (_OUTBOX.c.kind == kind, _OUTBOX.c.key == key, _OUTBOX.c.done_at.is_(None))
    statement = _OUTBOX.update().where(*free, _OUTBOX.c.not_before <= moment)
    held = statement.values(not_before=moment + timedelta(seconds=seconds)).returning(_OUTBOX.c.id)
    return session.execute(held).first() is not None


def hold_on(session: Session, kind: str, keys: Sequence[str], seconds: float) -> None:
    """Hold rows that this process took for so long from now on; they are not due for others until then."""
    mine = (_OUTBOX.c.kind == kind, _OUTBOX.c.key.in_(keys), _OUTBOX.c.done_at.is_(None))
    moment = now(session)
    session.execute(_OUTBOX.update().where(*mine).values(not_before=moment + timedelta(seconds=seconds)))


def let_go(session: Session, kind: str, key: str) -> None:
    """Give back what was held; it is due again."""
    mine = (_OUTBOX.c.kind == kind, _OUTBOX.c.key == key, _OUTBOX.c.done_at.is_(None))
    session.execute(_OUTBOX.update().where(*mine).values(not_before=now(session)))


def claim(
    session: Session, kind: str, limit: int, lease_s: float, *, overdue_s: float = 0.0
) -> list[Delivery]:
    """Take rows that are due since `overdue_s`, oldest first; nobody else gets them for `lease_s`.

    Counts a try, so that a row that kills its sender does not come back for ever.
    """
    moment = now(session)
    # PostgreSQL must choose the rows once, in a CTE: as a subquery it may run again and lock more of them;
    # SQLite knows no row locks and needs none, its transactions write one after the other
    chosen = (
        select(_OUTBOX.c.id)
        .where(
            _OUTBOX.c.kind == kind,
            _OUTBOX.c.done_at.is_(None),
            _OUTBOX.c.not_before <= moment - timedelta(seconds=overdue_s),
        )
        .order_by(_OUTBOX.c.not_before, _OUTBOX.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("chosen")
    )
    statement = (
        _OUTBOX.update()
        .where(_OUTBOX.c.id.in_(select(chosen.c.id)))
        .values(not_before=moment + timedelta(seconds=lease_s), tries=_OUTBOX.c.tries + 1)
        .returning(*(_OUTBOX.c[name] for name in _TAKEN))
    )
    return sorted((Delivery(*row) for row in session.execute(statement)), key=lambda taken: taken.id)


def done(session: Session, delivery: Delivery) -> None:
    """It was sent; by whom and at which try does not matter."""
    open_still = (_OUTBOX.c.id == delivery.id, _OUTBOX.c.done_at.is_(None))
    session.execute(_OUTBOX.update().where(*open_still).values(done_at=now(session), error=""))


def failed(session: Session, delivery: Delivery, error: str, retry_in_s: float | None) -> bool:
    """Wait for the next try, or be dead without one (True). Nothing changes when others took it since."""
    mine = (_OUTBOX.c.id == delivery.id, _OUTBOX.c.done_at.is_(None), _OUTBOX.c.tries == delivery.tries)
    error = _sentence(error)
    if retry_in_s is None:
        statement = _OUTBOX.update().where(*mine).values(done_at=now(session), error=error)
    else:
        later = now(session) + timedelta(seconds=retry_in_s)
        statement = _OUTBOX.update().where(*mine).values(not_before=later, error=error)
    return session.execute(statement.returning(_OUTBOX.c.id)).first() is not None and retry_in_s is None


def end_all(session: Session, kind: str, error: str) -> int:
    """Make all open rows of a kind dead; returns how many there were."""
    statement = _OUTBOX.update().where(_OUTBOX.c.kind == kind, _OUTBOX.c.done_at.is_(None))
    ended = statement.values(done_at=now(session), error=_sentence(error)).returning(_OUTBOX.c.id)
    return len(session.execute(ended).all())


def known(session: Session, kind: str, key: str) -> bool:
    """Whether there is a row of this kind and key, open or not."""
    query = select(_OUTBOX.c.id).where(_OUTBOX.c.kind == kind, _OUTBOX.c.key == key)
    return session.execute(query).first() is not None


def _sentence(error: str) -> str:
    """Never empty, which would mean done; short, and without NUL, which PostgreSQL refuses."""
    return error.replace("\0", "")[:MAX_ERROR] or "failed"
