"""Who a page's reader is: everything that stands around a page, in one query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, case, exists, func, select
from sqlalchemy.orm import Session

from grading.domain.permissions import STAFF, Actor
from grading.store.accounts import users
from grading.store.tables import Membership, OpenSession, RegradeRequest, User


@dataclass(frozen=True)
class SignedInUser:
    """Somebody who is signed in; the stamp is that of their sessions."""

    name: str
    actor: Actor
    stamp: str
    language: str
    """Of the pages; empty: as the browser asks for."""
    open_requests: int
    """Requests for a regrade that wait in the courses they are staff of."""


_OPEN = select(func.count()).where(RegradeRequest.state == "open")
_HERE = _OPEN.where(RegradeRequest.course_id == Membership.course_id).correlate(Membership)
_WAITING = case(
    (User.administrator, _OPEN.scalar_subquery()),
    (Membership.role.in_(sorted(STAFF)), _HERE.scalar_subquery()),
    else_=0,
)
"""Of all courses for an administrator, else of the course of the row."""
_READER = (
    select(
        User.name,
        User.administrator,
        User.language,
        User.sessions,
        User.password_hash,
        Membership.course_id,
        Membership.role,
        _WAITING.label("waiting"),
    )
    .outerjoin(Membership, Membership.user_id == User.id)
    .where(and_(User.id == bindparam("user_id"), ~User.disabled))
)


_OPEN_HERE = exists().where(OpenSession.id == bindparam("session_id"), OpenSession.user_id == User.id)
_READER_OF_SESSION = _READER.where(_OPEN_HERE)


def find(session: Session, user_id: int) -> SignedInUser | None:
    """The user with this number who may sign in, or nothing."""
    return _found(user_id, session.execute(_READER, {"user_id": user_id}).all())


def find_by_session(session: Session, user_id: int, session_id: str) -> SignedInUser | None:
    """The same for a session of theirs that is open, also in one query."""
    given = {"user_id": user_id, "session_id": session_id}
    return _found(user_id, session.execute(_READER_OF_SESSION, given).all())


def _found(user_id: int, rows: Sequence[Any]) -> SignedInUser | None:
    if not rows:
        return None
    first = rows[0]
    roles = {row.course_id: row.role for row in rows if row.course_id is not None}
    waiting = first.waiting if first.administrator else sum(row.waiting for row in rows)
    return SignedInUser(
        name=first.name,
        actor=Actor(user_id, first.administrator, roles),
        stamp=users.stamp_of(first.sessions, first.password_hash),
        language=first.language,
        open_requests=waiting,
    )
