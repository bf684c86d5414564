"""Metrics in SQL: totals of everything that has finished, and gauges of what is open.

Totals are cumulative by the time of finishing. A row becomes visible when its transaction commits, at most
LATE_S after its time: what is older is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Float, SQLColumnExpression, case, func, literal_column, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from grading.domain.round_states import RoundState, RunState, StageState
from grading.store.accounts import gateway_use
from grading.store.database import now
from grading.store.tables import Drain, Outbox, ParityAlarm, Round, RoundStage, Run

LATE_S = 120.0
"""Seconds; longer than any transaction takes."""
STAGE_S = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0)
FIRST_TOKEN_S = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0)
END_TO_END_S = (5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 86400.0)
KINDS = ("prepare", "execute", "event")
"""Kinds of outbox rows; there may be others."""
UNFINISHED = (RoundState.RECEIVED, RoundState.QUEUED, RoundState.RUNNING)
OPEN_STAGES = (StageState.WAITING, StageState.DISPATCHED, StageState.FAILED)


class _Elapsed(FunctionElement[float]):
    """SQL function: seconds from the first instant to the second."""

    name = "elapsed"
    type = Float()
    inherit_cache = True


@compiles(_Elapsed, "sqlite")
def _on_sqlite(element: _Elapsed, compiler: SQLCompiler, **options: Any) -> str:
    start, end = (compiler.process(clause, **options) for clause in element.clauses)
    return f"((julianday({end}) - julianday({start})) * 86400.0)"


@compiles(_Elapsed, "postgresql")
def _on_postgresql(element: _Elapsed, compiler: SQLCompiler, **options: Any) -> str:
    start, end = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CAST(EXTRACT(EPOCH FROM ({end} - {start})) AS DOUBLE PRECISION)"


@dataclass(frozen=True)
class Spread:
    """A histogram: cumulative counts by the bounds in order; number and sum of all values."""

    at_most: tuple[int, ...]
    count: int
    total: float

    def __add__(self, other: Spread) -> Spread:
        at_most = tuple(a + b for a, b in zip(self.at_most, other.at_most, strict=True))
        return Spread(at_most, self.count + other.count, self.total + other.total)


@dataclass(frozen=True)
class RunTotals:
    """Finished runs of one kind: number, retries, tokens and seconds."""

    runs: int
    retries: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    generation_seconds: float
    """Seconds after the first token."""
    seconds: Spread
    first_token_s: Spread

    def __add__(self, other: RunTotals) -> RunTotals:
        names = [one.name for one in fields(self)]
        return RunTotals(*(getattr(self, name) + getattr(other, name) for name in names))


RunKind = tuple[str, str, str, str, str]
"""Stage, machine, model, state of the run, error code; empty where there is none."""


@dataclass(frozen=True)
class Totals:
    """Everything that finished in an interval."""

    runs: Mapping[RunKind, RunTotals]
    rounds: Mapping[tuple[str, str], Spread]
    """(state, priority) -> seconds from the round's start to its end."""
    dead: Mapping[tuple[str, str], int]
    """(stage, error) -> stages that became dead."""

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            _merged(self.runs, other.runs),
            _merged(self.rounds, other.rounds),
            _merged(self.dead, other.dead),
        )


NOTHING = Totals({}, {}, {})


