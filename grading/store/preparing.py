"""A round until it is prepared: its work may have to be run first, and it becomes queued or is given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from grading.model import RoundState
from grading.store import outbox, waiting
from grading.store.database import now
from grading.store.rounds import storable
from grading.store.tables import Outbox, Round
from grading.store.touches import BY_HAND, touch

PREPARING = ("prepare", "trial")
"""Outbox rows of a round that is not prepared yet: its checks, and the running of its work."""


def save_prepared(session: Session, round_id: str, prepared: dict[str, Any]) -> bool:
    """received → queued, with the documents and evidence all its jobs carry."""
    moment = now(session)
    done = (
        session.execute(
            update(Round)
            .where(Round.id == round_id, Round.state == RoundState.RECEIVED)
            .values(state=RoundState.QUEUED, prepared=prepared, prepared_at=moment, line=waiting.LAST_IN_LINE)
            .returning(Round.submission_id)
            .execution_options(**BY_HAND)
        )
        .scalars()
        .all()
    )
    touch(session, done)
    rows = (Outbox.kind.in_(PREPARING), Outbox.key == round_id)
    # why it was put off before is no error of a row that is done
    session.execute(update(Outbox).where(*rows).values(done_at=moment, error=""))
    return bool(done)


def hand_on(session: Session, round_id: str) -> bool:
    """The work of a received round is to be run: from now on the row "trial" says that it waits.

    False when it was handed on before, or is prepared: a second announcement must not begin it again.
    """
    mine = (Outbox.kind == "prepare", Outbox.key == round_id, Outbox.done_at.is_(None))
    done = update(Outbox).where(*mine).values(done_at=now(session)).returning(Outbox.id)
    if session.execute(done).first() is None:
        return False
    if not outbox.again(session, "trial", round_id):
        outbox.put(session, "trial", round_id, {})
    return True


def close_trials(session: Session, round_ids: Sequence[str]) -> None:
    """Nothing is to be run for these rounds any more."""
    rows = (Outbox.kind == "trial", Outbox.key.in_(round_ids), Outbox.done_at.is_(None))
    session.execute(update(Outbox).where(*rows).values(done_at=now(session), error=""))


def priorities(session: Session, round_ids: Sequence[str]) -> dict[str, str]:
    """The priority of each of these rounds that is still to be prepared."""
    rows = session.execute(
        select(Round.id, Round.priority).where(Round.id.in_(round_ids), Round.state == RoundState.RECEIVED)
    )
    return {row.id: row.priority for row in rows}


def student_of(session: Session, round_id: str) -> int | None:
    """Whose work it is; nothing when there is no such round."""
    return session.execute(select(Round.student_id).where(Round.id == round_id)).scalar_one_or_none()


def reject(session: Session, round_id: str, sentence: str) -> None:
    """received → failed: the round cannot be prepared, whoever tries."""
    moment = now(session)
    failed = session.execute(
        update(Round)
        .where(Round.id == round_id, Round.state == RoundState.RECEIVED)
        .values(state=RoundState.FAILED, failure=storable(sentence), finished_at=moment)
        .returning(Round.submission_id, Round.current)
        .execution_options(**BY_HAND)
    ).all()
    touch(session, [row.submission_id for row in failed])
    for row in failed:
        if row.current:  # of a dry run nobody hears
            news = {"type": "submission.failed", "submission": row.submission_id}
            outbox.put(session, "event", f"failed:{round_id}", news)
    rows = (Outbox.kind.in_(PREPARING), Outbox.key == round_id)
    # why it was put off before is no error of a row that is done
    session.execute(update(Outbox).where(*rows).values(done_at=moment, error=""))
