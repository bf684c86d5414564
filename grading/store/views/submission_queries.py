"""What `views` asks of the database; put together once, with columns only."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    JSON,
    ScalarSelect,
    Select,
    String,
    Text,
    and_,
    bindparam,
    case,
    cast,
    exists,
    false,
    func,
    select,
)
from sqlalchemy.orm import aliased

from grading.domain.model import RoundState
from grading.store.tables import (
    Assignment,
    Change,
    Course,
    Grade,
    Outbox,
    RegradeRequest,
    Round,
    RoundStage,
    RubricVersion,
    Run,
    Submission,
    SubmissionMember,
    User,
)

STAGE = {
    "stage": RoundStage.stage,
    "state": RoundStage.state,
    "tries": RoundStage.tries,
    "run_id": RoundStage.run_id,
    "error": RoundStage.error,
    "message": RoundStage.message,
    "accepted_run": Run.id,
    "machine": Run.machine,
    "model": Run.model,
    "seconds": Run.seconds,
    "tokens": Run.output_tokens,
    "written_at": Run.finished_at,
}
"""What is read of a stage, with what the accepted run tells; each in this order."""


@cache
def head_query(dialect: str) -> Select[Any]:
    """All but changes, in one row."""
    members = select(func.aggregate_strings(cast(SubmissionMember.user_id, String), ","))
    members = members.where(SubmissionMember.submission_id == Submission.id)
    other = aliased(Round)
    tried = (Outbox.kind == "trial", Outbox.key == Round.id, Outbox.done_at.is_(None))
    columns = (
        Submission.id,
        Submission.number,
        Submission.source,
        Submission.student_id,
        Submission.created_at,
        Assignment.id.label("assignment_id"),
        Assignment.slug.label("assignment"),
        Assignment.title.label("assignment_title"),
        Assignment.release,
        Assignment.course_id,
        Course.slug.label("course"),
        Course.title.label("course_title"),
        User.name.label("student"),
        Round.id.label("round_id"),
        Round.state,
        Round.priority,
        Round.failure,
        Round.prepared_at,
        Round.dispatched_at,
        Round.finished_at,
        Grade.id.label("grade"),
        Grade.points,
        Grade.points_so_far,
        Grade.max_points,
        Grade.adjustment,
        Grade.credit,
        Grade.final_points,
        Grade.held,
        Grade.released_at,
        Grade.released_by,
        Grade.reviewed_at,
        cast(Grade.report, Text).label("report"),
        case((Grade.id.is_(None), cast(RubricVersion.rubric, Text))).label("ungraded"),
        members.scalar_subquery().label("members"),
        exists().where(other.submission_id == Submission.id, ~other.current).label("regraded"),
        exists().where(Change.submission_id == Submission.id).label("changed"),
        exists().where(RegradeRequest.submission_id == Submission.id).label("asked"),
        case((Round.state == RoundState.RECEIVED, exists().where(*tried)), else_=false()).label("to_run"),
        _stages(dialect).label("stages"),
    )
    query: Select[Any] = select(*columns).select_from(Submission)
    return (
        query.join(Round, and_(Round.submission_id == Submission.id, Round.current))
        .join(Assignment, Assignment.id == Submission.assignment_id)
        .join(Course, Course.id == Assignment.course_id)
        .join(User, User.id == Submission.student_id)
        .join(RubricVersion, RubricVersion.id == Round.rubric_version_id)
        .outerjoin(Grade, Grade.round_id == Round.id)
        .where(Submission.id == bindparam("submission_id"))
    )


def _stages(dialect: str) -> ScalarSelect[Any]:
    """The stages of the round as a list of lists, in any order."""
    if dialect == "sqlite":
        told = func.json_group_array(func.json_array(*STAGE.values()), type_=JSON)
    else:
        told = func.json_agg(func.json_build_array(*STAGE.values()), type_=JSON)
    accepted = and_(Run.round_id == RoundStage.round_id, Run.stage == RoundStage.stage, Run.accepted)
    query = select(told).select_from(RoundStage).outerjoin(Run, accepted)
    return query.where(RoundStage.round_id == Round.id).correlate(Round).scalar_subquery()
