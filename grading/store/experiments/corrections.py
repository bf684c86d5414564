"""Corrections: points of criteria that people changed, from which examples are chosen and evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session, aliased

from grading.checks.scope import Scopes
from grading.documents import Identity, pseudonymise, set_apart
from grading.documents.pseudonym import pseudonymise_texts
from grading.domain.document import Document
from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.store import tables
from grading.store.tables.assignments import SAMPLE

NO_SUCH_CORRECTION = define_message(
    "corrections.no_such_correction", "This correction no longer exists. Someone may have changed it."
)

PER_PAGE = 20
LONGEST_PROPOSED = 1_200
"""Characters of a proposed excerpt."""


@dataclass(frozen=True)
class Correction:
    """A person's level of a criterion, beside the model's."""

    change_id: int
    round_id: str
    submission_id: str
    student: str
    number: int
    criterion: str
    title: str
    stage: str
    highest: int
    model_level: float | None
    level: float
    reason: str
    by: str
    at: datetime
    rubric_version_id: int
    """The version that it was graded with."""
    example_id: int | None = None
    """The example that was made of it."""


@dataclass(frozen=True)
class Page:
    """One page of corrections."""

    items: tuple[Correction, ...]
    page: int
    pages: int
    total: int


def _query(assignment_id: int) -> Any:
    """The last change of points of each criterion of each submission, of those that are not undone."""
    change, later = tables.Change, aliased(tables.Change)
    submission, example, author = tables.Submission, tables.Example, aliased(tables.User)
    after = select(later.id).where(
        later.submission_id == change.submission_id,
        later.kind == "points",
        later.target == change.target,
        later.undone_at.is_(None),
        later.id > change.id,
    )
    chosen = select(func.min(example.id)).where(
        example.submission_id == change.submission_id,
        example.criterion == change.target,
        example.removed_at.is_(None),
        example.excerpt != "",
    )
    return (
        select(
            change,
            submission.number,
            tables.User.name.label("student"),
            author.name.label("author"),
            tables.Round.rubric_version_id,
            tables.Grade.report["criteria"].label("criteria"),
            chosen.scalar_subquery().label("example_id"),
        )
        .join(submission, submission.id == change.submission_id)
        .join(tables.User, tables.User.id == submission.student_id)
        .join(tables.Round, tables.Round.id == change.round_id)
        .join(tables.Grade, tables.Grade.round_id == change.round_id)
        .outerjoin(author, author.id == change.by)
        .where(
            submission.assignment_id == assignment_id,
            submission.source != SAMPLE,
            change.kind == "points",
            change.undone_at.is_(None),
            ~after.exists(),
        )
    )


def list_corrections(session: Session, assignment_id: int, page: int = 1, criterion: str = "") -> Page:
    """One page of corrections, the newest first, of all criteria or one."""
    query = _query(assignment_id)
    if criterion:
        query = query.where(tables.Change.target == criterion)
    total = session.scalar(query.with_only_columns(func.count(), maintain_column_froms=True)) or 0
    pages = max(1, -(-total // PER_PAGE))
    page = min(max(page, 1), pages)
    rows = session.execute(
        query.order_by(tables.Change.id.desc()).offset((page - 1) * PER_PAGE).limit(PER_PAGE)
    )
    return Page(tuple(_read(rows)), page, pages, total)


def load_correction(session: Session, assignment_id: int, change_id: int) -> Correction:
    """A correction. Raises NotFound, also when it is undone or changed again."""
    rows = session.execute(_query(assignment_id).where(tables.Change.id == change_id))
    found = next(_read(rows), None)
    if found is None:
        raise NotFound(NO_SUCH_CORRECTION)
    return found


def newest_corrections(session: Session, assignment_id: int, most: int) -> list[Correction]:
    """The newest corrections, at most `most`."""
    rows = session.execute(_query(assignment_id).order_by(tables.Change.id.desc()).limit(most))
    return list(_read(rows))


def _read(rows: Any) -> Iterator[Correction]:
    for row in rows:
        change: tables.Change = row.Change
        graded = next((one for one in row.criteria or [] if one.get("criterion") == change.target), None)
        points = change.value.get("points")
        if graded is None or points is None or not graded["max_points"]:
            continue
        share = min(max(points / graded["max_points"], 0.0), 1.0)
        yield Correction(
            change_id=change.id,
            round_id=change.round_id,
            submission_id=change.submission_id,
            student=row.student,
            number=row.number,
            criterion=change.target,
            title=graded["title"],
            stage=graded["stage"],
            highest=graded["highest"],
            model_level=graded["level"],
            level=round(share * graded["highest"], 2),
            reason=change.reason,
            by=row.author or "",
            at=change.at,
            rubric_version_id=row.rubric_version_id,
            example_id=row.example_id,
        )


def propose_excerpt(
    session: Session, found: Correction, where: str | None, identities: Sequence[Identity]
) -> str:
    """The student's text for a criterion, without names: their own lines at its location.

    Without a location (the criterion's `where`), or without own lines there, the quotes of the model;
    failing those, the first lines of the submission.
    """
    documents = _documents(session, found.round_id, found.submission_id)
    for identity in identities:
        documents = pseudonymise(documents, identity)
    if where and (words := _own(documents, where)):
        return words
    quotes = _quotes(session, found)
    for identity in identities:
        quotes = pseudonymise_texts(quotes, identity)
    return _cut("\n".join(quotes)) or _own(documents, None)


def _documents(session: Session, round_id: str, submission_id: str) -> tuple[Document, ...]:
    """The submission's documents, with the student's lines marked."""
    starter = session.scalar(
        select(tables.RubricVersion.starter).join(tables.Round).where(tables.Round.id == round_id)
    )
    stored = session.get_one(tables.Submission, submission_id).documents
    read = [Document.model_validate(one) for one in stored]
    return set_apart(read, [Document.model_validate(one) for one in starter or []])


def _own(documents: Sequence[Document], where: str | None) -> str:
    """The student's own lines at the locations of a pattern, or everywhere without one."""
    pieces = Scopes(documents).find(where).added
    return _cut("\n\n".join(piece.own.strip("\n") for piece in pieces if piece.own.strip()))


def _quotes(session: Session, found: Correction) -> list[str]:
    report: Mapping[str, Any] = (
        session.scalar(select(tables.Grade.report).where(tables.Grade.round_id == found.round_id)) or {}
    )
    graded: Mapping[str, Any] = next(
        (c for c in report.get("criteria", []) if c["criterion"] == found.criterion), {}
    )
    return [str(quote["text"]) for quote in graded.get("quotes", [])]


def _cut(text: str) -> str:
    """At most `LONGEST_PROPOSED` characters, cut at the end of a line if possible."""
    if len(text) <= LONGEST_PROPOSED:
        return text
    cut = text[:LONGEST_PROPOSED]
    return cut[: cut.rfind("\n")] if "\n" in cut[LONGEST_PROPOSED // 2 :] else cut
