"""A round under its lock, and the plain statements that change it.

Not mapped objects: this is the busiest code of the store. Whoever changes a round holds its lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from sqlalchemy import Table, bindparam, select
from sqlalchemy.orm import Session

from grading.model import RunState, StageState
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
    message: str
    losses: int
    alone: bool
    avoid: list[str]


@dataclass(frozen=True)
class LockedRound:
    """A round, locked until the transaction ends, and its stages as they are then."""

    id: str
    submission_id: str
    rubric_version_id: int
    state: str
    priority: str
    chord_open: bool
    current: bool
    """Its grade is to count; not so in a dry run."""
    stages: Mapping[str, Stage]

    COLUMNS: ClassVar = (
        *("id", "submission_id", "rubric_version_id", "state", "priority", "chord_open", "current"),
    )

    def complete(self, but: str = "") -> bool:
        """Whether no stage, leaving out the one named, is under way any more."""
        return all(stage.state in OVER for stage in self.stages.values() if stage.stage != but)


@dataclass(frozen=True)
class KnownRun:
    """What a run belongs to, and its state."""

    round_id: str
    stage: str
    state: str


# made once: putting a statement together costs more than running it
_READ = select(*(_ROUNDS.c[name] for name in LockedRound.COLUMNS)).where(
    _ROUNDS.c.id == bindparam("at_round")
)
_LOCK = _READ.with_for_update()
_LOCK_IF_FREE = _READ.with_for_update(skip_locked=True)
_READ_STAGES = select(*(_STAGES.c[field.name] for field in fields(Stage))).where(
    _STAGES.c.round_id == bindparam("at_round")
)
_READ_RUN = select(_RUNS.c.round_id, _RUNS.c.stage, _RUNS.c.state).where(_RUNS.c.id == bindparam("at_run"))
_READ_ACCEPTED = select(_RUNS.c.result).where(_RUNS.c.round_id == bindparam("at_round"), _RUNS.c.accepted)
_UPDATE_ROUND = _ROUNDS.update().where(_ROUNDS.c.id == bindparam("at_round"))
_UPDATE_STAGE = _STAGES.update().where(
    _STAGES.c.round_id == bindparam("at_round"), _STAGES.c.stage == bindparam("at_stage")
)
_UPDATE_RUN = _RUNS.update().where(_RUNS.c.id == bindparam("at_run"))
_INSERT_RUN = _RUNS.insert()


def locked(session: Session, round_id: str, *, if_free: bool = False) -> LockedRound | None:
    """The round, locked; its stages are read after the lock is there, a join would be older than it.

    With `if_free`, nothing when somebody else holds the lock, instead of waiting for it.
    """
    at = {"at_round": round_id}
    row = session.execute(_LOCK_IF_FREE if if_free else _LOCK, at).one_or_none()
    if row is None:
        return None
    stages = session.execute(_READ_STAGES, at)
    return LockedRound(**row._mapping, stages={stage.stage: Stage(*stage) for stage in stages})


def set_round(session: Session, round_id: str, **values: Any) -> None:
    """Change a round."""
    session.execute(_UPDATE_ROUND, {"at_round": round_id, **values})


def set_stage(session: Session, round_id: str, stage: str, **values: Any) -> None:
    """Change a stage of a round."""
    session.execute(_UPDATE_STAGE, {"at_round": round_id, "at_stage": stage, **values})


def set_run(session: Session, run_id: str, **values: Any) -> None:
    """Change a run."""
    session.execute(_UPDATE_RUN, {"at_run": run_id, **values})


def read_run(session: Session, run_id: str) -> KnownRun | None:
    """The run of that id, if it was ever dispatched."""
    row = session.execute(_READ_RUN, {"at_run": run_id}).one_or_none()
    return None if row is None else KnownRun(*row)


def add_run(session: Session, **values: Any) -> None:
    """A new run, dispatched."""
    session.execute(_INSERT_RUN, {"state": RunState.DISPATCHED, "accepted": False, **values})


def read_accepted(session: Session, round_id: str) -> list[Any]:
    """The result of each stage that has an accepted one, as JSON."""
    return list(session.execute(_READ_ACCEPTED, {"at_round": round_id}).scalars())
