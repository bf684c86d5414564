"""Locked rounds: row locks, and the plain statements that change rounds, stages and runs.

Not mapped objects, and on the connection itself: this is the busiest code of the store, and a session makes
each statement half as expensive again. Every change of a round holds its lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import Table, and_, bindparam, select
from sqlalchemy.orm import Session

from grading.domain.messages import Message
from grading.domain.round_states import RoundState, RunState, StageState
from grading.store.database import cache_now, clock_column
from grading.store.tables import Base

OVER = (StageState.DONE, StageState.DEAD)

_ROUNDS: Table = Base.metadata.tables["rounds"]
_STAGES: Table = Base.metadata.tables["round_stages"]
_RUNS: Table = Base.metadata.tables["runs"]


@dataclass(frozen=True)
class Stage:
    """One stage of a locked round."""

    stage: str
    state: str
    tries: int
    runs: int
    run_id: str | None
    message: Message
    losses: int
    alone: bool
    avoid: list[str]
    error: str | None
    """Code of its last failure."""

    def waits_for(self, run_id: str) -> bool:
        """Whether this run is the stage's present one."""
        return self.state == StageState.DISPATCHED and self.run_id == run_id


@dataclass(frozen=True)
class LockedRound:
    """A round, locked until the transaction ends, with its stages."""

    id: str
    submission_id: str
    rubric_version_id: int
    state: str
    priority: str
    current: bool
    """Its grade is to count; False in a dry run."""
    stages: Mapping[str, Stage]

    COLUMNS: ClassVar = (*("id", "submission_id", "rubric_version_id", "state", "priority", "current"),)

    @property
    def complete(self) -> bool:
        """Whether it can be combined: it is running, and all its stages are done or dead."""
        return self.state == RoundState.RUNNING and all(one.state in OVER for one in self.stages.values())


@dataclass(frozen=True)
class RunRow:
    """Round, stage and state of a run."""

    round_id: str
    stage: str
    state: str


# made once: putting a statement together costs more than running it
_READ = select(*(_ROUNDS.c[name] for name in LockedRound.COLUMNS)).where(
    _ROUNDS.c.id == bindparam("at_round")
)
_LOCK = _READ.with_for_update()
_LOCK_IF_FREE = (
    select(*(_ROUNDS.c[name] for name in LockedRound.COLUMNS))
    .where(_ROUNDS.c.id.in_(bindparam("rounds", expanding=True)))
    .with_for_update(skip_locked=True)
)
_READ_STAGES = select(*(_STAGES.c[field.name] for field in fields(Stage))).where(
    _STAGES.c.round_id == bindparam("at_round")
)
_READ_STAGES_OF = select(_STAGES.c.round_id, *(_STAGES.c[field.name] for field in fields(Stage))).where(
    _STAGES.c.round_id.in_(bindparam("rounds", expanding=True))
)
_LOCK_ALL = (
    select(*(_ROUNDS.c[name] for name in LockedRound.COLUMNS))
    .where(_ROUNDS.c.id.in_(bindparam("rounds", expanding=True)))
    .order_by(_ROUNDS.c.id)
    .with_for_update()
)
_READ_RUN = select(_RUNS.c.round_id, _RUNS.c.stage, _RUNS.c.state).where(_RUNS.c.id == bindparam("at_run"))
_READ_STAGES_AND_RUNS = {
    dialect: select(
        clock_column(dialect),
        _STAGES.c.round_id,
        _RUNS.c.id,
        _RUNS.c.state,
        *(_STAGES.c[field.name] for field in fields(Stage)),
    )
    .outerjoin(
        _RUNS,
        and_(
            _RUNS.c.round_id == _STAGES.c.round_id,
            _RUNS.c.stage == _STAGES.c.stage,
            _RUNS.c.id.in_(bindparam("runs", expanding=True)),
        ),
    )
    .where(_STAGES.c.round_id.in_(bindparam("rounds", expanding=True)))
    for dialect in ("sqlite", "postgresql")
}
_READ_ACCEPTED = select(_RUNS.c.result).where(_RUNS.c.round_id == bindparam("at_round"), _RUNS.c.accepted)
_UPDATE_ROUND = _ROUNDS.update().where(_ROUNDS.c.id == bindparam("at_round"))
_UPDATE_STAGE = _STAGES.update().where(
    _STAGES.c.round_id == bindparam("at_round"), _STAGES.c.stage == bindparam("at_stage")
)
_STAGE_DONE = _UPDATE_STAGE.values(state=StageState.DONE, error=None, message=Message())
_UPDATE_RUN = _RUNS.update().where(_RUNS.c.id == bindparam("at_run"))
_INSERT_RUN = _RUNS.insert()
_BEGIN_ROUNDS = (
    _ROUNDS.update()
    .where(_ROUNDS.c.id.in_(bindparam("rounds", expanding=True)))
    .values(state=RoundState.RUNNING, dispatched_at=bindparam("at"))
)
_DISPATCH_STAGE = _UPDATE_STAGE.values(
    state=StageState.DISPATCHED,
    run_id=bindparam("run"),
    not_before=None,
    tries=_STAGES.c.tries + 1,
    runs=bindparam("count"),
)


