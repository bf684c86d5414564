"""What each machine did last, for staff: stages and how they ended, nothing of whose work it was."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from grading.store.database import always, clock, told
from grading.store.tables import Run

LOOKED_AT = 300
"""Runs, the newest: that is enough for a few of each of many machines."""


@dataclass(frozen=True)
class Taken:
    """A run that ended."""

    stage: str
    state: str
    error: str
    seconds: float | None
    tokens: int | None
    finished_at: datetime
    ago_s: float


def last_taken(session: Session, each: int = 5) -> dict[str, list[Taken]]:
    """machine -> its last runs, the newest first."""
    rows = session.execute(_newest(session.get_bind().dialect.name), {"each": each}).all()
    found: dict[str, list[Taken]] = {}
    for machine, stage, state, error, seconds, tokens, at, clocked in rows:
        ago = max(0.0, (told(session, clocked) - at).total_seconds())
        mine = found.setdefault(machine or "", [])
        mine.append(Taken(stage, state, error or "", seconds, tokens, at, ago))
    found.pop("", None)
    return found


@cache
def _newest(dialect: str) -> Any:
    newest = (
        select(Run.machine, Run.stage, Run.state, Run.error, Run.seconds, Run.output_tokens, Run.finished_at)
        .where(Run.finished_at.is_not(None))
        .order_by(Run.finished_at.desc())
        .limit(always(LOOKED_AT))
        .subquery()
    )
    place = func.row_number().over(partition_by=newest.c.machine, order_by=newest.c.finished_at.desc())
    placed = select(newest, place.label("place")).subquery()
    columns = [placed.c[one.key] for one in newest.c]
    query = select(*columns, clock(dialect)).where(placed.c.place <= bindparam("each"))
    return query.order_by(placed.c.finished_at.desc())
