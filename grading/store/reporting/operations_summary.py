"""What stands at the top of operating: how much waits, was given up and stands still, in one query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import bindparam, cast, func, literal, null, select, union_all
from sqlalchemy.orm import Session

from grading.store.database import clock, told
from grading.store.reporting.metrics import KINDS, UNFINISHED, Waiting
from grading.store.reporting.operations import DEAD
from grading.store.rounds.retry import GIVEN_UP
from grading.store.tables import EventReceiver, Outbox, Round


@dataclass(frozen=True)
class Figures:
    """All of them, of one moment."""

    rounds: Mapping[tuple[str, str], Waiting]
    """state and priority -> rounds that have not ended"""
    outbox: Mapping[str, Waiting]
    """kind -> what is to be told and was not yet"""
    dead: Mapping[str, int]
    """kind -> messages that were given up"""
    paused: tuple[str, ...]
    """Receivers of events that take nothing."""
    given_up: int
    """Rounds of the reader's courses."""


def figures(session: Session, course_ids: frozenset[int] | None) -> Figures:
    """What counts now; `given_up` of these courses (nothing: all)."""
    query = _query(session.get_bind().dialect.name, course_ids is not None)
    found = session.execute(query, {} if course_ids is None else {"course_ids": list(course_ids)}).all()
    moment = told(session, found[0].clock)
    of: dict[str, dict[tuple[str, str], Waiting]] = {}
    for what, one, other, count, oldest, _clock in found:
        age = max(0.0, (moment - oldest).total_seconds()) if oldest is not None else 0.0
        of.setdefault(what, {})[one, other] = Waiting(count, age)
    none = {(s.value, priority): Waiting(0, 0.0) for s in UNFINISHED for priority in ("interactive", "batch")}
    return Figures(
        rounds=none | of.get("round", {}),
        outbox=dict.fromkeys(KINDS, Waiting(0, 0.0))
        | {name[0]: one for name, one in of.get("sent", {}).items()},
        dead={name[0]: one.count for name, one in sorted(of.get("dead", {}).items())},
        paused=tuple(sorted(name[0] for name in of.get("paused", {}))),
        given_up=of["given up"]["", ""].count,
    )


@cache
def _query(dialect: str, some: bool) -> Any:
    """A row for each figure: what it is, of what, how many, since when, and the database's time."""
    never, every = cast(null(), Round.created_at.type), func.count()
    lost = Round.current & Round.state.in_(GIVEN_UP)
    if some:
        lost &= Round.course_id.in_(bindparam("course_ids", expanding=True))

    def part(what: str, one: Any, other: Any, count: Any, oldest: Any) -> Any:
        return select(literal(what).label("what"), one, other, count, oldest, clock(dialect))

    nothing = literal("")
    return union_all(
        part("round", Round.state, Round.priority, every, func.min(Round.created_at))
        .where(Round.state.in_(UNFINISHED))
        .group_by(Round.state, Round.priority),
        part("sent", Outbox.kind, nothing, every, func.min(Outbox.created_at))
        .where(Outbox.done_at.is_(None))
        .group_by(Outbox.kind),
        part("dead", Outbox.kind, nothing, every, never).where(*DEAD).group_by(Outbox.kind),
        part("paused", EventReceiver.name, nothing, literal(1), never).where(
            EventReceiver.paused_at.is_not(None)
        ),
        part("given up", nothing, nothing, every, never).select_from(Round).where(lost),
    )