def lock_round(session: Session, round_id: str) -> LockedRound | None:
    """The round, locked; its stages are read after the lock, as a join would return an older state."""
    at = {"at_round": round_id}
    row = session.connection().execute(_LOCK, at).one_or_none()
    if row is None:
        return None
    stages = session.connection().execute(_READ_STAGES, at)
    return LockedRound(**row._mapping, stages={stage.stage: Stage(*stage) for stage in stages})


def lock_with_runs(
    session: Session, round_ids: Iterable[str], run_ids: Iterable[str]
) -> tuple[dict[str, LockedRound], dict[str, RunRow]]:
    """Lock these rounds; returns them with those of these runs that are theirs.

    Locks are taken in the order of ids, to avoid deadlocks.
    """
    connection, at = session.connection(), {"rounds": list(set(round_ids))}
    rows = {row.id: row._mapping for row in connection.execute(_LOCK_ALL, at)}
    stages: dict[str, dict[str, Stage]] = {name: {} for name in rows}
    runs: dict[str, RunRow] = {}
    statement = _READ_STAGES_AND_RUNS[connection.dialect.name]
    found = connection.execute(statement, {**at, "runs": list(run_ids)}) if rows else ()
    for moment, round_id, run_id, state, *columns in found:
        cache_now(session, moment)
        stages[round_id][columns[0]] = stage = Stage(*columns)
        if run_id is not None:
            runs[run_id] = RunRow(round_id, stage.stage, state)
    return {name: LockedRound(**row, stages=stages[name]) for name, row in rows.items()}, runs


def lock_if_free(session: Session, round_ids: Sequence[str]) -> dict[str, LockedRound]:
    """Lock those of these rounds that no other transaction holds, in the order given."""
    at = {"rounds": list(round_ids)}
    rows = {row.id: row._mapping for row in session.connection().execute(_LOCK_IF_FREE, at)}
    stages: dict[str, dict[str, Stage]] = {name: {} for name in rows}
    for round_id, *columns in session.connection().execute(_READ_STAGES_OF, at) if rows else ():
        if round_id in stages:
            stages[round_id][columns[0]] = Stage(*columns)
    return {name: LockedRound(**rows[name], stages=stages[name]) for name in round_ids if name in rows}


def set_round(session: Session, round_id: str, **values: Any) -> None:
    """Update a round."""
    session.connection().execute(_UPDATE_ROUND, {"at_round": round_id, **values})


def set_stage(session: Session, round_id: str, stage: str, **values: Any) -> None:
    """Update a stage of a round."""
    session.connection().execute(_UPDATE_STAGE, {"at_round": round_id, "at_stage": stage, **values})


def set_stages_done(session: Session, stages: Sequence[tuple[str, str]]) -> None:
    """Mark stages of rounds done."""
    rows = [{"at_round": round_id, "at_stage": stage} for round_id, stage in stages]
    if rows:
        session.connection().execute(_STAGE_DONE, rows)


def set_runs(session: Session, values: Mapping[str, Mapping[str, Any]]) -> None:
    """Update runs by their ids, all in the same columns."""
    if values:
        session.connection().execute(_UPDATE_RUN, [{"at_run": name, **row} for name, row in values.items()])


def set_run(session: Session, run_id: str, **values: Any) -> None:
    """Update a run."""
    session.connection().execute(_UPDATE_RUN, {"at_run": run_id, **values})


def read_run(session: Session, run_id: str) -> RunRow | None:
    """The run of that id, or None if it was never dispatched."""
    row = session.connection().execute(_READ_RUN, {"at_run": run_id}).one_or_none()
    return None if row is None else RunRow(*row)


def set_dispatched(session: Session, round_ids: Sequence[str], at: datetime) -> None:
    """Mark rounds running."""
    if round_ids:
        session.connection().execute(_BEGIN_ROUNDS, {"rounds": list(round_ids), "at": at})


def add_runs(session: Session, runs: Sequence[Mapping[str, Any]]) -> None:
    """Insert runs that are dispatched, as the present runs of their stages."""
    one = {"state": RunState.DISPATCHED, "accepted": False}
    session.connection().execute(_INSERT_RUN, [{**one, **run} for run in runs])
    session.connection().execute(
        _DISPATCH_STAGE,
        [
            {"at_round": run["round_id"], "at_stage": run["stage"], "run": run["id"], "count": run["attempt"]}
            for run in runs
        ],
    )


def read_accepted(session: Session, round_id: str) -> list[Any]:
    """The accepted result of each stage that has one, as JSON."""
    return list(session.connection().execute(_READ_ACCEPTED, {"at_round": round_id}).scalars())
