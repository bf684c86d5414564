"""Data of class statistics: the counting submissions of an assignment, in a constant number of queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Subquery, func, select
from sqlalchemy.orm import Session

from grading.domain.report import CriterionGrade, Report
from grading.domain.report_changes import Change
from grading.domain.round_states import RoundState
from grading.scoring import changed
from grading.statistics.finding_groups import Remark
from grading.statistics.submission_data import (
    Judged,
    PersonLevel,
    StageRun,
    Tested,
    Took,
    Work,
    Works,
)
from grading.store import tables
from grading.store.grades import counts
from grading.store.review import person_levels
from grading.store.trust import human_marks

MAX_REMARKS = 30
MAX_CHARS = 200
CHUNK_SIZE = 50
"""Reports in memory at a time."""


def _students_of(assignment_id: int) -> Any:
    course = select(tables.Assignment.course_id).where(tables.Assignment.id == assignment_id)
    return (tables.Membership.course_id == course.scalar_subquery()) & (tables.Membership.role == "student")


def load_submissions(session: Session, assignment_id: int) -> Works:
    """All submissions of an assignment that count for students, with their current grade."""
    chosen = counts.student_submissions(session.get_one(tables.Assignment, assignment_id)).subquery()
    changes = person_levels.load_changes(session, chosen)
    rows = list(_works(session, chosen, changes))
    marks = person_levels.load_marks(session, chosen)
    graded = {work.id: grader for work, _, (_, grader) in rows}
    before = human_marks.load_levels(session, assignment_id, graded)
    return Works(
        students=session.scalar(
            select(func.count()).select_from(tables.Membership).where(_students_of(assignment_id))
        )
        or 0,
        works=tuple(work for work, _, _ in rows),
        levels=(*before, *_levels(rows, marks, changes)),
        runs=tuple(_runs(session, chosen)),
    )


def _levels(
    rows: Sequence[tuple[Work, int | None, tuple[str, dict[str, CriterionGrade]]]],
    marks: Mapping[str, Sequence[tables.Mark]],
    changes: Mapping[str, Sequence[Change]],
) -> Iterator[PersonLevel]:
    """The levels that people gave with Grader."""
    for work, reviewer, (round_id, grader) in rows:
        own = (marks.get(round_id, ()), changes.get(round_id, ()))
        yield from person_levels.levels(work.id, reviewer, grader, *own)


def _works_query(chosen: Subquery) -> Any:
    submission, round_, grade = tables.Submission, tables.Round, tables.Grade
    return (
        select(
            submission.id,
            submission.number,
            tables.User.name,
            round_.id.label("round_id"),
            *(round_.state, round_.created_at, round_.prepared_at, round_.dispatched_at, round_.finished_at),
            *(grade.final_points, grade.max_points, grade.reviewed_at, grade.reviewed_by),
            *(counts.to_review().label("to_review"), counts.held().label("held")),
            grade.report,
        )
        .join(chosen, chosen.c.id == submission.id)
        .join(tables.User, tables.User.id == submission.student_id)
        .join(round_, (round_.submission_id == submission.id) & round_.current)
        .outerjoin(grade, grade.round_id == round_.id)
        .order_by(round_.created_at.desc(), submission.id)
        .execution_options(yield_per=CHUNK_SIZE)
    )


def _works(
    session: Session, chosen: Subquery, changes: Mapping[str, Sequence[Change]]
) -> Iterator[tuple[Work, int | None, tuple[str, dict[str, CriterionGrade]]]]:
    """Each submission with its reviewer, its round and its criteria as graded; the newest grade first."""
    for row in session.execute(_works_query(chosen)):
        original = None if row.report is None else Report.model_validate(row.report)
        now = None if original is None else changed(original, changes.get(row.round_id, ()))
        work = Work(
            id=row.id,
            student=row.name,
            number=row.number,
            state=row.state,
            final_points=row.final_points,
            max_points=row.max_points,
            held=bool(row.held),
            to_review=bool(row.to_review),
            reviewed=row.reviewed_at is not None,
            criteria=_judged(original, now),
            tested=tuple(_tested(now)),
            remarks=tuple(_remarks(row.id, now)),
            took=_took(row),
        )
        grader = {one.criterion: one for one in original.criteria} if original else {}
        yield work, row.reviewed_by if row.reviewed_at else None, (row.round_id, grader)


def _judged(original: Report | None, now: Report | None) -> tuple[Judged, ...]:
    if original is None or now is None:
        return ()
    return tuple(
        Judged(
            criterion=one.criterion,
            title=one.title,
            stage=one.stage,
            max_points=one.max_points,
            highest=one.highest,
            points=after.points,
            level=one.level,
            by_model=one.basis in ("model", "checks and model"),
        )
        for one, after in zip(original.criteria, now.criteria, strict=True)
    )


def _tested(report: Report | None) -> Iterator[Tested]:
    for criterion in report.criteria if report else ():
        for outcome in criterion.evidence:
            label = outcome.label or outcome.check
            yield Tested(criterion.criterion, label[:MAX_CHARS], outcome.earned)
            for test in outcome.tests:
                name = f"{label}: {test.name}"[:MAX_CHARS]
                yield Tested(criterion.criterion, name, float(test.passed), test=True, hidden=test.hidden)


def _remarks(work: str, report: Report | None) -> Iterator[Remark]:
    found = report.analysis.findings if report and report.analysis else ()
    for one in found[:MAX_REMARKS]:
        cell = one.location.cell if one.location else None
        kind = "praise" if one.severity == "praise" else "fault"
        yield Remark(work, kind, one.title.strip()[:MAX_CHARS], "" if cell is None else f"{cell}")


def _took(row: Any) -> Took:
    return Took(
        preparing=_seconds(row.created_at, row.prepared_at),
        waiting=_seconds(row.prepared_at, row.dispatched_at),
        running=_seconds(row.dispatched_at, row.finished_at),
        total=_seconds(row.created_at, row.finished_at) if row.state != RoundState.FAILED else None,
    )


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else max(0.0, (end - start).total_seconds())


def _runs(session: Session, chosen: Subquery) -> Iterator[StageRun]:
    run, round_ = tables.Run, tables.Round
    query = (
        select(run.stage, run.machine, run.model, run.seconds, run.output_tokens)
        .join(round_, (round_.id == run.round_id) & round_.current)
        .join(chosen, chosen.c.id == round_.submission_id)
        .where(run.accepted)
        .order_by(run.stage, run.machine, run.id)
    )
    for row in session.execute(query):
        yield StageRun(row.stage, row.machine or "", row.model or "", row.seconds, row.output_tokens)
