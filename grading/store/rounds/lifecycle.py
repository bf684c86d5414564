"""Lifecycle of a prepared round: stages dispatched, results recorded, runs lost or retried.

Every step is conditional and holds the round's lock, so that doing it twice, late or in another order
changes nothing. Plain statements, not mapped objects: this is the busiest code of the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from grading.domain.errors import MachineLost, MachineStalled, Retry
from grading.domain.jobs import Result
from grading.domain.messages import Message
from grading.domain.round_states import RoundState, RunState, StageState
from grading.store.database import now
from grading.store.rounds import prompts
from grading.store.rounds.example_usage import any_active
from grading.store.rounds.locking import (
    OVER,
    LockedRound,
    RunRow,
    Stage,
    add_runs,
    lock_if_free,
    lock_round,
    lock_with_runs,
    read_run,
    set_dispatched,
    set_run,
    set_runs,
    set_stage,
    set_stages_done,
)
from grading.store.tables import Round, new_id

MAX_TRIES = 3
MAX_LOSSES = 3
"""Runs of a stage that may be lost after they began, whatever the cause."""
SUSPECT = 2
"""Losses, the last one together with other runs, after which the next run gets a machine to itself."""
BACKOFF_S: Mapping[Retry, tuple[float, float]] = {"elsewhere": (2.0, 15.0), "later": (15.0, 60.0)}
"""Backoff in seconds before the second and the third try, by kind of failure."""
MAX_ERROR = 40
OPEN = (RunState.DISPATCHED, RunState.LOST)
"""States of runs without a result: a lost run may still send one."""


@dataclass(frozen=True)
class RunOrder:
    """A run to be dispatched."""

    run_id: str
    round_id: str
    stage: str
    attempt: int
    priority: str
    avoid: tuple[str, ...] = ()
    alone: bool = False
    first: bool = False
    """The round is queued, and this run is the first of its stage."""


@dataclass(frozen=True)
class Work:
    """The stored data that the jobs of a round are made of."""

    prepared: Mapping[str, Any]
    rubric_version_id: int
    submission_id: str
    student_id: int
    taught: bool
    """Its assignment has active examples."""


_READ_WORK = select(
    Round.id,
    Round.prepared,
    Round.rubric_version_id,
    Round.submission_id,
    Round.student_id,
    any_active(Round.rubric_version_id),
).where(Round.id.in_(bindparam("rounds", expanding=True)))
Loss = Literal["unbegun", "alone", "together"]
"""How a run was lost: before a machine began it, alone, or with others of the same process."""


Outcome = Literal["accepted", "failed", "duplicate", "unknown"]


@dataclass(frozen=True)
class Recorded:
    """The outcome of a result, and whether the round can be combined now."""

    outcome: Outcome
    complete: LockedRound | None = None
    """The round as it is now, when this was the last result it needed."""


def first_orders(session: Session, round_ids: Sequence[str]) -> list[list[RunOrder]]:
    """Orders for all stages of these queued rounds, which are locked; nothing is written yet.

    Leaves out rounds that another process dispatched, or dispatches at the same time.
    """
    found = lock_if_free(session, round_ids).values()
    waiting = (
        [_order(current, stage) for stage in current.stages.values() if stage.state == StageState.WAITING]
        for current in found
        if current.state == RoundState.QUEUED
    )
    return [orders for orders in waiting if orders]


def next_order(session: Session, round_id: str, stage_name: str) -> RunOrder | None:
    """An order for the next run of a failed stage; nothing is written yet.

    None when another process dispatched it, or dispatches it at the same time.
    """
    current = lock_if_free(session, [round_id]).get(round_id)
    if current is None or current.state != RoundState.RUNNING:
        return None
    stage = current.stages[stage_name]
    return _order(current, stage) if stage.state == StageState.FAILED else None


def _order(current: LockedRound, stage: Stage) -> RunOrder:
    return RunOrder(
        run_id=new_id(),
        round_id=current.id,
        stage=stage.stage,
        attempt=stage.runs + 1,
        priority=current.priority,
        avoid=tuple(stage.avoid),
        alone=stage.alone,
        first=current.state == RoundState.QUEUED,
    )


def mark_dispatched(session: Session, orders: Sequence[RunOrder]) -> None:
    """queued → running, and waiting or failed → dispatched: insert the runs of these orders."""
    if not orders:
        return
    moment = now(session)
    set_dispatched(session, list({order.round_id: None for order in orders if order.first}), moment)
    add_runs(
        session,
        [
            {
                "id": order.run_id,
                "round_id": order.round_id,
                "stage": order.stage,
                "attempt": order.attempt,
                "dispatched_at": moment,
            }
            for order in orders
        ],
    )


def load_work(session: Session, round_ids: Sequence[str]) -> dict[str, Work]:
    """The stored data that the jobs of these rounds are made of."""
    rows = session.connection().execute(_READ_WORK, {"rounds": list(round_ids)}) if round_ids else ()
    return {round_id: Work(*columns) for round_id, *columns in rows}


def find_order(session: Session, run_id: str) -> RunOrder | None:
    """The order of a stage's present run, to send it again; None for any other run."""
    known = read_run(session, run_id)
    current = lock_round(session, known.round_id) if known is not None else None
    if known is None or current is None:
        return None
    stage = current.stages[known.stage]
    if not stage.waits_for(run_id):
        return None
    return RunOrder(
        run_id, current.id, stage.stage, stage.runs, current.priority, tuple(stage.avoid), stage.alone
    )


