"""What pages and API read, as frozen values. Nothing here decides who may see what; `grading.may` does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any, cast

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, defer, joinedload

from grading.documents import set_apart
from grading.errors import NotFound, for_student
from grading.model import Cell, Document, RoundState, StageState
from grading.outcome import Report
from grading.report import changed
from grading.rubric import Value
from grading.store import outbox, tables
from grading.store.database import now
from grading.store.settling import changes_of
from grading.trials.shown import ShownTrial

TYPICAL_S = 60.0
"""What one grading takes as long as none has been seen."""
DIMMED_CHARS = 300_000
"""Longest hand-in that is compared with the starter at each look."""


class StageView(Value):
    """One stage of a round; machine to tokens come from the accepted run."""

    stage: str
    state: str
    tries: int = 0
    run_id: str | None = None
    """The run that is under way, or the last one."""
    accepted_run: str | None = None
    """The run whose result counts; it may be an earlier one that answered late."""
    machine: str | None = None
    model: str | None = None
    seconds: float | None = None
    tokens: int | None = None
    error: str | None = None
    message: str = ""
    """Why it failed, for staff."""

    @property
    def student(self) -> str:
        """Why it was given up, for the student; empty otherwise."""
        return for_student(self.error or "") if self.state == StageState.DEAD else ""


class GradeView(Value):
    """The grade of a round with its report, people's changes put in."""

    points: float | None
    """Of the rubric."""
    points_so_far: float
    max_points: float
    adjustment: float
    credit: float
    """The part of the points that a late hand-in keeps."""
    final_points: float | None
    """What counts."""
    held: bool
    released_at: datetime | None
    withdrawn: bool = False
    """It was released once, and staff took it back."""
    changed_at: datetime | None = None
    """When people changed it the last time after its release."""
    reviewed_at: datetime | None
    report: Report
    original: Report
    """As it was before anybody changed it."""


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
    failure: str
    to_run: bool
    """Its work is run now, or waits for that."""
    created_at: datetime
    prepared_at: datetime | None
    dispatched_at: datetime | None
    finished_at: datetime | None
    max_points: float
    stages: tuple[StageView, ...]
    grade: GradeView | None

    @property
    def final(self) -> bool:
        """Whether nothing more happens by itself."""
        return RoundState(self.state).final

    @property
    def graded(self) -> bool:
        """Whether there is a grade, whoever may see it."""
        return self.grade is not None

    @property
    def withdrawn(self) -> bool:
        """Whether the grade was released once, and staff took it back."""
        return self.grade is not None and self.grade.withdrawn

    @property
    def released(self) -> bool:
        """Whether the student may see the grade."""
        return self.grade is not None and self.grade.released_at is not None


class Queue(Value):
    """The place in the queue from 1, or 0 for what has begun, and about the seconds until the result."""

    position: int
    eta_s: int | None
    """Nothing where that is not known."""


def submission_view(session: Session, submission_id: str) -> SubmissionView:
    """A submission with its current round, stages and grade. Raises NotFound."""
    if not submission_id.isalnum():
        raise NotFound("There is no such submission.")
    query = current_rounds().options(joinedload(tables.Round.rubric_version))
    found = session.execute(query.where(tables.Submission.id == submission_id)).first()
    if found is None:
        raise NotFound("There is no such submission.")
    submission, round_, assignment, course, student, grade = cast("Row", found)
    rubric = round_.rubric_version.rubric
    return SubmissionView(
        id=submission.id,
        number=submission.number,
        source=submission.source,
        course_id=course.id,
        course=course.slug,
        course_title=course.title,
        assignment_id=assignment.id,
        assignment=assignment.slug,
        assignment_title=assignment.title,
        release=assignment.release,
        student_id=student.id,
        student=student.name,
        members=members_of(session, submission.id),
        round_id=round_.id,
        state=round_.state,
        priority=round_.priority,
        failure=round_.failure,
        to_run=round_.state == RoundState.RECEIVED and outbox.is_open(session, "trial", round_.id),
        created_at=submission.created_at,
        prepared_at=round_.prepared_at,
        dispatched_at=round_.dispatched_at,
        finished_at=round_.finished_at,
        max_points=grade.max_points if grade else sum(c["points"] for c in rubric.get("criteria", [])),
        stages=_stages(session, round_),
        grade=None if grade is None else _grade(session, grade),
    )


def members_of(session: Session, submission_id: str) -> tuple[int, ...]:
    """Who handed in together with the student."""
    member = tables.SubmissionMember
    query = select(member.user_id).where(member.submission_id == submission_id).order_by(member.user_id)
    return tuple(session.scalars(query))


def _grade(session: Session, grade: tables.Grade) -> GradeView:
    original = Report.model_validate(grade.report)
    return GradeView(
        points=grade.points,
        points_so_far=grade.points_so_far,
        max_points=grade.max_points,
        adjustment=grade.adjustment,
        credit=grade.credit,
        final_points=grade.final_points,
        held=grade.held,
        released_at=grade.released_at,
        withdrawn=grade.released_at is None and grade.released_by is not None,
        changed_at=_changed_at(session, grade),
        reviewed_at=grade.reviewed_at,
        report=changed(original, changes_of(session, grade.round_id)),
        original=original,
    )


