"""What was handed in, as it was read, and what running it showed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Select, Text, bindparam, cast, select
from sqlalchemy.orm import Session

from grading.documents import set_apart
from grading.domain.model import Cell, Document
from grading.execution.display import ShownTrial
from grading.shared.cache import Remembered, mark
from grading.store.tables import Extension, Round, RubricVersion, Submission
from grading.store.views import grade_history, submission, submission_queries
from grading.store.views.grade_history import Terms, terms_of
from grading.store.views.submission import SubmissionView

DIMMED_CHARS = 300_000
"""Longest hand-in that is compared with the starter at each look."""
MOST_READ = 24 * 1024 * 1024
"""Characters of the hand-ins that are kept as they were read."""
_read: Remembered[tuple[Document, ...]] = Remembered(MOST_READ)


@dataclass(frozen=True)
class HandedIn:
    """All of it."""

    documents: tuple[Document, ...]
    """`added` says which lines the student wrote, all in very long ones."""
    notes: tuple[str, ...]
    """What was noted while reading the files."""
    trial: ShownTrial | None
    """What running the work showed in a round."""
    mark: str
    """Equal where all of this is."""


@dataclass(frozen=True)
class Whole:
    """A submission with its current round, what was handed in, and what its points depend on."""

    view: SubmissionView
    handed_in: HandedIn
    terms: Terms


def whole(session: Session, submission_id: str) -> Whole:
    """All of a submission, in one query, and one more where people changed its grade. Raises NotFound."""
    row = submission.head(session, _whole(session.get_bind().dialect.name), submission_id)
    return Whole(submission.view_of(session, row), _handed_in(row), terms_of(row))


def _handed_in(row: Any) -> HandedIn:
    trial = None if row.trial in (None, "null") else ShownTrial.model_validate_json(row.trial)
    made = _read.get(
        mark(row.documents, row.starter), len(row.documents), lambda: _apart(row.documents, row.starter)
    )
    notes = tuple(map(str, row.notes))
    return HandedIn(made, notes, trial, mark(row.documents, row.starter, notes, row.trial))


def documents(session: Session, submission_id: str) -> tuple[Document, ...]:
    """The documents of a submission; `added` says which lines the student wrote, all in very long ones."""
    row = session.execute(_documents(), {"submission_id": submission_id}).one()
    made = mark(row.documents, row.starter)
    return _read.get(made, len(row.documents), lambda: _apart(row.documents, row.starter))


_DOCUMENTS = (
    cast(Submission.documents, Text).label("documents"),
    Submission.notes,
    cast(RubricVersion.starter, Text).label("starter"),
)
_TRIAL = cast(Round.prepared["trial"], Text).label("trial")
"""Of the large `prepared` only this part is read."""


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
    more = (*_DOCUMENTS, _TRIAL, *grade_history.TERMS)
    return submission_queries.head(dialect).add_columns(*more).outerjoin(Extension, grade_history.EXTENDED)


def _apart(stored: str, starter: str | None) -> tuple[Document, ...]:
    """Documents as they are stored, set apart from the starter."""
    given = json.loads(starter) if starter else []
    read = [Document.model_validate(document) for document in json.loads(stored)]
    if given and sum(len(cell.source) for document in read for cell in document.cells) <= DIMMED_CHARS:
        return set_apart(read, [Document.model_validate(document) for document in given])
    return tuple(document.model_copy(update={"cells": tuple(map(_own, document.cells))}) for document in read)


def _own(cell: Cell) -> Cell:
    return cell.model_copy(update={"added": tuple(range(1, len(cell.lines) + 1))})


def trial(session: Session, round_id: str) -> ShownTrial | None:
    """What running the work showed; of the large `prepared` only this part is read."""
    found = session.scalar(select(Round.prepared["trial"]).where(Round.id == round_id))
    return None if found is None else ShownTrial.model_validate(found)
