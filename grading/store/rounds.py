"""The life of a round in SQL: prepared, dispatched, recorded, lost, finished.

Every step is conditional and holds the round's lock, so that doing it twice, late or in another order changes
nothing. Plain statements, not mapped objects: this is the busiest code of the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, ClassVar, Literal

from sqlalchemy import Table, bindparam, select, update
from sqlalchemy.orm import Session

from grading.model import Report, Result, RoundState, RunState, StageState
from grading.store.database import now
from grading.store.tables import Assignment, Base, Outbox, Round, Submission, new_id

MAX_TRIES = 3
BACKOFF_S = (2.0, 15.0)
"""Waits before the second and the third try."""
MAX_SENTENCE = 2000
OVER = (StageState.DONE, StageState.DEAD)

_ROUNDS: Table = Base.metadata.tables["rounds"]
_STAGES: Table = Base.metadata.tables["round_stages"]
_RUNS: Table = Base.metadata.tables["runs"]
_GRADES: Table = Base.metadata.tables["grades"]
_OUTBOX: Table = Base.metadata.tables["outbox"]


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


@dataclass(frozen=True)
class Stage:
    """One stage of a locked round."""

    stage: str
    state: str
    tries: int
    runs: int
    run_id: str | None
    message: str


@dataclass(frozen=True)
class LockedRound:
    """A round, locked until the transaction ends, and its stages as they are then."""

    id: str
    submission_id: str
    rubric_version_id: int
    state: str
    priority: str
    chord_open: bool
    stages: Mapping[str, Stage]

    COLUMNS: ClassVar = ("id", "submission_id", "rubric_version_id", "state", "priority", "chord_open")

    def complete(self, but: str = "") -> bool:
        """Whether no stage, leaving out the one named, is under way any more."""
        return all(stage.state in OVER for stage in self.stages.values() if stage.stage != but)


# made once: putting a statement together costs more than running it
_LOCK = (
    select(*(_ROUNDS.c[name] for name in LockedRound.COLUMNS))
    .where(_ROUNDS.c.id == bindparam("at_round"))
    .with_for_update()
)
_READ_STAGES = select(*(_STAGES.c[field.name] for field in fields(Stage))).where(
    _STAGES.c.round_id == bindparam("at_round")
)
_READ_RUN = select(_RUNS.c.round_id, _RUNS.c.stage, _RUNS.c.state).where(_RUNS.c.id == bindparam("at_run"))
_UPDATE_ROUND = _ROUNDS.update().where(_ROUNDS.c.id == bindparam("at_round"))
_UPDATE_STAGE = _STAGES.update().where(
    _STAGES.c.round_id == bindparam("at_round"), _STAGES.c.stage == bindparam("at_stage")
)
_UPDATE_RUN = _RUNS.update().where(_RUNS.c.id == bindparam("at_run"))
_INSERT_RUN = _RUNS.insert()
_READ_ACCEPTED = select(_RUNS.c.result).where(_RUNS.c.round_id == bindparam("at_round"), _RUNS.c.accepted)


def locked(session: Session, round_id: str) -> LockedRound | None:
    """The round, locked; its stages are read after the lock is there, a join would be older than it."""
    at = {"at_round": round_id}
    row = session.execute(_LOCK, at).one_or_none()
    if row is None:
        return None
    stages = session.execute(_READ_STAGES, at)
    return LockedRound(**row._mapping, stages={stage.stage: Stage(*stage) for stage in stages})


def _set_round(session: Session, round_id: str, **values: Any) -> None:
    session.execute(_UPDATE_ROUND, {"at_round": round_id, **values})


def _set_stage(session: Session, round_id: str, stage: str, **values: Any) -> None:
    session.execute(_UPDATE_STAGE, {"at_round": round_id, "at_stage": stage, **values})


def _set_run(session: Session, run_id: str, **values: Any) -> None:
    session.execute(_UPDATE_RUN, {"at_run": run_id, **values})


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
        .values(state=RoundState.FAILED, failure=_storable(sentence), finished_at=moment)
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
    _set_round(session, round_id, state=RoundState.RUNNING, dispatched_at=now(session), chord_open=True)
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
    _set_round(session, round_id, chord_open=False)
    return _order(session, current, stage)


def _order(session: Session, current: LockedRound, stage: Stage) -> RunOrder:
    order = RunOrder(new_id(), current.id, stage.stage, stage.runs + 1, current.priority)
    session.execute(
        _INSERT_RUN,
        {
            "id": order.run_id,
            "round_id": order.round_id,
            "stage": order.stage,
            "attempt": order.attempt,
            "state": RunState.DISPATCHED,
            "accepted": False,
            "dispatched_at": now(session),
        },
    )
    _set_stage(
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
    run = session.execute(_READ_RUN, {"at_run": result.run_id}).one_or_none()
    if current is None or run is None or (run.round_id, run.stage) != (current.id, result.stage):
        return Recorded("unknown")
    if run.state not in (RunState.DISPATCHED, RunState.LOST):
        return Recorded("duplicate")
    stage = current.stages[result.stage]
    counts = run.state == RunState.DISPATCHED and stage.run_id == result.run_id
    accepted = result.ok and stage.state not in OVER
    _set_run(
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
        _set_stage(session, current.id, stage.stage, state=StageState.DONE, error=None, message="")
        return Recorded("accepted", combine=_ready(current, stage.stage))
    if result.ok:
        return Recorded("duplicate")
    dead = counts and _fail(session, current, stage, result.error or "error", result.message, result.retry)
    return Recorded("failed", combine=dead and _ready(current, stage.stage))


def _fail(
    session: Session, current: LockedRound, stage: Stage, error: str, message: str, retry: bool
) -> bool:
    """The stage waits for its next try, or is dead (True)."""
    again = retry and stage.tries < MAX_TRIES
    wait = BACKOFF_S[min(stage.tries, len(BACKOFF_S)) - 1] if stage.tries else 0.0
    _set_stage(
        session,
        current.id,
        stage.stage,
        state=StageState.FAILED if again else StageState.DEAD,
        not_before=now(session) + timedelta(seconds=wait) if again else None,
        error=error[:40],
        message=_storable(message),
    )
    return not again


def _storable(text: str) -> str:
    """A sentence any database takes: PostgreSQL refuses NUL, and machines are not trusted with length."""
    return text.replace("\0", "")[:MAX_SENTENCE]


def _ready(current: LockedRound, ended: str) -> bool:
    """Whether the round can be combined, now that the stage `ended` is over, and no chord will do it."""
    return not current.chord_open and current.complete(but=ended)


def lose(session: Session, run_id: str, message: str, *, started: bool) -> str | None:
    """dispatched → lost. A run that no machine had `started` costs no try. Returns the round to combine."""
    at = {"at_run": run_id}
    known = session.execute(_READ_RUN, at).one_or_none()
    current = locked(session, known.round_id) if known is not None else None
    if current is None:
        return None  # a lease from before this database
    run = session.execute(_READ_RUN, at).one()
    if run.state != RunState.DISPATCHED:
        return None
    _set_run(session, run_id, state=RunState.LOST, finished_at=now(session), error="machine_lost")
    _set_round(session, current.id, chord_open=False)
    stage = current.stages[run.stage]
    dead = stage.state in OVER
    if stage.run_id == run_id and stage.state == StageState.DISPATCHED:
        tried = stage if started else replace(stage, tries=stage.tries - 1)
        dead = _fail(session, current, tried, "machine_lost", message, retry=True)
        # another machine can start at once
        _set_stage(session, current.id, stage.stage, tries=tried.tries, not_before=now(session))
    return current.id if dead and current.complete(but=stage.stage) else None


def close_chord(session: Session, round_id: str) -> LockedRound | None:
    """The chord's body has come. The round, locked, when it can be combined now."""
    current = locked(session, round_id)
    if current is None or RoundState(current.state).final:
        return None
    _set_round(session, round_id, chord_open=False)
    return current if current.complete() and current.state == RoundState.RUNNING else None


