"""The life of a round in SQL: prepared, dispatched, recorded, lost, finished. Every step is conditional, so
that doing it twice, late or in another order changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from sqlalchemy import ColumnElement, case, func, select, update
from sqlalchemy.orm import Session, selectinload

from grading.model import Report, Result, RoundState, RunState, StageState
from grading.store.database import now
from grading.store.tables import Assignment, Grade, Outbox, Round, RoundStage, Run, Submission, new_id

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


def locked(session: Session, round_id: str) -> Round | None:
    """The round with its stages, locked until the transaction ends."""
    query = (
        select(Round)
        .where(Round.id == round_id)
        .options(selectinload(Round.stages))  # read after the lock is there; a join would be older than it
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    return session.execute(query).scalar_one_or_none()


def unprepared(session: Session, older_than_s: float, limit: int) -> list[str]:
    """Received rounds whose announcement seems lost."""
    cutoff = now(session) - timedelta(seconds=older_than_s)
    query = (
        select(Round.id)
        .where(Round.state == RoundState.RECEIVED, Round.created_at <= cutoff)
        .order_by(Round.created_at)
        .limit(limit)
    )
    return list(session.execute(query).scalars())


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


def next_queued(session: Session, limit: int) -> list[str]:
    """Queued rounds in a fair order: interactive first, then everyone's first before anyone's second."""
    by_student = func.row_number().over(partition_by=Round.student_id, order_by=Round.created_at)
    by_course = func.row_number().over(partition_by=Round.course_id, order_by=Round.created_at)
    query = (
        select(Round.id)
        .where(Round.state == RoundState.QUEUED)
        .order_by(_batch_last(), by_student, by_course, Round.created_at)
        .limit(limit)
    )
    return list(session.execute(query).scalars())


def _batch_last() -> ColumnElement[int]:
    return case((Round.priority == "batch", 1), else_=0)


def begin(session: Session, round_id: str) -> list[RunOrder]:
    """queued → running: one run for each waiting stage. Empty when somebody else began it."""
    current = locked(session, round_id)
    if current is None or current.state != RoundState.QUEUED:
        return []
    moment = now(session)
    current.state, current.dispatched_at, current.chord_open = RoundState.RUNNING, moment, True
    return [_order(session, current, stage) for stage in current.stages if stage.state == StageState.WAITING]


def due_again(session: Session, stages: Sequence[str], limit: int) -> list[tuple[str, str]]:
    """(round, stage) pairs of these stages whose next try is due."""
    query = (
        select(RoundStage.round_id, RoundStage.stage)
        .where(
            RoundStage.state == StageState.FAILED,
            RoundStage.stage.in_(stages),
            RoundStage.not_before <= now(session),
        )
        .order_by(RoundStage.not_before)
        .limit(limit)
    )
    return [(row.round_id, row.stage) for row in session.execute(query)]


def begin_again(session: Session, round_id: str, stage_name: str) -> RunOrder | None:
    """failed → dispatched: the next run of one stage. None when somebody else began it."""
    current = locked(session, round_id)
    if current is None or current.state != RoundState.RUNNING:
        return None
    stage = next(s for s in current.stages if s.stage == stage_name)
    if stage.state != StageState.FAILED:
        return None
    current.chord_open = False
    return _order(session, current, stage)


def _order(session: Session, current: Round, stage: RoundStage) -> RunOrder:
    run_id = new_id()
    stage.runs += 1
    session.add(
        Run(
            id=run_id,
            round_id=current.id,
            stage=stage.stage,
            attempt=stage.runs,
            state=RunState.DISPATCHED,
            dispatched_at=now(session),
        )
    )
    stage.state, stage.run_id, stage.not_before = StageState.DISPATCHED, run_id, None
    stage.tries += 1
    return RunOrder(run_id, current.id, stage.stage, stage.runs, current.priority)


def record(session: Session, result: Result) -> Recorded:
    """Write a result down. Only runs that were dispatched count; the first valid result of a stage wins."""
    current = locked(session, result.round_id)
    run = session.get(Run, result.run_id)
    if current is None or run is None or (run.round_id, run.stage) != (current.id, result.stage):
        return Recorded("unknown")
    if run.state not in (RunState.DISPATCHED, RunState.LOST):
        return Recorded("duplicate")
    stage = next(s for s in current.stages if s.stage == run.stage)
    was_current = run.state == RunState.DISPATCHED and stage.run_id == run.id
    run.machine, run.finished_at = result.provenance.machine[:40], now(session)
    run.result, run.error = result.model_dump(mode="json"), result.error and result.error[:40]
    if result.ok and stage.state not in (StageState.DONE, StageState.DEAD):
        run.state, run.accepted = RunState.DONE, True
        stage.state, stage.error, stage.message = StageState.DONE, None, ""
        return Recorded("accepted", combine=_ready(current))
    if result.ok:
        run.state = RunState.DUPLICATE
        return Recorded("duplicate")
    run.state = RunState.FAILED
    if was_current:
        _failed(session, stage, result.error or "error", result.message, retry=result.retry)
    return Recorded("failed", combine=was_current and _ready(current))


def _failed(session: Session, stage: RoundStage, error: str, message: str, *, retry: bool) -> None:
    stage.error, stage.message = error[:40], _storable(message)
    if retry and stage.tries < MAX_TRIES:
        wait = BACKOFF_S[min(stage.tries, len(BACKOFF_S)) - 1] if stage.tries else 0.0
        stage.state, stage.not_before = StageState.FAILED, now(session) + timedelta(seconds=wait)
    else:
        stage.state, stage.not_before = StageState.DEAD, None


def _storable(text: str) -> str:
    """A sentence any database takes: PostgreSQL refuses NUL, and machines are not trusted with length."""
    return text.replace("\0", "")[:MAX_SENTENCE]


def _ready(current: Round) -> bool:
    return complete(current) and not current.chord_open


def complete(current: Round) -> bool:
    """Whether no stage of the round is under way any more."""
    return all(stage.state in (StageState.DONE, StageState.DEAD) for stage in current.stages)


def in_flight(session: Session, limit: int = 5000) -> list[tuple[str, float]]:
    """Dispatched runs and their age in seconds."""
    moment = now(session)
    query = select(Run.id, Run.dispatched_at).where(Run.state == RunState.DISPATCHED).limit(limit)
    return [(row.id, (moment - row.dispatched_at).total_seconds()) for row in session.execute(query)]


def lose(session: Session, run_id: str, message: str, *, started: bool) -> str | None:
    """dispatched → lost. A run that no machine had `started` costs no try. Returns the round to combine."""
    round_id = session.execute(select(Run.round_id).where(Run.id == run_id)).scalar_one_or_none()
    current = locked(session, round_id) if round_id is not None else None
    if current is None:
        return None  # a lease from before this database
    run = session.get_one(Run, run_id, populate_existing=True)
    stage = next(s for s in current.stages if s.stage == run.stage)
    if run.state != RunState.DISPATCHED:
        return None
    run.state, run.finished_at, run.error = RunState.LOST, now(session), "machine_lost"
    current.chord_open = False
    if stage.run_id == run.id and stage.state == StageState.DISPATCHED:
        stage.tries -= 0 if started else 1
        _failed(session, stage, "machine_lost", message, retry=True)
        if stage.state == StageState.FAILED:
            stage.not_before = now(session)  # another machine can start at once
    return current.id if complete(current) else None


def close_chord(session: Session, round_id: str) -> Round | None:
    """The chord's body has come. The round, locked, when it can be combined now."""
    current = locked(session, round_id)
    if current is None or RoundState(current.state).final:
        return None
    current.chord_open = False
    return current if complete(current) and current.state == RoundState.RUNNING else None


