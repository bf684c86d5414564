"""A submission with its current round, grade and documents; who may see it is decided by permissions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import Field
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
from sqlalchemy.orm import Session, aliased

from grading.documents import set_apart
from grading.domain.base_value import Value
from grading.domain.document import Cell, Document
from grading.domain.errors import NotFound, for_student
from grading.domain.messages import Message
from grading.domain.report import Report
from grading.domain.round_states import RoundState, StageState
from grading.domain.shared_messages import NO_SUCH_SUBMISSION
from grading.execution.display import ShownExecution
from grading.scoring import changed
from grading.shared.cache import BoundedCache, mark
from grading.store.database import parse_timestamp
from grading.store.grades import change_history
from grading.store.grades.change_history import Made
from grading.store.grades.final_score import to_change
from grading.store.tables import (
    Assignment,
    Change,
    Course,
    Extension,
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
from grading.store.tables.base import read_message
from grading.store.views import grade_history
from grading.store.views.grade_history import ScoreTerms, terms_of

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
"""Columns of a stage and its accepted run, in this order."""


_HEAD_COLUMNS: tuple[Any, ...] = (
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
)


@cache
def head_query(dialect: str) -> Select[Any]:
    """All but changes, in one row."""
    members = select(func.aggregate_strings(cast(SubmissionMember.user_id, String), ","))
    members = members.where(SubmissionMember.submission_id == Submission.id)
    other = aliased(Round)
    # second opinions have numbers below those of gradings
    regraded = (other.submission_id == Submission.id, ~other.current, other.number > 0)
    tried = (Outbox.kind == "execute", Outbox.key == Round.id, Outbox.done_at.is_(None))
    columns = (
        *_HEAD_COLUMNS,
        members.scalar_subquery().label("members"),
        exists().where(*regraded).label("regraded"),
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
        columns = func.json_group_array(func.json_array(*STAGE.values()), type_=JSON)
    else:
        columns = func.json_agg(func.json_build_array(*STAGE.values()), type_=JSON)
    accepted = and_(Run.round_id == RoundStage.round_id, Run.stage == RoundStage.stage, Run.accepted)
    query = select(columns).select_from(RoundStage).outerjoin(Run, accepted)
    return query.where(RoundStage.round_id == Round.id).correlate(Round).scalar_subquery()


MAX_REPORT_BYTES = 16 * 1024 * 1024
"""Characters of parsed reports in the cache."""
_reports: BoundedCache[Report] = BoundedCache(MAX_REPORT_BYTES)


class StageView(Value):
    """One stage of a round; machine to tokens come from the accepted run."""

    stage: str
    state: str
    tries: int = 0
    run_id: str | None = None
    """The present run, or the last one."""
    accepted_run: str | None = None
    """The run whose result counts; it may be an earlier one that answered late."""
    machine: str | None = None
    model: str | None = None
    seconds: float | None = None
    tokens: int | None = None
    error: str | None = None
    message: Message = Message()
    """Why it failed, for staff."""
    written_at: datetime | None = None
    """When the accepted result was recorded."""

    @property
    def student(self) -> Message | None:
        """Why it is dead, for the student."""
        return for_student(self.error or "") if self.state == StageState.DEAD else None


class GradeView(Value):
    """The grade of a round with its report, people's changes included."""

    points: float | None
    """By the rubric."""
    points_so_far: float
    max_points: float
    adjustment: float
    credit: float
    """Share of the points that a late submission keeps."""
    final_points: float | None
    """The score that counts."""
    held: bool
    released_at: datetime | None
    withdrawn: bool = False
    """It was released and withdrawn."""
    changed_at: datetime | None = None
    """Last change after its release."""
    reviewed_at: datetime | None
    report: Report
    original: Report
    """The report as it was combined."""
    made: tuple[Made, ...] = ()
    """People's changes, the newest first, also undone ones."""
    original_mark: str = ""
    """Equal for equal originals."""
    mark: str = ""
    """Equal for equal reports and originals."""


