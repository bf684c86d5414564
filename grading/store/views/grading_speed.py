"""How fast gradings went lately."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from grading.store import tables
from grading.store.database import now

TYPICAL_S = 60.0
"""What one grading takes as long as none has been seen."""


@dataclass(frozen=True)
class Speed:
    """How fast grading went in the last hour, in seconds."""

    now: datetime
    typical_s: float = TYPICAL_S
    """From sending a round to its end."""
    every_s: float = TYPICAL_S
    """Between two that finish."""
    prepare_s: float = 0.0
    """From a hand-in to the queue, with running its work."""
    combine_s: float = 0.0
    """From the last result to the grade."""


def speed(session: Session) -> Speed:
    """What the last hour's 50 newest rounds tell."""
    moment = now(session)
    last = (
        select(
            tables.Round.created_at,
            tables.Round.prepared_at,
            tables.Round.dispatched_at,
            tables.Round.finished_at,
            select(func.max(tables.Run.finished_at))
            .where(tables.Run.round_id == tables.Round.id)
            .scalar_subquery(),
        )
        .where(tables.Round.dispatched_at.is_not(None))
        .where(tables.Round.finished_at > moment - timedelta(hours=1))
        .order_by(tables.Round.finished_at.desc())
        .limit(50)
    )
    rows = session.execute(last).all()
    if not rows:
        return Speed(moment)
    spans = [(row[2], row[3]) for row in rows if row[2] and row[3]]
    busy = (max(end for _, end in spans) - min(start for start, _ in spans)).total_seconds()
    return Speed(
        moment,
        typical_s=max(1.0, _typical(spans)),
        every_s=busy / len(spans),
        prepare_s=_typical((row[0], row[1]) for row in rows),
        combine_s=_typical((row[4], row[3]) for row in rows),
    )


def _typical(spans: Iterable[tuple[datetime | None, datetime | None]]) -> float:
    known = [(end - start).total_seconds() for start, end in spans if start and end]
    return max(0.0, median(known)) if known else 0.0
