"""Grade history: lateness, which submission counts, gradings so far, people's changes."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Executable, Select, and_, bindparam, select
from sqlalchemy.orm import Session, aliased

from grading.domain.base_value import Value
from grading.domain.lateness import Lateness, LateRule, lateness, own_due
from grading.store import tables
from grading.store.blobs import load_blob
from grading.store.database import literal_limit
from grading.store.grades.change_history import MadeChange
from grading.store.grades.final_score import counting_of_assignment

MOST = 100
"""Gradings and changes of one submission that are listed; the newest."""


class ScoreTerms(Value):
    """What a submission's points depend on beside its report."""

    lateness: Lateness
    due_at: datetime | None
    extended: bool
    """The student has an extension."""
    counts: str
    """`latest` or `best`."""
    levels: dict[str, tuple[str, ...]]
    """The meaning of each level of a criterion, from 0 up."""


class Grading(Value):
    """One round in the history."""

    number: int
    reason: str
    state: str
    current: bool
    rubric: int
    """Number of its rubric version."""
    created_at: datetime
    finished_at: datetime | None
    final_points: float | None
    max_points: float | None
    released: bool


def load_terms(session: Session, submission_id: str, round_id: str) -> ScoreTerms:
    """The present score terms; one query."""
    return terms_of(session.execute(_terms(), {"submission_id": submission_id, "round_id": round_id}).one())


def terms_of(row: Any) -> ScoreTerms:
    """The score terms of a row with the columns `TERMS`."""
    due = own_due(row.due_at, row.own)
    criteria = row.rubric.get("criteria", [])
    return ScoreTerms(
        lateness=lateness(row.created_at, due, LateRule.model_validate(row.late or {})),
        due_at=due,
        extended=row.own is not None,
        counts=row.counts,
        levels={one["id"]: tuple(one.get("levels") or ()) for one in criteria},
    )


TERMS = (
    tables.Assignment.due_at, tables.Extension.due_at.label("own"), tables.Assignment.late,
    tables.Assignment.counts, tables.RubricVersion.rubric,
)  # fmt: skip
"""Columns that `terms_of` reads, beside the time of submission."""
EXTENDED = and_(
    tables.Extension.assignment_id == tables.Assignment.id,
    tables.Extension.student_id == tables.Submission.student_id,
)
"""Join condition of a submission's extension; there may be none."""


@cache
def _terms() -> Select[Any]:
    version, round_ = tables.RubricVersion, tables.Round
    query: Select[Any] = select(tables.Submission.created_at, *TERMS).select_from(tables.Submission)
    query = query.join(tables.Assignment).join(round_, round_.id == bindparam("round_id"))
    query = query.join(version, version.id == round_.rubric_version_id).outerjoin(tables.Extension, EXTENDED)
    return query.where(tables.Submission.id == bindparam("submission_id"))


def list_gradings(session: Session, submission_id: str) -> tuple[Grading, ...]:
    """The rounds of a submission, the newest first, without those of dry runs that were not applied."""
    rows = session.execute(_gradings(), {"submission_id": submission_id})
    return tuple(Grading.model_validate(dict(row._mapping)) for row in rows)


@cache
def _gradings() -> Executable:
    tried = (
        select(tables.DryRunRound.round_id)
        .join(tables.DryRun, tables.DryRun.id == tables.DryRunRound.dry_run_id)
        .where(
            tables.DryRunRound.submission_id == bindparam("submission_id"), tables.DryRun.applied_at.is_(None)
        )
    )
    grade = tables.Grade
    query = (
        select(
            tables.Round.number,
            tables.Round.reason,
            tables.Round.state,
            tables.Round.current,
            tables.RubricVersion.number.label("rubric"),
            tables.Round.created_at,
            tables.Round.finished_at,
            grade.final_points,
            grade.max_points,
            grade.released_at.is_not(None).label("released"),
        )
        .join(tables.RubricVersion, tables.RubricVersion.id == tables.Round.rubric_version_id)
        .outerjoin(grade, grade.round_id == tables.Round.id)
        # second opinions have numbers below those of gradings
        .where(tables.Round.submission_id == bindparam("submission_id"), tables.Round.number > 0)
        .where(tables.Round.id.not_in(tried))
        .order_by(tables.Round.number.desc())
        .limit(MOST)
    )
    return query


def list_changes(session: Session, submission_id: str) -> tuple[MadeChange, ...]:
    """People's changes of a submission's grades, the newest first."""
    rows = session.execute(_changes(), {"submission_id": submission_id})
    return tuple(
        MadeChange(
            at=row.at, by=row.name or "", kind=row.kind, target=row.target, value=row.value,
            before=row.before, reason=row.reason, grading=row.number, bulk=bool(row.bulk),
            undone_at=row.undone_at, undone_by=row.undoer or "",
        )
        for row in rows
    )  # fmt: skip


@cache
def _changes() -> Executable:
    change, undoer = tables.Change, aliased(tables.User)
    query = (
        select(
            change.at, change.kind, change.target, change.value, change.before, change.reason, change.bulk,
            change.undone_at, tables.User.name, undoer.name.label("undoer"), tables.Round.number,
        )
        .join(tables.Round, tables.Round.id == change.round_id)
        .outerjoin(tables.User, tables.User.id == change.by)
        .outerjoin(undoer, undoer.id == change.undone_by)
        .where(change.submission_id == bindparam("submission_id"))
        .order_by(change.id.desc())
        .limit(literal_limit(MOST))
    )  # fmt: skip
    return query


def list_notebooks(session: Session, submission_id: str) -> dict[str, str]:
    """Path -> SHA-256 of the notebooks of a submission."""
    file = tables.SubmissionFile
    query = select(file.path, file.sha256).where(file.submission_id == submission_id)
    return {path: name for path, name in session.execute(query) if path.lower().endswith(".ipynb")}


def load_content(session: Session, sha256: str) -> bytes:
    """The bytes of a file."""
    return load_blob(session, sha256)


class GradedSubmission(Value):
    """A submission with a grade."""

    submission_id: str
    number: int
    student_id: int
    student: str


def list_counting(session: Session, assignment: tables.Assignment) -> tuple[GradedSubmission, ...]:
    """The counting submission of each student, if it has a grade; by name, in one query."""
    submission = tables.Submission
    query = (
        select(
            submission.id.label("submission_id"),
            submission.number,
            submission.student_id,
            tables.User.name.label("student"),
        )
        .join(tables.User, tables.User.id == submission.student_id)
        .join(tables.Round, (tables.Round.submission_id == submission.id) & tables.Round.current)
        .join(tables.Grade, tables.Grade.round_id == tables.Round.id)
        .where(submission.id.in_(counting_of_assignment(assignment)))
        .order_by(tables.User.name, submission.student_id)
    )
    return tuple(GradedSubmission.model_validate(dict(row._mapping)) for row in session.execute(query))
