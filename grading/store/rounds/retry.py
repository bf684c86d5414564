"""Dead rounds: listing them, and retrying them with new tries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import delete, false, func, select
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.messages import Message
from grading.domain.round_states import RoundState, StageState
from grading.store import outbox
from grading.store.audit import write_audit
from grading.store.bulk import chunks
from grading.store.database import now
from grading.store.rounds.locking import LockedRound, lock_round, set_round, set_stage
from grading.store.tables import Assignment, Course, Grade, Round, RoundStage, Run, Submission, User

DEAD_STATES = (RoundState.PARTIAL, RoundState.FAILED)


class DeadStage(Value):
    """A dead stage."""

    stage: str
    error: str
    message: Message
    """For the operator."""
    runs: int
    machine: str | None
    """The machine of its last failed run."""


class DeadRound(Value):
    """A round without a complete result whose stages have no tries left."""

    round_id: str
    submission_id: str
    number: int
    course_id: int
    course: str
    assignment: str
    assignment_title: str
    student: str
    state: str
    failure: Message
    finished_at: datetime | None
    stages: tuple[DeadStage, ...]


def list_dead_rounds(
    session: Session, course_ids: frozenset[int] | None = None, limit: int | None = 200
) -> list[DeadRound]:
    """Current dead rounds of these courses (None: all), the latest first."""
    query = (
        # not whole rows: what students wrote is large
        select(
            Round.id.label("round_id"),
            Submission.id.label("submission_id"),
            Submission.number,
            Course.id.label("course_id"),
            Course.slug.label("course"),
            Assignment.slug.label("assignment"),
            Assignment.title.label("assignment_title"),
            User.name.label("student"),
            Round.state,
            Round.failure,
            Round.finished_at,
        )
        .select_from(Round)
        .join(Submission, Submission.id == Round.submission_id)
        .join(Assignment, Assignment.id == Submission.assignment_id)
        .join(Course, Course.id == Assignment.course_id)
        .join(User, User.id == Submission.student_id)
        .where(Round.current, Round.state.in_(DEAD_STATES))
        .order_by(Round.finished_at.desc(), Round.id)
        .limit(limit)
    )
    if course_ids is not None:
        query = query.where(Course.id.in_(course_ids) if course_ids else false())
    rows = session.execute(query).all()
    dead: dict[str, list[DeadStage]] = {}
    for some in chunks([row.round_id for row in rows]):
        dead |= _dead_stages(session, some)
    return [DeadRound(**row._mapping, stages=tuple(dead.get(row.round_id, ()))) for row in rows]


def count_dead_rounds(session: Session, course_ids: frozenset[int] | None = None) -> int:
    """Number of dead rounds in these courses (None: all)."""
    query = select(func.count()).where(Round.current, Round.state.in_(DEAD_STATES))
    if course_ids is not None:
        query = query.where(Round.course_id.in_(course_ids) if course_ids else false())
    return session.execute(query).scalar_one()


def _dead_stages(session: Session, round_ids: Sequence[str]) -> dict[str, list[DeadStage]]:
    query = (
        select(RoundStage, Run.machine)
        .outerjoin(Run, Run.id == RoundStage.run_id)
        .where(RoundStage.round_id.in_(round_ids), RoundStage.state == StageState.DEAD)
        .order_by(RoundStage.stage)
    )
    found: dict[str, list[DeadStage]] = {}
    for stage, machine in session.execute(query):
        dead = DeadStage(
            stage=stage.stage,
            error=stage.error or "error",
            message=stage.message,
            runs=stage.runs,
            machine=machine,
        )
        found.setdefault(stage.round_id, []).append(dead)
    return found


def retry_round(session: Session, round_id: str, actor: str) -> bool:
    """partial, failed → running or received, with new tries. False when the round is not dead.

    Stages that are done stay done. The incomplete grade is deleted; the audit records its points.
    """
    current = lock_round(session, round_id)
    if current is None or current.state not in DEAD_STATES or not _is_current(session, round_id):
        return False
    detail: dict[str, Any] = {"was": current.state, "stages": _begin_again(session, current)}
    grade = delete(Grade).where(Grade.round_id == round_id)
    gone = session.execute(grade.returning(Grade.points_so_far, Grade.released_at, Grade.released_by)).first()
    if gone is not None:
        detail["points_so_far"], detail["released"] = gone.points_so_far, gone.released_at is not None
        if gone.released_at is None and gone.released_by is not None:
            # who took it back decides about the grade that comes, too
            set_round(session, round_id, withdrawn_by=gone.released_by)
    write_audit(session, actor, "round.replay", f"submission:{current.submission_id}", detail)
    return True


def _is_current(session: Session, round_id: str) -> bool:
    return bool(session.execute(select(Round.current).where(Round.id == round_id)).scalar_one())


def _begin_again(session: Session, current: LockedRound) -> list[str]:
    """Reset the round and its dead stages; returns the stages' names."""
    # nobody sits and waits for it any more; those who do go first
    under_way = {"failure": Message(), "finished_at": None, "priority": "batch"}
    for name in current.stages:
        set_stage(session, current.id, name, priority="batch")
    if all(stage.state == StageState.WAITING for stage in current.stages.values()):
        # it could not be prepared; perhaps this version can
        set_round(session, current.id, state=RoundState.RECEIVED, **under_way)
        # retention removes announcements that were sent
        if not outbox.reopen(session, "prepare", current.id):
            outbox.add(session, "prepare", current.id, {})
        return []
    set_round(session, current.id, state=RoundState.RUNNING, **under_way)
    dead = [name for name, stage in current.stages.items() if stage.state == StageState.DEAD]
    fresh = {"tries": 0, "losses": 0, "avoid": [], "not_before": now(session)}
    for name in dead:
        set_stage(session, current.id, name, state=StageState.FAILED, **fresh)
    return dead


def current_rounds(session: Session, submission_ids: Iterable[str]) -> dict[str, str]:
    """The current round of each of these submissions."""
    query = select(Round.submission_id, Round.id).where(
        Round.current, Round.submission_id.in_(list(submission_ids))
    )
    return {row.submission_id: row.id for row in session.execute(query)}
