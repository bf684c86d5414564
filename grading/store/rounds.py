"""The life of a round in SQL: prepared, dispatched, recorded, lost, finished.

Every step is conditional and holds the round's lock, so that doing it twice, late or in another order changes
nothing. Plain statements, not mapped objects: this is the busiest code of the store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from sqlalchemy import update
from sqlalchemy.orm import Session

from grading.model import Result, RoundState, RunState, StageState
from grading.store.database import now
from grading.store.locking import (
    OVER,
    LockedRound,
    Stage,
    add_run,
    locked,
    read_run,
    set_round,
    set_run,
    set_stage,
)
from grading.store.tables import Outbox, Round, new_id

MAX_TRIES = 3
BACKOFF_S = (2.0, 15.0)
"""Waits before the second and the third try."""
MAX_SENTENCE = 2000


@dataclass(frozen=True)
class RunOrder:
    """A run that was written down and must now be sent."""

    run_id: str
    round_id: str
    stage: str
    attempt: int
    priority: str


@dataclass(frozen=True)
class Recorded:
    """What became of a result, and whether the round must be combined now."""

    outcome: Literal["accepted", "failed", "duplicate", "unknown"]
    combine: bool = False


def save_prepared(session: Session, round_id: str, prepared: dict[str, Any]) -> bool:
    """received → queued, with the documents and evidence all its jobs carry."""
    moment = now(session)
    done = session.execute(
        update(Round)
        .where(Round.id == round_id, Round.state == RoundState.RECEIVED)
        .values(state=RoundState.QUEUED, prepared=prepared, prepared_at=moment)
        .returning(Round.id)
    ).first()
    session.execute(
        update(Outbox).where(Outbox.kind == "prepare", Outbox.key == round_id).values(done_at=moment)
    )
    return done is not None


def reject(session: Session, round_id: str, sentence: str) -> None:
    """received → failed: the round cannot be prepared, whoever tries."""
    moment = now(session)
    session.execute(
        update(Round)
        .where(Round.id == round_id, Round.state == RoundState.RECEIVED)
        .values(state=RoundState.FAILED, failure=storable(sentence), finished_at=moment)
    )
    session.execute(
        update(Outbox).where(Outbox.kind == "prepare", Outbox.key == round_id).values(done_at=moment)
    )


def count_prepare(session: Session, round_id: str) -> int:
    """Count one more try to prepare a round; returns how many there were."""
    row = session.execute(
        update(Outbox)
        .where(Outbox.kind == "prepare", Outbox.key == round_id)
        .values(tries=Outbox.tries + 1)
        .returning(Outbox.tries)
    ).first()
    return row.tries if row is not None else 0


def begin(session: Session, round_id: str) -> list[RunOrder]:
    """queued → running: one run for each waiting stage. Empty when somebody else began it."""
    current = locked(session, round_id)
    if current is None or current.state != RoundState.QUEUED:
        return []
    set_round(session, round_id, state=RoundState.RUNNING, dispatched_at=now(session), chord_open=True)
    waiting = [stage for stage in current.stages.values() if stage.state == StageState.WAITING]
    return [_order(session, current, stage) for stage in waiting]


def begin_again(session: Session, round_id: str, stage_name: str) -> RunOrder | None:
    """failed → dispatched: the next run of one stage. None when somebody else began it."""
    current = locked(session, round_id)
    if current is None or current.state != RoundState.RUNNING:
        return None
    stage = current.stages[stage_name]
    if stage.state != StageState.FAILED:
        return None
    set_round(session, round_id, chord_open=False)
    return _order(session, current, stage)


def _order(session: Session, current: LockedRound, stage: Stage) -> RunOrder:
    order = RunOrder(new_id(), current.id, stage.stage, stage.runs + 1, current.priority)
    add_run(
        session,
        id=order.run_id,
        round_id=order.round_id,
        stage=order.stage,
        attempt=order.attempt,
        dispatched_at=now(session),
    )
    set_stage(
        session,
        current.id,
        stage.stage,
        state=StageState.DISPATCHED,
        run_id=order.run_id,
        not_before=None,
        tries=stage.tries + 1,
        runs=order.attempt,
    )
    return order


def record(session: Session, result: Result) -> Recorded:
    """Write a result down. Only runs that were dispatched count; the first valid result of a stage wins."""
    current = locked(session, result.round_id)
    run = read_run(session, result.run_id)
    if current is None or run is None or (run.round_id, run.stage) != (current.id, result.stage):
        return Recorded("unknown")
    if run.state not in (RunState.DISPATCHED, RunState.LOST):
        return Recorded("duplicate")
    stage = current.stages[result.stage]
    counts = run.state == RunState.DISPATCHED and stage.run_id == result.run_id
    accepted = result.ok and stage.state not in OVER
    set_run(
        session,
        result.run_id,
        state=RunState.DONE if accepted else RunState.DUPLICATE if result.ok else RunState.FAILED,
        accepted=accepted,
        machine=result.provenance.machine[:40],
        finished_at=now(session),
        result=result.model_dump(mode="json"),
        error=result.error and result.error[:40],
    )
    if accepted:
        set_stage(session, current.id, stage.stage, state=StageState.DONE, error=None, message="")
        return Recorded("accepted", combine=_ready(current, stage.stage))
    if result.ok:
        return Recorded("duplicate")
    wait = BACKOFF_S[min(stage.tries, len(BACKOFF_S)) - 1]
    code = result.error or "error"
    dead = counts and _fail(
        session, current, stage, code, result.message, None if result.retry == "never" else wait
    )
    return Recorded("failed", combine=dead and _ready(current, stage.stage))


def _fail(
    session: Session, current: LockedRound, stage: Stage, error: str, message: str, wait_s: float | None
) -> bool:
    """The stage waits `wait_s` for its next try, or is dead (True) when it has none left or no wait helps."""
    again = wait_s is not None and stage.tries < MAX_TRIES
    set_stage(
        session,
        current.id,
        stage.stage,
        state=StageState.FAILED if again else StageState.DEAD,
        tries=stage.tries,
        not_before=now(session) + timedelta(seconds=wait_s or 0.0) if again else None,
        error=error[:40],
        message=storable(message),
    )
    return not again


def storable(text: str) -> str:
    """A sentence any database takes: PostgreSQL refuses NUL, and machines are not trusted with length."""
    return text.replace("\0", "")[:MAX_SENTENCE]


def _ready(current: LockedRound, ended: str) -> bool:
    """Whether the round can be combined, now that the stage `ended` is over, and no chord will do it."""
    return not current.chord_open and current.complete(but=ended)


def lose(session: Session, run_id: str, message: str, *, started: bool) -> str | None:
    """dispatched → lost. A run that no machine had `started` costs no try. Returns the round to combine."""
    known = read_run(session, run_id)
    current = locked(session, known.round_id) if known is not None else None
    if current is None:
        return None  # a lease from before this database
    run = read_run(session, run_id)
    if run is None or run.state != RunState.DISPATCHED:
        return None
    set_run(session, run_id, state=RunState.LOST, finished_at=now(session), error="machine_lost")
    set_round(session, current.id, chord_open=False)
    stage = current.stages[run.stage]
    dead = stage.state in OVER
    if stage.run_id == run_id and stage.state == StageState.DISPATCHED:
        tried = stage if started else replace(stage, tries=stage.tries - 1)
        # another machine can start at once
        dead = _fail(session, current, tried, "machine_lost", message, wait_s=0.0)
    return current.id if dead and current.complete(but=stage.stage) else None