def forgotten(session: Session, limit: int) -> list[str]:
    """Running rounds with no stage under way: their chord's body was lost."""
    open_stage = (
        select(RoundStage.round_id)
        .where(
            RoundStage.round_id == Round.id,
            RoundStage.state.not_in((StageState.DONE, StageState.DEAD)),
        )
        .exists()
    )
    query = select(Round.id).where(Round.state == RoundState.RUNNING, ~open_stage).limit(limit)
    return list(session.execute(query).scalars())


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
    query = select(Run.result).where(Run.round_id == round_id, Run.accepted)
    return [Result.model_validate(row) for row in session.execute(query).scalars()]


def finish(session: Session, current: Round, report: Report, *, release: bool) -> Grade:
    """running → graded, partial or failed, with its grade and the news of it for the outside."""
    moment = now(session)
    current.state, current.finished_at, current.failure = report.status, moment, ""
    if report.status != RoundState.GRADED:
        current.failure = " ".join(dict.fromkeys(report.failures.values()))
    grade = Grade(
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
    session.add(grade)
    session.add(
        Outbox(
            kind="event",
            key=f"graded:{current.id}",
            payload={"type": f"submission.{report.status}", "submission": current.submission_id},
            created_at=moment,
            not_before=moment,
        )
    )
    session.flush()
    return grade


def give_up(session: Session, current: Round, sentence: str) -> None:
    """running → failed, without a grade: no report can be made of what there is."""
    current.state, current.finished_at = RoundState.FAILED, now(session)
    current.failure = _storable(sentence)


def still_open(session: Session, round_ids: Sequence[str]) -> int:
    """How many of these rounds are not final."""
    final = [state for state in RoundState if state.final]
    query = select(func.count()).where(Round.id.in_(round_ids), Round.state.not_in(final))
    return session.execute(query).scalar_one()
