"""Change history of a grade: people's changes, and which of them are newer than a form."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Select, and_, bindparam, func, select
from sqlalchemy.orm import Session, aliased

from grading.domain.base_value import Value
from grading.domain.report_changes import GRADING, ITEM, item_target
from grading.store.database import literal_limit
from grading.store.tables import Change, Round, User

OF_CRITERION = (*GRADING, "reason")
"""Kinds of changes whose target is a criterion."""
MOST = 200
"""Changes of one grade that are listed; the newest."""


class MadeChange(Value):
    """A person's change, which may be undone."""

    at: datetime
    by: str
    kind: str
    target: str
    value: dict[str, Any]
    before: dict[str, Any]
    reason: str
    grading: int
    bulk: bool
    undone_at: datetime | None
    undone_by: str


class Made(MadeChange):
    """A change with its id."""

    id: int
    author: int | None = None
    """Id of the user who made it."""

    @property
    def last(self) -> datetime:
        """When it was made or undone."""
        return self.undone_at or self.at


def stamp(session: Session, round_id: str) -> str:
    """Stamp of a grade's changes: round, newest change, number of undone ones."""
    query = select(func.max(Change.id), func.count(Change.undone_at)).where(Change.round_id == round_id)
    newest, undone = session.execute(query).one()
    return f"{round_id}.{newest or 0}.{undone}"


def criterion_stamp(session: Session, round_id: str, criterion: str) -> str:
    """Stamp of the changes of one criterion; those of others leave it as it is."""
    query = select(func.max(Change.id), func.count(Change.undone_at))
    own = and_(Change.kind.in_(OF_CRITERION), Change.target == criterion)
    items = and_(Change.kind.in_(ITEM), Change.target.startswith(item_target(criterion, ""), autoescape=True))
    newest, undone = session.execute(query.where(Change.round_id == round_id, own | items)).one()
    return f"{round_id}.{newest or 0}.{undone}"


def stamp_of(session: Session, round_id: str, made: Sequence[Made]) -> str:
    """The stamp of a loaded history; a query is needed only where the history was cut."""
    if len(made) >= MOST:
        return stamp(session, round_id)
    newest = made[0].id if made else 0
    return f"{round_id}.{newest}.{sum(one.undone_at is not None for one in made)}"


def history(session: Session, round_id: str) -> tuple[Made, ...]:
    """The changes of a round, the newest first."""
    return tuple(map(made_of, session.execute(_history(), {"round_id": round_id})))


@cache
def _history() -> Select[Any]:
    return of_round().limit(literal_limit(MOST))


@cache
def of_round() -> Select[Any]:
    """All changes of a round, the newest first, as rows for `made_of`."""
    one, undoer = Change, aliased(User)
    query: Any = select(
        one.id, one.at, one.kind, one.target, one.value, one.before, one.reason, one.bulk, one.undone_at,
        one.by, User.name, undoer.name.label("undoer"), Round.number,
    )  # fmt: skip
    found: Select[Any] = (
        query.join(Round, Round.id == Change.round_id)
        .outerjoin(User, User.id == Change.by)
        .outerjoin(undoer, undoer.id == Change.undone_by)
        .where(Change.round_id == bindparam("round_id"))
        .order_by(Change.id.desc())
    )
    return found


def made_of(row: Any) -> Made:
    """A row as a change."""
    return Made(
        id=row.id, author=row.by, at=row.at, by=row.name or "", kind=row.kind, target=row.target,
        value=row.value, before=row.before, reason=row.reason, bulk=bool(row.bulk), grading=row.number,
        undone_at=row.undone_at, undone_by=row.undoer or "",
    )  # fmt: skip


def since(session: Session, round_id: str, seen: str) -> tuple[Made, ...]:
    """Changes made or undone after a form with the stamp `seen` was rendered; the newest first."""
    of, newest, undone = [*seen.split("."), "", ""][:3]
    known = of == round_id and newest.isdecimal() and undone.isdecimal()
    made = history(session, round_id)
    if not known:
        return made[:5]
    taken_back = sorted((one for one in made if one.undone_at), key=lambda one: one.last, reverse=True)
    fresh = taken_back[: max(0, len(taken_back) - int(undone))]
    new = [one for one in made if one.id > int(newest) and one not in fresh]
    return tuple(sorted([*new, *fresh], key=lambda one: one.last, reverse=True))
