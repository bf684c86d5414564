"""One-time links that set a password: invitations and resets."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.store import tables
from grading.store.accounts import credentials, users
from grading.store.audit import write_audit
from grading.store.database import Store, now

VALID_FOR = timedelta(days=7)


class LinkGone(NotFound):
    """This link was already used, is older than 7 days, or was replaced by a newer one."""

    default_message = define_message(
        "error.link_gone",
        "This link was already used, is older than 7 days, or was replaced by a newer one. Ask for a "
        "new link.",
    )


def create_links(
    session: Session,
    user_ids: Sequence[int],
    by: str,
    maker: int,
    course_id: int | None = None,
    *,
    replace: bool = True,
) -> Mapping[int, str]:
    """Create a secret for each of these users, valid for 7 days; its SHA-256 is stored.

    With `replace`, earlier links expire; else they stay valid until one of them is used.
    """
    if replace:
        users.expire_reset_links(session, user_ids)
    moment, made = now(session), {}
    for user_id in user_ids:
        made[user_id] = secrets.token_urlsafe(32)
        row = tables.ResetLink(
            user_id=user_id,
            hash=_hash(made[user_id]),
            created_by=maker,
            created_at=moment,
            expires_at=moment + VALID_FOR,
        )
        session.add(row)
        write_audit(session, by, "link.make", f"user:{user_id}", course_id=course_id)
    session.flush()
    return made


def link_owner(session: Session, secret: str) -> tables.User:
    """The user whose password a link sets. Raises LinkGone."""
    return _open(session, secret)[1]


def use_link(store: Store, secret: str, password: str) -> int:
    """Set the password of a link's owner and revoke their tokens; returns their id.

    Raises LinkGone, also for the second of two uses.
    """
    with store.read() as session:
        link_owner(session, secret)  # before the slow part, which nobody may have for nothing
    hashed = users.hash_password(password)
    with store.write() as session:
        link, user = _open(session, secret, lock=True)
        link.used_at = now(session)
        users.set_password(session, user, password, hashed)
        # who could sign in before may have made tokens, and nobody knows that they did not
        credentials.revoke_tokens(session, user.id, f"user:{user.id}")
    return user.id


def _open(session: Session, secret: str, lock: bool = False) -> tuple[tables.ResetLink, tables.User]:
    query = select(tables.ResetLink).where(tables.ResetLink.hash == _hash(secret))
    link = session.scalar(query.with_for_update() if lock else query)
    if link is None or link.used_at is not None or link.expires_at <= now(session):
        raise LinkGone
    user = session.get_one(tables.User, link.user_id)
    if user.disabled:
        raise LinkGone
    return link, user


def pending_until(session: Session, user_ids: Sequence[int]) -> Mapping[int, datetime]:
    """Expiry of each user's open link; users without one are left out."""
    link = tables.ResetLink
    query = select(link.user_id, link.expires_at).where(
        link.user_id.in_(user_ids), link.used_at.is_(None), link.expires_at > now(session)
    )
    return {row.user_id: row.expires_at for row in session.execute(query)}


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
