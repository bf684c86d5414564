"""Preparing a round: from received to queued, with a sandbox run in between where needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, bindparam, select, update
from sqlalchemy.orm import Session

from grading.domain.messages import Message
from grading.domain.round_states import RoundState
from grading.store import outbox
from grading.store.change_tracking import TRACKED_MANUALLY, mark_changed
from grading.store.database import insert_into, now
from grading.store.rounds import queue
from grading.store.tables import Base, Outbox, Round, Submission, User

PREPARING = ("prepare", "execute")
"""Kinds of outbox rows of a round that is not prepared: its checks, and its sandbox run."""


@dataclass(frozen=True)
class ReceivedRound:
    """A round to be prepared, with its student."""

    submission_id: str
    rubric_version_id: int
    priority: str
    documents: Any
    name: str
    email: str
    subjects: tuple[str, ...]
    """The student's ids at other systems."""
    files: Mapping[str, str]
    """Path -> SHA-256 of what was submitted."""


# made once: putting a statement together costs more than running it
_ROUNDS, _OUTBOX, _IDENTITIES, _FILES, _ANSWERS = (
    Base.metadata.tables[name] for name in ("rounds", "outbox", "identities", "submission_files", "answers")
)
_RECEIVED = (
    select(
        Submission.id,
        Round.rubric_version_id,
        Round.priority,
        Submission.documents,
        User.name,
        User.email,
        Submission.student_id,
    )
    .join(Submission, Submission.id == Round.submission_id)
    .join(User, User.id == Submission.student_id)
    .where(Round.id == bindparam("at_round"), Round.state == RoundState.RECEIVED)
)
_SUBJECTS = select(_IDENTITIES.c.subject).where(_IDENTITIES.c.user_id == bindparam("of"))
_PATHS = select(_FILES.c.path, _FILES.c.sha256).where(_FILES.c.submission_id == bindparam("of"))
_QUEUE = (
    _ROUNDS.update()
    .where(_ROUNDS.c.id == bindparam("at_round"), _ROUNDS.c.state == RoundState.RECEIVED)
    .values(
        state=RoundState.QUEUED,
        prepared=bindparam("content"),
        prepared_at=bindparam("at"),
        queue_turn=queue.NEXT_TURN,
    )
    .returning(_ROUNDS.c.submission_id)
)
_PREPARED = (
    _OUTBOX.update()
    .where(_OUTBOX.c.kind.in_(PREPARING), _OUTBOX.c.key == bindparam("at_round"))
    # why it was put off before is no error of a row that is done
    .values(done_at=bindparam("at"), error="")
)


def load_received(session: Session, round_id: str) -> ReceivedRound | None:
    """The round, or None if it is prepared or has failed."""
    row = session.connection().execute(_RECEIVED, {"at_round": round_id}).one_or_none()
    if row is None:
        return None
    return ReceivedRound(
        submission_id=row.id,
        rubric_version_id=row.rubric_version_id,
        priority=row.priority,
        documents=row.documents,
        name=row.name,
        email=row.email,
        subjects=tuple(session.connection().execute(_SUBJECTS, {"of": row.student_id}).scalars()),
        files={file.path: file.sha256 for file in session.connection().execute(_PATHS, {"of": row.id})},
    )


def save_prepared(
    session: Session,
    round_id: str,
    prepared: dict[str, Any],
    assignment_id: int = 0,
    answers: Sequence[Mapping[str, Any]] = (),
) -> bool:
    """received → queued: store the documents and evidence that all its jobs contain.

    `answers` are the columns of its answers to criteria, which groups of answers compare.
    """
    at = {"at_round": round_id, "at": now(session)}
    done = session.connection().execute(_QUEUE, {**at, "content": prepared}).scalars().all()
    mark_changed(session, done)
    session.connection().execute(_PREPARED, at)
    if done and answers:
        of_it = {"round_id": round_id, "submission_id": done[0], "assignment_id": assignment_id}
        session.connection().execute(_ANSWERS.insert(), [{**of_it, **row} for row in answers])
    return bool(done)


def hand_on(session: Session, round_id: str) -> bool:
    """Add the outbox row of a received round's sandbox run.

    False when there is one already, or the round is prepared: a repeated announcement must not start it
    again.
    """
    mine = (Outbox.kind == "prepare", Outbox.key == round_id, Outbox.done_at.is_(None))
    done = update(Outbox).where(*mine).values(done_at=now(session)).returning(Outbox.id)
    if session.execute(done).first() is None:
        return False
    if not outbox.reopen(session, "execute", round_id):
        outbox.add(session, "execute", round_id, {})
    return True


def close_executions(session: Session, round_ids: Sequence[str]) -> None:
    """Close the outbox rows of these rounds' sandbox runs."""
    rows = (Outbox.kind == "execute", Outbox.key.in_(round_ids), Outbox.done_at.is_(None))
    session.execute(update(Outbox).where(*rows).values(done_at=now(session), error=""))


def list_priorities(session: Session, round_ids: Sequence[str]) -> dict[str, str]:
    """The priority of each of these rounds that is received."""
    rows = session.execute(
        select(Round.id, Round.priority).where(Round.id.in_(round_ids), Round.state == RoundState.RECEIVED)
    )
    return {row.id: row.priority for row in rows}


def student_of(session: Session, round_id: str) -> int | None:
    """Id of the round's student, or None when there is no such round."""
    return session.execute(select(Round.student_id).where(Round.id == round_id)).scalar_one_or_none()


def reject_round(session: Session, round_id: str, why: Message) -> None:
    """received → failed: the round cannot be prepared."""
    moment = now(session)
    failed = session.execute(
        update(Round)
        .where(Round.id == round_id, Round.state == RoundState.RECEIVED)
        .values(state=RoundState.FAILED, failure=why, finished_at=moment)
        .returning(Round.submission_id, Round.current)
        .execution_options(**TRACKED_MANUALLY)
    ).all()
    mark_changed(session, [row.submission_id for row in failed])
    for row in failed:
        if row.current:  # of a dry run nobody hears
            news = {"type": "submission.failed", "submission": row.submission_id}
            outbox.add(session, "event", f"failed:{round_id}", news)
    rows = (Outbox.kind.in_(PREPARING), Outbox.key == round_id)
    # why it was put off before is no error of a row that is done
    session.execute(update(Outbox).where(*rows).values(done_at=moment, error=""))


_EXECUTIONS: Table = Base.metadata.tables["cached_executions"]


def find_execution(session: Session, key: str) -> Any | None:
    """The result under that key as JSON, or None."""
    return session.execute(select(_EXECUTIONS.c.content).where(_EXECUTIONS.c.key == key)).scalar_one_or_none()


def store_execution(session: Session, key: str, submission_id: str | None, content: dict[str, Any]) -> None:
    """Store a result; one that is stored stays."""
    row = {"key": key, "submission_id": submission_id, "content": content, "created_at": now(session)}
    session.execute(insert_into(session, _EXECUTIONS).values(row).on_conflict_do_nothing())