def _changed_at(session: Session, grade: tables.Grade) -> datetime | None:
    """When people changed a released grade the last time since."""
    if grade.released_at is None:
        return None
    last = func.max(func.coalesce(tables.Change.undone_at, tables.Change.at))
    found = session.scalar(select(last).where(tables.Change.round_id == grade.round_id))
    return found if found is not None and found > grade.released_at else None


def _stages(session: Session, round_: tables.Round) -> tuple[StageView, ...]:
    accepted = {
        run.stage: run
        for run in session.scalars(
            select(tables.Run).where(tables.Run.round_id == round_.id, tables.Run.accepted)
        )
    }
    views = []
    for row in round_.stages:
        run = accepted.get(row.stage)
        view = StageView(
            stage=row.stage,
            state=row.state,
            tries=row.tries,
            run_id=row.run_id,
            error=row.error,
            message=row.message,
        )
        if run is not None:
            origin = (run.result or {}).get("provenance", {})
            tokens = origin.get("tokens", {}).get("output")
            view = view.model_copy(
                update={
                    "accepted_run": run.id,
                    "machine": run.machine or origin.get("machine"),
                    "model": origin.get("model"),
                    "seconds": origin.get("seconds"),
                    "tokens": tokens,
                }
            )
        views.append(view)
    return tuple(views)


def documents(session: Session, submission_id: str) -> tuple[Document, ...]:
    """The documents of a submission; `added` says which lines the student wrote, all in very long ones."""
    query = select(tables.Submission.documents).where(tables.Submission.id == submission_id)
    return apart(session, submission_id, session.execute(query).scalar_one())


def apart(session: Session, submission_id: str, stored: list[Any]) -> tuple[Document, ...]:
    """These documents of a submission, as they are stored, set apart from the starter."""
    query = select(tables.RubricVersion.starter).join(tables.Round).where(tables.Round.current)
    starter = session.scalar(query.where(tables.Round.submission_id == submission_id)) or []
    read = [Document.model_validate(document) for document in stored]
    if starter and sum(len(cell.source) for document in read for cell in document.cells) <= DIMMED_CHARS:
        return set_apart(read, [Document.model_validate(document) for document in starter])
    return tuple(document.model_copy(update={"cells": tuple(map(_own, document.cells))}) for document in read)


def _own(cell: Cell) -> Cell:
    return cell.model_copy(update={"added": tuple(range(1, len(cell.lines) + 1))})


def trial(session: Session, round_id: str) -> ShownTrial | None:
    """What running the work showed; of the large `prepared` only this part is read."""
    found = session.scalar(select(tables.Round.prepared["trial"]).where(tables.Round.id == round_id))
    return None if found is None else ShownTrial.model_validate(found)


def notes(session: Session, submission_id: str) -> tuple[str, ...]:
    """What was noted while reading the files."""
    return tuple(str(text) for text in session.get_one(tables.Submission, submission_id).notes)


@dataclass(frozen=True)
class Speed:
    """How fast grading went in the last hour, in seconds."""

    now: datetime
    typical_s: float = TYPICAL_S
    """From sending a round to its end."""
    every_s: float = TYPICAL_S
    """Between two that finish."""
    prepare_s: float = 0.0
    """From a hand-in to the queue, with running its work."""
    combine_s: float = 0.0
    """From the last result to the grade."""


def speed(session: Session) -> Speed:
    """What the last hour's 50 newest rounds tell."""
    moment = now(session)
    last = (
        select(
            tables.Round.created_at,
            tables.Round.prepared_at,
            tables.Round.dispatched_at,
            tables.Round.finished_at,
            select(func.max(tables.Run.finished_at))
            .where(tables.Run.round_id == tables.Round.id)
            .scalar_subquery(),
        )
        .where(tables.Round.dispatched_at.is_not(None))
        .where(tables.Round.finished_at > moment - timedelta(hours=1))
        .order_by(tables.Round.finished_at.desc())
        .limit(50)
    )
    rows = session.execute(last).all()
    if not rows:
        return Speed(moment)
    spans = [(row[2], row[3]) for row in rows if row[2] and row[3]]
    busy = (max(end for _, end in spans) - min(start for start, _ in spans)).total_seconds()
    return Speed(
        moment,
        typical_s=max(1.0, _typical(spans)),
        every_s=busy / len(spans),
        prepare_s=_typical((row[0], row[1]) for row in rows),
        combine_s=_typical((row[4], row[3]) for row in rows),
    )


def _typical(spans: Iterable[tuple[datetime | None, datetime | None]]) -> float:
    known = [(end - start).total_seconds() for start, end in spans if start and end]
    return max(0.0, median(known)) if known else 0.0


Row = tuple[
    tables.Submission, tables.Round, tables.Assignment, tables.Course, tables.User, tables.Grade | None
]


def current_rounds() -> Select[Row]:
    """Submissions with their current round and all that belongs to it."""
    query = (
        select(
            tables.Submission,
            tables.Round,
            tables.Assignment,
            tables.Course,
            tables.User,
            tables.Grade,
        )
        .join(tables.Round, (tables.Round.submission_id == tables.Submission.id) & tables.Round.current)
        .join(tables.Assignment, tables.Assignment.id == tables.Submission.assignment_id)
        .join(tables.Course, tables.Course.id == tables.Assignment.course_id)
        .join(tables.User, tables.User.id == tables.Submission.student_id)
        .outerjoin(tables.Grade, tables.Grade.round_id == tables.Round.id)
        .options(defer(tables.Submission.documents))
    )
    return cast("Select[Row]", query)