class SubmissionView(Value):
    """A submission and its current round."""

    id: str
    number: int
    source: str
    course_id: int
    course: str
    course_title: str
    assignment_id: int
    assignment: str
    assignment_title: str
    release: str
    student_id: int
    student: str
    members: tuple[int, ...]
    """Users it counts for beside the student."""
    round_id: str
    state: str
    priority: str
    failure: Message
    to_run: bool
    """Its sandbox run is queued or running."""
    created_at: datetime
    prepared_at: datetime | None
    dispatched_at: datetime | None
    finished_at: datetime | None
    max_points: float
    regraded: bool
    """There are rounds beside the current one."""
    changed: bool
    """There are people's changes, even if undone."""
    asked: bool
    """There are regrade requests."""
    stages: tuple[StageView, ...]
    grade: GradeView | None

    @property
    def final(self) -> bool:
        """Whether the state is final."""
        return RoundState(self.state).final

    @property
    def graded(self) -> bool:
        """Whether there is a grade, whoever may see it."""
        return self.grade is not None

    @property
    def withdrawn(self) -> bool:
        """Whether the grade was released and withdrawn."""
        return self.grade is not None and self.grade.withdrawn

    @property
    def released(self) -> bool:
        """Whether the student may see the grade."""
        return self.grade is not None and self.grade.released_at is not None


class Queue(Value):
    """Position in the queue from 1, or 0 after the start, and about the seconds until the result."""

    position: int = Field(description="the place from 1; 0 after the start", examples=[3])
    eta_s: int | None = Field(
        description="the estimated seconds until the result; `null` if unknown", examples=[95]
    )


def load_view(session: Session, submission_id: str) -> SubmissionView:
    """A submission with its current round, grade and stages. Raises NotFound."""
    return view_of(session, load_head(session, head_query(session.get_bind().dialect.name), submission_id))


def load_head(session: Session, query: Select[Any], submission_id: str) -> Any:
    """The row of a submission, by a query with the columns of `head_query`. Raises NotFound."""
    row = None
    if submission_id.isalnum():
        row = session.execute(query, {"submission_id": submission_id}).first()
    if row is None:
        raise NotFound(NO_SUCH_SUBMISSION)
    return row


def view_of(session: Session, row: Any) -> SubmissionView:
    """The row of `load_head` as a value."""
    return SubmissionView(
        id=row.id,
        number=row.number,
        source=row.source,
        course_id=row.course_id,
        course=row.course,
        course_title=row.course_title,
        assignment_id=row.assignment_id,
        assignment=row.assignment,
        assignment_title=row.assignment_title,
        release=row.release,
        student_id=row.student_id,
        student=row.student,
        members=tuple(sorted(map(int, row.members.split(",")))) if row.members else (),
        round_id=row.round_id,
        state=row.state,
        priority=row.priority,
        failure=row.failure,
        to_run=bool(row.to_run),
        created_at=row.created_at,
        prepared_at=row.prepared_at,
        dispatched_at=row.dispatched_at,
        finished_at=row.finished_at,
        max_points=row.max_points if row.grade else _most(row.ungraded),
        regraded=row.regraded,
        changed=row.changed,
        asked=row.asked,
        stages=tuple(map(_stage, sorted(row.stages or ()))),
        grade=_grade(session, row) if row.grade else None,
    )


def _most(rubric: str) -> float:
    return float(sum(one["points"] for one in json.loads(rubric).get("criteria", []) if not one.get("bonus")))


def _grade(session: Session, row: Any) -> GradeView:
    made = mark(row.report)
    original = _reports.get(made, len(row.report), lambda: Report.model_validate_json(row.report))
    changes: Sequence[Any] = ()
    if row.changed:
        changes = session.execute(change_history.of_round(), {"round_id": row.round_id}).all()
    counting = [to_change(one, one.name or "") for one in reversed(changes) if one.undone_at is None]
    return GradeView(
        points=row.points,
        points_so_far=row.points_so_far,
        max_points=row.max_points,
        adjustment=row.adjustment,
        credit=row.credit,
        final_points=row.final_points,
        held=row.held,
        released_at=row.released_at,
        withdrawn=row.released_at is None and row.released_by is not None,
        changed_at=_changed_at(row.released_at, changes),
        reviewed_at=row.reviewed_at,
        report=changed(original, counting),
        original=original,
        made=tuple(map(change_history.made_of, changes)),
        original_mark=made,
        mark=mark(row.report, *(one.model_dump_json() for one in counting)),
    )


def _changed_at(released_at: datetime | None, changes: Iterable[Any]) -> datetime | None:
    """When people last changed a released grade."""
    visible = (one for one in changes if one.kind != "confirm")
    last = max((one.undone_at or one.at for one in visible), default=None)
    return last if last is not None and released_at is not None and last > released_at else None


