"""Finishing a round: the results of its stages become a report and a grade."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, select
from sqlalchemy.orm import Session

from grading.domain.jobs import Result
from grading.domain.lateness import LateRule, lateness, own_due
from grading.domain.messages import Message
from grading.domain.report import Report
from grading.domain.round_states import RoundState, StageState
from grading.domain.shared_messages import sentences
from grading.integrations.events import GRADED
from grading.scoring import settled
from grading.store import outbox
from grading.store.change_tracking import mark_assignment_changed
from grading.store.database import now
from grading.store.experiments import apply
from grading.store.grades.final_score import list_changes
from grading.store.grades.release import is_automatic
from grading.store.learning_platforms import grade_changed
from grading.store.review import carry_over
from grading.store.rounds.locking import LockedRound, lock_round, read_accepted, set_round
from grading.store.submissions import mail_notifications
from grading.store.tables import (
    Assignment,
    Base,
    Change,
    Extension,
    Grade,
    Round,
    Submission,
)

# made once: putting a statement together costs more than running it
_INSERT_GRADE = Base.metadata.tables["grades"].insert()
_ENDING = (
    select(
        *(getattr(Round, name) for name in ("prepared", "withdrawn_by", "number", "course_id")),
        Submission.assignment_id,
        Submission.created_at,
        *(getattr(Assignment, name) for name in ("release", "release_at", "due_at", "late")),
        Extension.due_at.label("own"),
        select(Change.id).where(Change.submission_id == Submission.id).exists().label("changed"),
        mail_notifications.recipients_query(Round.id == bindparam("at_round")).exists().label("wanted"),
    )
    .join(Submission, Submission.id == Round.submission_id)
    .join(Assignment, Assignment.id == Submission.assignment_id)
    .outerjoin(
        Extension,
        and_(
            Extension.assignment_id == Submission.assignment_id,
            Extension.student_id == Submission.student_id,
        ),
    )
    .where(Round.id == bindparam("at_round"))
)
_LAST_SEEN = (
    select(Grade.released_at, Grade.released_by)
    .join(Round, Round.id == Grade.round_id)
    .where(Grade.submission_id == bindparam("at_submission"))
    .where(Grade.released_at.is_not(None) | Grade.released_by.is_not(None))
    .order_by(Round.number.desc())
    .limit(1)
)


def lock_complete(session: Session, round_id: str) -> LockedRound | None:
    """The round, locked, if all its stages have ended and it is running, else None."""
    current = lock_round(session, round_id)
    return current if current is not None and current.complete else None


@dataclass(frozen=True)
class RoundEnd:
    """What a round's end depends on beside the results of its stages."""

    prepared: Mapping[str, Any]
    by_itself: bool
    """Its assignment releases grades automatically now."""
    credit: float
    """Share of its points that the submission keeps."""
    changed: bool
    """A person changed a grade of the submission."""
    wanted: bool
    """Somebody wants mail about the result."""
    withdrawn_by: int | None
    """Id of the user who had withdrawn its grade when the round was retried."""
    number: int
    course_id: int
    assignment_id: int


def load_round_end(session: Session, round_id: str) -> RoundEnd:
    """Load all of it in one query."""
    row = session.connection().execute(_ENDING, {"at_round": round_id}).one()
    due = own_due(row.due_at, row.own)
    return RoundEnd(
        prepared=row.prepared or {},
        by_itself=is_automatic(row.release, row.release_at, now(session)),
        credit=lateness(row.created_at, due, LateRule.model_validate(row.late or {})).credit,
        changed=row.changed,
        wanted=row.wanted,
        withdrawn_by=row.withdrawn_by,
        number=row.number,
        course_id=row.course_id,
        assignment_id=row.assignment_id,
    )


def accepted_results(session: Session, round_id: str) -> list[Result]:
    """The accepted result of each stage that has one."""
    return [Result.model_validate(row) for row in read_accepted(session, round_id)]


def dead_codes(current: LockedRound) -> dict[str, str]:
    """The error code of each dead stage."""
    return {
        name: stage.error or "error"
        for name, stage in current.stages.items()
        if stage.state == StageState.DEAD
    }


def finish_round(
    session: Session, current: LockedRound, report: Report, end: RoundEnd, *, release: bool
) -> None:
    """running → graded, partial or failed: store the grade and add outbox rows about it."""
    moment = now(session)
    # whoever took the grading before it back decides about this one, too
    withdrawn_by = _withdrawn_by(session, current, end)
    release = release and withdrawn_by is None
    changes = list_changes(session, current.id) if end.changed else []
    counts = settled(report, changes, end.credit)
    failed = () if report.status == RoundState.GRADED else tuple(report.failed.values())
    set_round(session, current.id, state=report.status, finished_at=moment, failure=sentences(failed))
    grade = {
        "round_id": current.id,
        "submission_id": current.submission_id,
        "points": counts.points,
        "points_so_far": counts.report.points_so_far,
        "max_points": report.max_points,
        "final_points": counts.final_points,
        "adjustment": counts.adjustment,
        "credit": counts.credit,
        "held": report.held,
        "report": report.model_dump(mode="json"),
        "criterion_points": {one.criterion: one.points for one in counts.report.criteria},
        "created_at": moment,
        "released_at": moment if release and current.current else None,
        "released_by": withdrawn_by if current.current else None,
    }
    session.connection().execute(_INSERT_GRADE, grade)
    mark_assignment_changed(session, end.course_id, end.assignment_id)
    if not current.current:
        # of a dry run, or replaced by a newer round: no events
        apply.apply_rerun(session, current.id)
        return
    if end.changed:
        carry_over.carry_to_round(session, current.id, current.submission_id)
    _add_events(session, current, report, end, release=release)


def _add_events(
    session: Session, current: LockedRound, report: Report, end: RoundEnd, *, release: bool
) -> None:
    """Add outbox rows about the outcome; after a retry again where the outcome is another one."""
    news = {f"{report.status}:{current.id}": f"submission.{GRADED[report.status]}"}
    if release:
        if end.wanted:
            mail_notifications.add_result_letters(session, [current.id])
        grade_changed(session, [current.submission_id])
        news[f"released:{current.id}"] = "grade.released"
    events = {key: {"type": kind, "submission": current.submission_id} for key, kind in news.items()}
    outbox.add_all(session, "event", events)


def _withdrawn_by(session: Session, current: LockedRound, end: RoundEnd) -> int | None:
    """Id of the user who withdrew the last grade that students saw of this submission, or None."""
    if end.withdrawn_by is not None or end.number == 1:
        return end.withdrawn_by
    last = session.execute(_LAST_SEEN, {"at_submission": current.submission_id}).first()
    return last.released_by if last is not None and last.released_at is None else None


def fail_round(session: Session, current: LockedRound, why: Message) -> None:
    """running → failed, without a grade: the results make no report."""
    set_round(
        session,
        current.id,
        state=RoundState.FAILED,
        finished_at=now(session),
        failure=why,
    )
    if current.current:
        news = {"type": f"submission.{GRADED[RoundState.FAILED]}", "submission": current.submission_id}
        outbox.add(session, "event", f"{RoundState.FAILED}:{current.id}", news)