def _merged(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
    return {**one, **{key: one[key] + value if key in one else value for key, value in other.items()}}


def totals(session: Session, after: datetime | None, until: datetime | None) -> Totals:
    """Totals of what finished after `after` and until `until`; None: from the beginning, up to now."""
    return Totals(_runs(session, after, until), _rounds(session, after, until), _dead(session, after, until))


def settled_until(session: Session) -> datetime:
    """The instant before which nothing more can become visible."""
    return now(session) - timedelta(seconds=LATE_S)


def _within(column: Any, after: datetime | None, until: datetime | None) -> list[ColumnElement[bool]]:
    bounds = [column.is_not(None)]
    if after is not None:
        bounds.append(column > after)
    if until is not None:
        bounds.append(column <= until)
    return bounds


def _kind(*columns: Any) -> list[ColumnElement[str]]:
    """A column to group by: never NULL, and an expression, as SQLite would read a whole index for the bare
    column.
    """
    return [func.coalesce(column, literal_column("''")) for column in columns]


def _spread(value: SQLColumnExpression[Any], bounds: tuple[float, ...]) -> list[ColumnElement[Any]]:
    at_most = [func.sum(case((value <= bound, 1), else_=0)) for bound in bounds]
    return [*at_most, func.count(value), func.coalesce(func.sum(value), 0.0)]


def _read_spread(row: tuple[Any, ...]) -> Spread:
    return Spread(tuple(int(n) for n in row[:-2]), int(row[-2]), float(row[-1]))


def _runs(session: Session, after: datetime | None, until: datetime | None) -> dict[RunKind, RunTotals]:
    # what was not measured adds nothing
    seconds, first = Run.seconds, Run.first_token_s
    measured = [
        func.count(),
        func.sum(case((Run.attempt > 1, 1), else_=0)),
        *(func.coalesce(func.sum(c), 0) for c in (Run.prompt_tokens, Run.cached_tokens, Run.output_tokens)),
        func.coalesce(func.sum(case((first.is_not(None), seconds - first))), 0.0),
        *_spread(seconds, STAGE_S),
        *_spread(first, FIRST_TOKEN_S),
    ]
    kind = _kind(Run.stage, Run.machine, Run.model, Run.state, Run.error)
    query = select(*kind, *measured).where(
        Run.state != RunState.DISPATCHED, *_within(Run.finished_at, after, until)
    )
    found: dict[RunKind, RunTotals] = {}
    width = len(STAGE_S) + 2
    for row in session.execute(query.group_by(*kind)):
        labels, (runs, again, prompt, cached, output, generating, *spreads) = row[:5], row[5:]
        stage, machine, model, state, error = labels
        found[stage, machine, model, state, error] = RunTotals(
            int(runs), int(again), int(prompt), int(cached), int(output), float(generating),
            _read_spread(tuple(spreads[:width])), _read_spread(tuple(spreads[width:])),
        )  # fmt: skip
    return found


def _rounds(
    session: Session, after: datetime | None, until: datetime | None
) -> dict[tuple[str, str], Spread]:
    took = _Elapsed(Round.created_at, Round.finished_at)
    kind = _kind(Round.state, Round.priority)
    query = (
        select(*kind, *_spread(took, END_TO_END_S))
        .where(*_within(Round.finished_at, after, until))
        .group_by(*kind)
    )
    return {(row[0], row[1]): _read_spread(tuple(row[2:])) for row in session.execute(query)}


def _dead(session: Session, after: datetime | None, until: datetime | None) -> dict[tuple[str, str], int]:
    query = (
        select(RoundStage.stage, RoundStage.error, func.count())
        .join(Round, Round.id == RoundStage.round_id)
        .where(RoundStage.state == StageState.DEAD, *_within(Round.finished_at, after, until))
        .group_by(RoundStage.stage, RoundStage.error)
    )
    return {(row[0], row[1] or ""): int(row[2]) for row in session.execute(query)}


@dataclass(frozen=True)
class Waiting:
    """Number of things of one kind that wait, and the oldest one's age in seconds."""

    count: int
    oldest_s: float

    def __add__(self, other: Waiting) -> Waiting:
        return Waiting(self.count + other.count, max(self.oldest_s, other.oldest_s))


@dataclass(frozen=True)
class Open:
    """Gauges of what is open now."""

    rounds: Mapping[tuple[str, str], Waiting]
    """(state, priority) -> rounds that are not finished."""
    stages: Mapping[tuple[str, str], int]
    """(stage, state) -> stages that are not finished."""
    dead: Mapping[tuple[str, str], int]
    """(stage, error) -> dead stages of current rounds."""
    outbox: Mapping[str, Waiting]
    """Kind -> rows that are not sent."""
    drained: frozenset[str]
    """Names of drained machines."""
    gateway: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(model, kind) -> tokens that requests of the gateway took today, in UTC."""
    alarms: Mapping[str, int] = field(default_factory=dict)
    """Machine -> alarms of nightly parity that nobody ended."""


def count_open(session: Session) -> Open:
    """Count what is open by indexes, at a cost that does not grow with the history."""
    return Open(
        rounds=count_open_rounds(session),
        stages=_open_stages(session),
        dead=_dead_letters(session),
        outbox=count_outbox(session),
        drained=frozenset(session.execute(select(Drain.machine)).scalars()),
        gateway=gateway_use.use_of_today(session),
        alarms=_alarms(session),
    )


def _alarms(session: Session) -> dict[str, int]:
    query = select(ParityAlarm.machine, func.count()).where(ParityAlarm.ended_at.is_(None))
    return {row[0]: row[1] for row in session.execute(query.group_by(ParityAlarm.machine))}


def count_open_rounds(session: Session) -> dict[tuple[str, str], Waiting]:
    """Rounds that have not ended, by state and priority."""
    query = (
        select(Round.state, Round.priority, func.count(), func.min(Round.created_at))
        .where(Round.state.in_(UNFINISHED))
        .group_by(Round.state, Round.priority)
    )
    found = {(row[0], row[1]): _waiting(session, row[2], row[3]) for row in session.execute(query)}
    return {
        (state.value, priority): found.get((state.value, priority), Waiting(0, 0.0))
        for state in UNFINISHED
        for priority in ("interactive", "batch")
    }


def _waiting(session: Session, count: int, oldest: datetime) -> Waiting:
    return Waiting(count, max(0.0, (now(session) - oldest).total_seconds()))


def _open_stages(session: Session) -> dict[tuple[str, str], int]:
    query = (
        select(RoundStage.stage, RoundStage.state, func.count())
        .where(RoundStage.state.in_(OPEN_STAGES))
        .group_by(RoundStage.stage, RoundStage.state)
    )
    return {(row[0], row[1]): int(row[2]) for row in session.execute(query)}


def _dead_letters(session: Session) -> dict[tuple[str, str], int]:
    query = (
        select(RoundStage.stage, RoundStage.error, func.count())
        .join(Round, Round.id == RoundStage.round_id)
        .where(RoundStage.state == StageState.DEAD, Round.current)
        .group_by(RoundStage.stage, RoundStage.error)
    )
    return {(row[0], row[1] or ""): int(row[2]) for row in session.execute(query)}


def count_outbox(session: Session) -> dict[str, Waiting]:
    """Open outbox rows by kind."""
    query = (
        select(Outbox.kind, func.count(), func.min(Outbox.created_at))
        .where(Outbox.done_at.is_(None))
        .group_by(Outbox.kind)
    )
    none = dict.fromkeys(KINDS, Waiting(0, 0.0))
    return none | {row[0]: _waiting(session, row[1], row[2]) for row in session.execute(query)}
