"""Accepting a hand-in: one transaction for the submission, its files, its first round and its outbox row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from grading.documents import HandIn, in_language
from grading.domain.errors import Forbidden
from grading.domain.model import RoundState, StageState
from grading.domain.rubric import Rubric
from grading.domain.stages import stages_of
from grading.store import idempotency_keys, outbox
from grading.store.assignments import versions
from grading.store.blobs import keep
from grading.store.change_tracking import BY_HAND
from grading.store.courses import groups
from grading.store.database import now
from grading.store.submissions import submission_policy
from grading.store.submissions.receipts import fingerprint, received
from grading.store.tables import (
    Assignment,
    Round,
    RoundStage,
    Submission,
    SubmissionFile,
    SubmissionMember,
    User,
    new_id,
)

Idempotency = idempotency_keys.Idempotency


@dataclass(frozen=True)
class Incoming:
    """A hand-in that was read and may be stored."""

    assignment_id: int
    student_id: int
    source: str
    """`form`, `api`, `webhook`, `cli`, `zip`, or the name of a learning platform."""
    handin: HandIn
    priority: Literal["interactive", "batch"] = "interactive"
    submitted_by: int | None = None
    idempotency: Idempotency | None = None
    at: datetime | None = None
    """When its last byte was here, where that was before it was handed in."""
    trusted: bool = False
    """Staff or a learning system say so: due date and number of hand-ins do not bind."""


@dataclass(frozen=True)
class Accepted:
    """What came of it; `repeated` when this very POST had been accepted before."""

    submission_id: str
    round_id: str
    repeated: bool = False


def accept(session: Session, incoming: Incoming) -> Accepted:
    """Store a hand-in and its first round, or find the one the same idempotency key led to."""
    before = _repeated(session, incoming.idempotency)
    if before is not None:
        return before
    assignment = session.get_one(Assignment, incoming.assignment_id)
    people = _locked(session, assignment, incoming.student_id)
    if incoming.trusted:
        submission_policy.require_current(assignment)
    else:
        moment = incoming.at or now(session)
        submission_policy.require_open(session, assignment, incoming.student_id, people, moment)
    submission = _add_submission(session, incoming, people)
    current = add_round(session, submission, assignment, reason="first", priority=incoming.priority)
    idempotency_keys.keep(session, incoming.idempotency, submission_id=submission.id)
    session.flush()
    news = {"type": "submission.received", "submission": submission.id}
    outbox.put(session, "event", f"received:{submission.id}", news)
    return Accepted(submission.id, current.id)


def _repeated(session: Session, idempotency: Idempotency | None) -> Accepted | None:
    row = idempotency_keys.find(session, idempotency)
    if row is None:
        return None
    if row.submission_id is None:
        raise idempotency_keys.KeyUsed
    round_id = session.execute(
        select(Round.id).where(Round.submission_id == row.submission_id, Round.current)
    ).scalar_one()
    return Accepted(row.submission_id, round_id, repeated=True)


def _locked(session: Session, assignment: Assignment, student_id: int) -> tuple[int, ...]:
    """The student and whom they hand in with, locked.

    These rows are the lock that keeps hand-in numbers apart, and an erasure from what comes in. Raises
    Forbidden.
    """
    people = groups.together(session, assignment, student_id)
    while True:
        rows = select(User.id, User.disabled).where(User.id.in_(people)).order_by(User.id).with_for_update()
        disabled = {row.id: row.disabled for row in session.execute(rows)}
        if disabled[student_id]:
            raise Forbidden("This student's account is disabled.")
        # whoever changes a group locks its members, too: now it stays as it is
        again = groups.together(session, assignment, student_id)
        if set(again) <= set(people):
            return again
        people = tuple(sorted({*people, *again}))


def _add_submission(session: Session, incoming: Incoming, people: Sequence[int]) -> Submission:
    number = max(
        highest for _, highest in submission_policy.taken(session, incoming.assignment_id, people).values()
    )
    moment = now(session)
    files = incoming.handin.files
    language = session.get_one(Assignment, incoming.assignment_id).language
    submission = Submission(
        id=new_id(),
        assignment_id=incoming.assignment_id,
        student_id=incoming.student_id,
        number=number + 1,
        source=incoming.source,
        documents=[
            document.model_dump(mode="json") for document in in_language(incoming.handin.documents, language)
        ],
        notes=list(incoming.handin.notes),
        submitted_by=incoming.submitted_by,
        created_at=min(incoming.at or moment, moment),
        fingerprint=fingerprint(received(file.name, file.data) for file in files),
    )
    session.add(submission)
    session.flush()
    for other in people:
        if other != incoming.student_id:
            session.add(SubmissionMember(submission_id=submission.id, user_id=other))
    names = keep(session, (file.data for file in files))
    for file, name in zip(files, names, strict=True):
        session.add(
            SubmissionFile(submission_id=submission.id, path=file.name, sha256=name, size=len(file.data))
        )
    return submission


def add_round(
    session: Session, submission: Submission, assignment: Assignment, *, reason: str, priority: str
) -> Round:
    """A new current round for a submission, with its outbox row."""
    version = versions.version(session, assignment)
    mine = select(Submission.id).where(Submission.id == submission.id)
    # not the key: who holds a round, which this may wait for, refers to it
    session.execute(mine.with_for_update(key_share=True))
    earlier = update(Round).where(Round.submission_id == submission.id).values(current=False)
    session.execute(earlier.execution_options(**BY_HAND))  # the new one touches the same
    number = session.execute(
        select(func.coalesce(func.max(Round.number), 0)).where(Round.submission_id == submission.id)
    ).scalar_one()
    new = Round(
        id=new_id(),
        submission_id=submission.id,
        number=number + 1,
        reason=reason,
        rubric_version_id=version.id,
        state=RoundState.RECEIVED,
        priority=priority,
        course_id=assignment.course_id,
        student_id=submission.student_id,
        created_at=now(session),
    )
    session.add(new)
    session.flush()
    for stage in stages_of(Rubric.model_validate(version.rubric)):
        waits = RoundStage(round_id=new.id, stage=stage, state=StageState.WAITING, priority=priority)
        session.add(waits)
    outbox.put(session, "prepare", new.id, {})
    return new
