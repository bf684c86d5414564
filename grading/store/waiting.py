"""What waits in SQL: to be prepared, to be sent, to be sent again, to be combined."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, case, func, select
from sqlalchemy.orm import Session

from grading.model import RoundState, RunState, StageState
from grading.store.database import now
from grading.store.tables import Round, RoundStage, Run, UtcDateTime

# made once: putting a statement together costs more than running it
_NEXT_QUEUED = (
    select(Round.id)
    .where(Round.state == RoundState.QUEUED)
    .order_by(
        case((Round.priority == "batch", 1), else_=0),
        func.row_number().over(partition_by=Round.student_id, order_by=Round.created_at),
        func.row_number().over(partition_by=Round.course_id, order_by=Round.created_at),
        Round.created_at,
    )
    .limit(bindparam("most"))
)
_DUE_AGAIN = (
    select(RoundStage.round_id, RoundStage.stage)
    .join(Round, Round.id == RoundStage.round_id)
    .where(
        RoundStage.state == StageState.FAILED,
        Round.state == RoundState.RUNNING,
        RoundStage.stage.in_(bindparam("stages", expanding=True)),
        RoundStage.not_before <= bindparam("moment", type_=UtcDateTime()),
    )
    .order_by(RoundStage.not_before)
    .limit(bindparam("most"))
)


def next_queued(session: Session, limit: int) -> list[str]:
    """Queued rounds in a fair order: interactive first, then everyone's first before anyone's second."""
    return list(session.execute(_NEXT_QUEUED, {"most": limit}).scalars())


def due_again(session: Session, stages: Sequence[str], limit: int) -> list[tuple[str, str]]:
    """(round, stage) pairs of these stages whose next try is due."""
    values = {"stages": list(stages), "moment": now(session), "most": limit}
    return [(row.round_id, row.stage) for row in session.execute(_DUE_AGAIN, values)]


def in_flight(session: Session, limit: int = 5000) -> list[tuple[str, float]]:
    """Dispatched runs and their age in seconds, the oldest first."""
    moment = now(session)
    query = select(Run.id, Run.dispatched_at).where(Run.state == RunState.DISPATCHED)
    query = query.order_by(Run.dispatched_at).limit(limit)
    return [(row.id, (moment - row.dispatched_at).total_seconds()) for row in session.execute(query)]


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
