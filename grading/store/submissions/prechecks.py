"""Prechecks: code that students have run against the visible tests before they submit it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import Session

from grading.checks.precheck import PrecheckOutcome
from grading.documents import SubmittedFiles, in_language
from grading.domain.base_value import Value
from grading.domain.document import Document
from grading.domain.errors import GraderError
from grading.domain.messages import define_message
from grading.store import tables
from grading.store.assignments import versions
from grading.store.bulk import delete_rows
from grading.store.database import now
from grading.store.tables import Assignment, Precheck, User, new_id

LOST_AFTER = timedelta(minutes=5)
"""A precheck without an outcome counts as lost then, and another one may begin."""


class PrecheckRunning(GraderError):
    """Your previous check is still running. Wait for its result, then check again."""

    code = "precheck_running"
    status = 409
    default_message = define_message(
        "error.precheck_running",
        "Your previous check is still running. Wait for its result, then check again.",
    )


class FoundPrecheck(Value):
    """The last precheck of a student for an assignment."""

    id: str
    source: str
    created_at: datetime
    started: bool
    lost: bool
    """It has no outcome, and will have none."""
    outcome: PrecheckOutcome | None

    @property
    def pending(self) -> bool:
        """Whether an outcome is to be expected."""
        return self.outcome is None and not self.lost


@dataclass(frozen=True)
class ClaimedPrecheck:
    """What a worker needs to run one."""

    rubric_version_id: int
    documents: tuple[Document, ...]


def create_precheck(
    session: Session, assignment: Assignment, user_id: int, source: str, content: SubmittedFiles
) -> str:
    """Store code to be checked in place of what the user had checked before. Raises PrecheckRunning."""
    # one at a time for each person: whoever checks twice at once waits here
    session.execute(select(User.id).where(User.id == user_id).with_for_update())
    moment = now(session)
    open_ones = select(Precheck.id).where(Precheck.user_id == user_id, _unfinished(moment))
    if session.execute(open_ones.limit(1)).first() is not None:
        raise PrecheckRunning
    delete_rows(session, Precheck, Precheck.assignment_id == assignment.id, Precheck.user_id == user_id)
    documents = in_language(content.documents, assignment.language)
    row = Precheck(
        id=new_id(),
        assignment_id=assignment.id,
        user_id=user_id,
        source=source,
        documents=[document.model_dump(mode="json") for document in documents],
        created_at=moment,
    )
    session.add(row)
    session.flush()
    return row.id


def _unfinished(moment: datetime) -> ColumnElement[bool]:
    return Precheck.finished_at.is_(None) & (Precheck.created_at > moment - LOST_AFTER)


def find_precheck(session: Session, assignment_id: int, user_id: int) -> FoundPrecheck | None:
    """The last one of a student for an assignment, or None."""
    row = session.scalar(
        select(Precheck).where(Precheck.assignment_id == assignment_id, Precheck.user_id == user_id)
    )
    if row is None:
        return None
    return FoundPrecheck(
        id=row.id,
        source=row.source,
        created_at=row.created_at,
        started=row.started_at is not None,
        lost=row.finished_at is None and row.created_at <= now(session) - LOST_AFTER,
        outcome=None if row.outcome is None else PrecheckOutcome.model_validate(row.outcome),
    )


def list_waiting(session: Session, patience: timedelta, limit: int) -> list[str]:
    """Ids of prechecks that nobody has begun with for that long, and that are not lost, oldest first."""
    moment = now(session)
    waits = (Precheck.started_at.is_(None), _unfinished(moment), Precheck.created_at <= moment - patience)
    return list(session.scalars(select(Precheck.id).where(*waits).order_by(Precheck.created_at).limit(limit)))


def claim_precheck(session: Session, precheck_id: str) -> ClaimedPrecheck | None:
    """Begin with a precheck; None where somebody has, or where the student replaced it."""
    mine = update(Precheck).where(Precheck.id == precheck_id, Precheck.started_at.is_(None))
    if session.scalar(mine.values(started_at=now(session)).returning(Precheck.id)) is None:
        return None
    row = session.get_one(Precheck, precheck_id)
    version = versions.published_version(session, session.get_one(tables.Assignment, row.assignment_id))
    return ClaimedPrecheck(version.id, tuple(Document.model_validate(one) for one in row.documents))


def save_outcome(session: Session, precheck_id: str, outcome: PrecheckOutcome) -> None:
    """Store the outcome, unless the student replaced or submitted the code meanwhile."""
    query = update(Precheck).where(Precheck.id == precheck_id)
    content = outcome.model_dump(mode="json")
    session.execute(query.values(outcome=content, finished_at=now(session)))