def to_combine(session: Session, round_id: str) -> tuple[dict[str, Any], str]:
    """What the round was prepared to, and when its assignment releases grades."""
    query = (
        select(Round.prepared, Assignment.release)
        .join(Submission, Submission.id == Round.submission_id)
        .join(Assignment, Assignment.id == Submission.assignment_id)
        .where(Round.id == round_id)
    )
    row = session.execute(query).one()
    return row.prepared or {}, row.release


def accepted_results(session: Session, round_id: str) -> list[Result]:
    """The result that counts of each stage that has one."""
    rows = session.execute(_READ_ACCEPTED, {"at_round": round_id}).scalars()
    return [Result.model_validate(row) for row in rows]


def finish(session: Session, current: LockedRound, report: Report, *, release: bool) -> None:
    """running → graded, partial or failed, with its grade and the news of it for the outside."""
    moment = now(session)
    why = "" if report.status == RoundState.GRADED else " ".join(dict.fromkeys(report.failures.values()))
    _set_round(session, current.id, state=report.status, finished_at=moment, failure=why)
    session.execute(
        _GRADES.insert().values(
            round_id=current.id,
            submission_id=current.submission_id,
            points=report.points,
            points_so_far=report.points_so_far,
            max_points=report.max_points,
            held=report.held,
            report=report.model_dump(mode="json"),
            created_at=moment,
            released_at=moment if release else None,
        )
    )
    session.execute(
        _OUTBOX.insert().values(
            kind="event",
            key=f"graded:{current.id}",
            payload={"type": f"submission.{report.status}", "submission": current.submission_id},
            created_at=moment,
            not_before=moment,
            tries=0,
            error="",
        )
    )


def give_up(session: Session, current: LockedRound, sentence: str) -> None:
    """running → failed, without a grade: no report can be made of what there is."""
    _set_round(
        session, current.id, state=RoundState.FAILED, finished_at=now(session), failure=_storable(sentence)
    )
