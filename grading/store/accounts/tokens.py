"""API tokens as their owners see them, and their end; `accounts` makes and verifies them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.errors import NotFound
from grading.store import tables
from grading.store.audit import note
from grading.store.database import now

TOKENS = 25
"""Of a page."""


@dataclass(frozen=True)
class TokenView:
    """A token as its owner sees it."""

    id: int
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    active: bool


def revoke_token(session: Session, user_id: int, token_id: int) -> None:
    """End one's own token. Raises NotFound for those of others."""
    row = session.get(tables.Token, token_id)
    if row is None or row.user_id != user_id:
        raise NotFound("There is no such token of yours.")
    row.revoked_at = row.revoked_at or now(session)
    note(session, f"user:{user_id}", "token.revoke", f"token:{token_id}")


def revoke_tokens(session: Session, user_id: int, by: str) -> int:
    """End all tokens of somebody whose password may have been known to others; says how many."""
    query = select(tables.Token).where(tables.Token.user_id == user_id, tables.Token.revoked_at.is_(None))
    rows, moment = session.scalars(query.order_by(tables.Token.id)).all(), now(session)
    for row in rows:
        row.revoked_at = moment
        note(session, by, "token.revoke", f"token:{row.id}")
    return len(rows)


def tokens_of(session: Session, user_id: int, before: int | None = None) -> tuple[TokenView, ...]:
    """A user's tokens, the newest first: so many as a page has and one more, from before a number on."""
    moment = now(session)
    token = tables.Token
    columns = (token.id, token.name, token.scopes, token.created_at, token.expires_at, token.revoked_at)
    query = select(*columns).where(token.user_id == user_id).order_by(token.id.desc())
    if before is not None:
        query = query.where(token.id < before)
    return tuple(
        TokenView(
            row.id,
            row.name,
            tuple(row.scopes),
            row.created_at,
            row.expires_at,
            row.revoked_at is None and row.expires_at > moment,
        )
        for row in session.execute(query.limit(TOKENS + 1))
    )