def record_results(session: Session, results: Sequence[Result]) -> list[Recorded]:
    """Record results. Only dispatched runs count; the first valid result of a stage is accepted."""
    recorded: dict[int, Recorded] = {}
    left = dict(enumerate(results))
    while left:
        # of one stage one after the other: each decides what the next one finds
        once = {(one.round_id, one.stage): number for number, one in reversed(left.items())}
        now_ = sorted(once.values())
        made = _record_each(session, [left.pop(number) for number in now_])
        recorded.update(zip(now_, made, strict=True))
    return [recorded[number] for number in range(len(results))]


def _record_each(session: Session, results: Sequence[Result]) -> list[Recorded]:
    """Record results of different stages."""
    rounds, run_ids = (one.round_id for one in results), (one.run_id for one in results)
    current, runs = lock_with_runs(session, rounds, run_ids)
    recorded, rows, done = [], {}, []
    for result in results:
        of, run = current.get(result.round_id), runs.get(result.run_id)
        if of is None or run is None or (run.round_id, run.stage) != (of.id, result.stage):
            recorded.append(Recorded("unknown"))
            continue
        stage = of.stages[result.stage]
        outcome = _outcome(run, stage, result)
        if run.state in OPEN:
            prompts.store_prompt(session, result)
            rows[result.run_id] = _row(session, result, outcome)
        if outcome == "accepted":
            done.append((of.id, stage.stage))
            stage = replace(stage, state=StageState.DONE, error=None)
        elif outcome == "failed" and run.state == RunState.DISPATCHED and stage.waits_for(result.run_id):
            stage = _failed(session, of, stage, result)
        current[of.id] = after = replace(of, stages={**of.stages, stage.stage: stage})
        ended = outcome in ("accepted", "failed") and after.complete
        recorded.append(Recorded(outcome, after if ended else None))
    set_runs(session, rows)
    set_stages_done(session, done)
    return recorded


def _outcome(run: RunRow, stage: Stage, result: Result) -> Outcome:
    """The outcome of a result of this run; a late one of an earlier run is accepted if it is the first."""
    if run.state not in OPEN:
        return "duplicate"
    if not result.ok:
        return "failed"
    return "duplicate" if stage.state in OVER else "accepted"


