"""Signing secrets of learning systems that were made here: at most two live ones for each connection.

HMAC needs the secret itself, so no hash of it can be kept. What is kept is a salt; the secret is made of that
and of the server's own key, which is in no database and no backup of one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, NotFound
from grading.store.audit import note
from grading.store.database import now
from grading.store.tables import WebhookSecret

MOST = 2
"""One that is used and one that takes its place."""


@dataclass(frozen=True)
class Made:
    """A secret just made; `secret` is shown once."""

    id: int
    secret: str


def add(session: Session, connection: str, secret_key: str, actor: str) -> Made:
    """A new secret beside the one there may be. Raises Conflict when two are live."""
    query = select(WebhookSecret.id).where(*_live(connection)).with_for_update()
    if len(session.scalars(query).all()) >= MOST:
        raise Conflict(
            f"'{connection}' has two live secrets already. End the old one first: "
            "grader webhook secret end ID."
        )
    row = WebhookSecret(
        connection=connection, salt=secrets.token_hex(32), created_at=now(session), created_by=actor[:100]
    )
    session.add(row)
    session.flush()
    note(session, actor, "webhook_secret.create", f"webhook_secret:{row.id}", {"connection": connection})
    return Made(row.id, _made(secret_key, connection, row.salt))


def live(session: Session, connection: str, secret_key: str) -> list[str]:
    """The secrets that verify messages of this connection now."""
    salts = session.scalars(select(WebhookSecret.salt).where(*_live(connection)).order_by(WebhookSecret.id))
    return [_made(secret_key, connection, salt) for salt in salts]


@dataclass(frozen=True)
class Line:
    """A secret in a list, without itself."""

    id: int
    connection: str
    created_at: datetime
    created_by: str
    ended_at: datetime | None


def lines(session: Session) -> list[Line]:
    """All of them, ended ones too."""
    table = WebhookSecret
    columns = (table.id, table.connection, table.created_at, table.created_by, table.ended_at)
    return [Line(*row) for row in session.execute(select(*columns).order_by(table.connection, table.id))]


def end(session: Session, number: int, actor: str) -> str:
    """Let a secret verify nothing more; returns whose it was. Raises NotFound."""
    row = session.get(WebhookSecret, number)
    if row is None:
        raise NotFound(f"There is no secret {number}; `grader webhook secret list` has them.")
    if row.ended_at is None:
        row.ended_at = now(session)
        detail = {"connection": row.connection}
        note(session, actor, "webhook_secret.end", f"webhook_secret:{number}", detail)
    return row.connection


def _live(connection: str) -> tuple[ColumnElement[bool], ...]:
    return (WebhookSecret.connection == connection, WebhookSecret.ended_at.is_(None))


def _made(secret_key: str, connection: str, salt: str) -> str:
    text = f"webhook secret:{connection}:{salt}".encode()
    key = hmac.new(secret_key.encode(), text, hashlib.sha256).digest()
    return "whsec_" + base64.b64encode(key).decode()
