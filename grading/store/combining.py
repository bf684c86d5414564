"""The end of a round in SQL: its results put together into a report and a grade."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Table, select
from sqlalchemy.orm import Session

from grading.jobs import Result
from grading.messages import GRADED
from grading.model import RoundState, StageState
from grading.outcome import Report
from grading.store import carrying, mails, outbox, replacing
from grading.store.database import now
from grading.store.grades import by_itself
from grading.store.locking import LockedRound, locked, read_accepted, set_round
from grading.store.lti.wake import wake
from grading.store.rounds import storable
from grading.store.settling import at_the_end
from grading.store.tables import Assignment, Base, Grade, Round, RoundStage, Submission

_GRADES: Table = Base.metadata.tables["grades"]


def close_chord(session: Session, round_id: str) -> LockedRound | None:
    """The chord's body has come. The round, locked, when it can be combined now."""
    current = locked(session, round_id)
    if current is None or RoundState(current.state).final:
        return None
    set_round(session, round_id, chord_open=False)
    return current if current.complete() and current.state == RoundState.RUNNING else None


def to_combine(session: Session, round_id: str) -> tuple[dict[str, Any], bool]:
    """What the round was prepared to, and whether its assignment releases grades by itself now."""
    query = (
        select(Round.prepared, Assignment.release, Assignment.release_at)
        .join(Submission, Submission.id == Round.submission_id)
        .join(Assignment, Assignment.id == Submission.assignment_id)
        .where(Round.id == round_id)
    )
    row = session.execute(query).one()
    return row.prepared or {}, by_itself(row.release, row.release_at, now(session))


def accepted_results(session: Session, round_id: str) -> list[Result]:
    """The result that counts of each stage that has one."""
    return [Result.model_validate(row) for row in read_accepted(session, round_id)]


def dead_codes(session: Session, round_id: str) -> dict[str, str]:
    """The error code of each stage that is given up."""
    query = select(RoundStage.stage, RoundStage.error)
    query = query.where(RoundStage.round_id == round_id, RoundStage.state == StageState.DEAD)
    return {row.stage: row.error or "error" for row in session.execute(query)}


def finish(session: Session, current: LockedRound, report: Report, *, release: bool) -> None:
    """running → graded, partial or failed, with its grade and the news of it for the outside."""
    moment = now(session)
    # whoever took the grading before it back decides about this one, too
    withdrawn_by = _withdrawn_by(session, current)
    release = release and withdrawn_by is None
    counts = at_the_end(session, current.id, current.submission_id, report)
    why = "" if report.status == RoundState.GRADED else " ".join(dict.fromkeys(report.failures.values()))
    set_round(session, current.id, state=report.status, finished_at=moment, failure=why)
    session.execute(
        _GRADES.insert().values(
            round_id=current.id,
            submission_id=current.submission_id,
            points=counts.points,
            points_so_far=counts.report.points_so_far,
            max_points=report.max_points,
            final_points=counts.final_points,
            adjustment=counts.adjustment,
            credit=counts.credit,
            held=report.held,
            report=report.model_dump(mode="json"),
            criterion_points={one.criterion: one.points for one in counts.report.criteria},
            created_at=moment,
            released_at=moment if release and current.current else None,
            released_by=withdrawn_by if current.current else None,
        )
    )
    if not current.current:
        # of a dry run, or of one that another replaced: nobody hears of it
        replacing.came_in(session, current.id)
        return
    carrying.go_on(session, current.id, current.submission_id)
    # after a replay there is news again when the outcome is another
    _tell(session, current, report.status)
    if release:
        mails.ready(session, [current.id])
        wake(session, [current.submission_id])
        news = {"type": "grade.released", "submission": current.submission_id}
        outbox.put(session, "event", f"released:{current.id}", news)


def _tell(session: Session, current: LockedRound, state: str) -> None:
    """The news for the outside; once for each outcome of a round."""
    news = {"type": f"submission.{GRADED[state]}", "submission": current.submission_id}
    outbox.put(session, "event", f"{state}:{current.id}", news)


def _withdrawn_by(session: Session, current: LockedRound) -> int | None:
    """Who took back what students had last seen of this hand-in, if somebody did."""
    replayed = session.scalar(select(Round.withdrawn_by).where(Round.id == current.id))
    if replayed is not None:
        return replayed
    query = (
        select(Grade.released_at, Grade.released_by)
        .join(Round, Round.id == Grade.round_id)
        .where(Grade.submission_id == current.submission_id)
        .where(Grade.released_at.is_not(None) | Grade.released_by.is_not(None))
        .order_by(Round.number.desc())
    )
    last = session.execute(query.limit(1)).first()
    return last.released_by if last is not None and last.released_at is None else None


def give_up(session: Session, current: LockedRound, sentence: str) -> None:
    """running → failed, without a grade: no report can be made of what there is."""
    set_round(
        session, current.id, state=RoundState.FAILED, finished_at=now(session), failure=storable(sentence)
    )
    if current.current:
        _tell(session, current, RoundState.FAILED)