def _row(session: Session, result: Result, outcome: Outcome) -> dict[str, Any]:
    """The columns of a run that ended."""
    how = result.provenance
    states = {"accepted": RunState.DONE, "duplicate": RunState.DUPLICATE, "failed": RunState.FAILED}
    return {
        "state": states[outcome],
        "accepted": outcome == "accepted",
        "machine": how.machine[:40],
        "finished_at": now(session),
        "result": result.model_dump(mode="json", exclude={"prompt"}),
        "error": result.error and result.error[:MAX_ERROR],
        "engine": how.engine[:40],
        "model": how.model[:200],
        "seconds": how.seconds,
        "first_token_s": how.first_token_s,
        "prompt_tokens": how.tokens.prompt,
        "cached_tokens": how.tokens.cached,
        "output_tokens": how.tokens.output,
    }


def _failed(session: Session, current: LockedRound, stage: Stage, result: Result) -> Stage:
    """Record a failed run; returns its stage as it is now."""
    error = result.error or "error"
    dead = _fail(
        session,
        current,
        stage,
        error,
        result.coded,
        _wait(result.retry, stage.tries),
        avoid=_avoid(stage, result),
        alone=False,  # it came to an end, so it kills nobody
    )
    return replace(stage, state=StageState.DEAD if dead else StageState.FAILED, error=error[:MAX_ERROR])


def _wait(retry: Retry, tries: int) -> float | None:
    """Seconds before the next try; None when no retry can help."""
    waits = BACKOFF_S.get(retry)
    return waits[min(max(tries, 1), len(waits)) - 1] if waits else None


def _avoid(stage: Stage, result: Result) -> list[str]:
    """The machines that others are preferred to."""
    failed = result.provenance.machine[:40]
    if result.retry != "elsewhere" or not failed or failed in stage.avoid:
        return stage.avoid
    return [*stage.avoid, failed]


def _fail(
    session: Session,
    current: LockedRound,
    stage: Stage,
    error: str,
    message: Message,
    wait_s: float | None,
    **changed: Any,
) -> bool:
    """Schedule the stage's next try in `wait_s`, or mark it dead (True) when it has no tries left or
    `wait_s` is None.
    """
    again = wait_s is not None and stage.tries < MAX_TRIES and stage.losses < MAX_LOSSES
    set_stage(
        session,
        current.id,
        stage.stage,
        state=StageState.FAILED if again else StageState.DEAD,
        tries=stage.tries,
        not_before=now(session) + timedelta(seconds=wait_s or 0.0) if again else None,
        error=error[:MAX_ERROR],
        message=message,
        **changed,
    )
    return not again


def mark_lost(
    session: Session,
    run_id: str,
    message: Message,
    loss: Loss,
    error: str = MachineLost.code,
    machine: str = "",
) -> str | None:
    """dispatched → lost. Returns the round to combine, if this was its last open stage.

    Only a run that was lost alone counts as a try: of several that were lost together, any may have crashed
    their process. Runs that were lost with others twice get a machine to themselves, which tells them
    apart.
    """
    known = read_run(session, run_id)
    current = lock_round(session, known.round_id) if known is not None else None
    if current is None:
        return None  # a lease from before this database
    run = read_run(session, run_id)
    if run is None or run.state != RunState.DISPATCHED:
        return None
    on = {"machine": machine[:40]} if machine else {}
    set_run(session, run_id, state=RunState.LOST, finished_at=now(session), error=error, **on)
    stage = current.stages[run.stage]
    dead = stage.state in OVER
    if stage.waits_for(run_id):
        losses = stage.losses + (loss != "unbegun")
        tried = replace(
            stage,
            tries=stage.tries - (loss != "alone"),
            losses=losses,
            alone=stage.alone or (loss == "together" and losses >= SUSPECT),
        )
        # another machine can start at once
        changed: dict[str, Any] = {"losses": tried.losses, "alone": tried.alone}
        if machine and error == MachineStalled.code:  # it lives, and would take it again
            changed["avoid"] = [*stage.avoid, machine[:40]]
        dead = _fail(session, current, tried, error, message, wait_s=0.0, **changed)
    others = (one for one in current.stages.values() if one.stage != stage.stage)
    return current.id if dead and all(one.state in OVER for one in others) else None