def _stage(columns: Sequence[Any]) -> StageView:
    """A stage from the database's list, with instants and its message as text."""
    values = dict(zip(STAGE, columns, strict=True))
    written = values["written_at"] and parse_timestamp(values["written_at"])
    return StageView.model_construct(
        **{**values, "written_at": written, "message": read_message(values["message"])}
    )


DIMMED_CHARS = 300_000
"""Length from which submissions are not compared with the starter."""
MAX_DOCUMENT_BYTES = 24 * 1024 * 1024
"""Characters of parsed documents in the cache."""
_parsed: BoundedCache[tuple[Document, ...]] = BoundedCache(MAX_DOCUMENT_BYTES)


@dataclass(frozen=True)
class SubmittedWork:
    """The documents of a submission and what was found in them."""

    documents: tuple[Document, ...]
    """`added` lists the student's lines; all lines of very long documents."""
    notes: tuple[str, ...]
    """Notes on reading the files."""
    execution: ShownExecution | None
    """Result of the sandbox run of a round."""
    mark: str
    """Equal for equal content."""


@dataclass(frozen=True)
class WholeSubmission:
    """A submission with its current round, documents and score terms."""

    view: SubmissionView
    submitted: SubmittedWork
    terms: ScoreTerms


def load_whole(session: Session, submission_id: str) -> WholeSubmission:
    """Everything of a submission in one query, and one more where people changed its grade.

    Raises NotFound.
    """
    row = load_head(session, _whole(session.get_bind().dialect.name), submission_id)
    return WholeSubmission(view_of(session, row), _submitted(row), terms_of(row))


def _submitted(row: Any) -> SubmittedWork:
    execution = None if row.execution in (None, "null") else ShownExecution.model_validate_json(row.execution)
    made = _parsed.get(
        mark(row.documents, row.starter), len(row.documents), lambda: _apart(row.documents, row.starter)
    )
    notes = tuple(map(str, row.notes))
    return SubmittedWork(made, notes, execution, mark(row.documents, row.starter, notes, row.execution))


def load_documents(session: Session, submission_id: str) -> tuple[Document, ...]:
    """The documents of a submission; `added` lists the student's lines, all of very long ones."""
    row = session.execute(_documents(), {"submission_id": submission_id}).one()
    made = mark(row.documents, row.starter)
    return _parsed.get(made, len(row.documents), lambda: _apart(row.documents, row.starter))


_DOCUMENTS = (
    cast(Submission.documents, Text).label("documents"),
    Submission.notes,
    cast(RubricVersion.starter, Text).label("starter"),
)
_EXECUTION = cast(Round.prepared["execution"], Text).label("execution")
"""Only this part of the large `prepared` is read."""


@cache
def _documents() -> Select[Any]:
    current = (Round.submission_id == Submission.id) & Round.current
    return (
        select(*_DOCUMENTS)
        .select_from(Submission)
        .outerjoin(Round, current)
        .outerjoin(RubricVersion, RubricVersion.id == Round.rubric_version_id)
        .where(Submission.id == bindparam("submission_id"))
    )


@cache
def _whole(dialect: str) -> Select[Any]:
    more = (*_DOCUMENTS, _EXECUTION, *grade_history.TERMS)
    return head_query(dialect).add_columns(*more).outerjoin(Extension, grade_history.EXTENDED)


def _apart(stored: str, starter: str | None) -> tuple[Document, ...]:
    """Stored documents, with the lines that are not in the starter marked."""
    given = json.loads(starter) if starter else []
    read = [Document.model_validate(document) for document in json.loads(stored)]
    if given and sum(len(cell.source) for document in read for cell in document.cells) <= DIMMED_CHARS:
        return set_apart(read, [Document.model_validate(document) for document in given])
    return tuple(document.model_copy(update={"cells": tuple(map(_own, document.cells))}) for document in read)


def _own(cell: Cell) -> Cell:
    return cell.model_copy(update={"added": tuple(range(1, len(cell.lines) + 1))})


def load_execution(session: Session, round_id: str) -> ShownExecution | None:
    """The result of the sandbox run; only this part of the large `prepared` is read."""
    found = session.scalar(select(Round.prepared["execution"]).where(Round.id == round_id))
    return None if found is None else ShownExecution.model_validate(found)
