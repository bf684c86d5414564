"""Idempotency keys: a repeated POST takes effect once and gets the first answer again."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from grading.domain.errors import GraderError
from grading.domain.messages import define_message
from grading.store.database import now
from grading.store.tables import IdempotencyKey


@dataclass(frozen=True)
class Idempotency:
    """A caller's key of one POST, with the hash of its body."""

    caller: str
    key: str
    body_hash: str


class KeyUsed(GraderError):
    """This Idempotency-Key was already used for another request. Send a new key."""

    code = "idempotency_key_reused"
    status = 422
    default_message = define_message(
        "error.key_used", "This Idempotency-Key was already used for another request. Send a new key."
    )


def find_key(session: Session, wanted: Idempotency | None) -> IdempotencyKey | None:
    """The row of a key, or None. Raises KeyUsed where the key belongs to another request."""
    row = session.get(IdempotencyKey, (wanted.caller, wanted.key)) if wanted is not None else None
    if row is not None and wanted is not None and row.body_hash != wanted.body_hash:
        raise KeyUsed
    return row


def store_key(
    session: Session, used: Idempotency | None, *, submission_id: str | None = None
) -> IdempotencyKey | None:
    """Store the key in the transaction of its effect; its `answer` is filled in later.

    Called before anything else, it makes requests with the same key wait. Raises IntegrityError for those.
    """
    if used is None:
        return None
    row = IdempotencyKey(
        caller=used.caller, key=used.key, body_hash=used.body_hash, submission_id=submission_id,
        created_at=now(session),
    )  # fmt: skip
    session.add(row)
    session.flush()
    return row
