"""One-time links that set a password: invitations and resets, and whom one may make them for."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, exists, func, select
from sqlalchemy.orm import Session

from grading.domain.errors import Forbidden, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import STAFF, Actor
from grading.store import tables
from grading.store.accounts import credentials, users
from grading.store.audit import write_audit
from grading.store.bulk import chunks
from grading.store.courses.roster import PERSON_COLUMNS, Person, people_of
from grading.store.database import Store, now

LINK_BY_ADMINISTRATOR = define_message(
    "invitations.link_by_administrator",
    "An administrator creates links for staff, for disabled accounts, and for people who are also in "
    "courses that you do not teach.",
)
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
    """Set the password of a link's owner; their tokens end, linked sign-ins are locked. Returns their id.

    Raises LinkGone, also for the second of two uses.
    """
    with store.read() as session:
        link_owner(session, secret)  # before the slow part, which nobody may have for nothing
    hashed = users.hash_password(password)
    with store.write() as session:
        link, user = _open(session, secret, lock=True)
        link.used_at = now(session)
        users.set_password(session, user, password, hashed)
        credentials.end_what_was_added(session, user.id, f"user:{user.id}")
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


def require_invitable(session: Session, actor: Actor, course_id: int, user_ids: Sequence[int]) -> None:
    """Raise Forbidden unless the actor may make password links for all these members of the course.

    Administrators may for everybody; instructors for students who are staff nowhere and whose courses they
    all teach, as anybody who knows an id can add its owner to a course.
    """
    if set(user_ids) - set(list_invitable(session, actor, course_id, user_ids)):
        raise Forbidden(LINK_BY_ADMINISTRATOR)


@dataclass(frozen=True)
class Uninvited:
    """The members of a course who have no password."""

    total: int
    people: tuple[Person, ...]
    """Those for whom the actor may make links, by name; MOST_INVITED at most."""
    invitable: int


MOST_INVITED = 500
"""People who are listed to be invited."""


def list_uninvited(session: Session, actor: Actor, course_id: int) -> Uninvited:
    """Whom the actor may invite; the others of `total` are invited by an administrator."""
    ids = list_invitable(session, actor, course_id)
    rows = session.execute(_named(), {"course_id": course_id, "user_ids": list(ids[:MOST_INVITED])}).all()
    return Uninvited(count_uninvited(session, course_id), people_of(session, rows), len(ids))


@cache
def _named() -> Any:
    here = tables.Membership
    query = select(*PERSON_COLUMNS, here.role).join(here, here.user_id == tables.User.id)
    query = query.where(here.course_id == bindparam("course_id"))
    query = query.where(tables.User.id.in_(bindparam("user_ids", expanding=True)))
    return query.order_by(func.lower(tables.User.name), tables.User.id)


def count_uninvited(session: Session, course_id: int) -> int:
    """Number of members of the course with a sign-in name and no password.

    `list_invitable` says, more slowly, which of them the actor may make links for.
    """
    return session.scalar(_uninvited(), {"course_id": course_id}) or 0


@cache
def _uninvited() -> Select[int]:
    here = tables.Membership
    return (
        select(func.count())
        .select_from(tables.User)
        .join(here, here.user_id == tables.User.id)
        .where(here.course_id == bindparam("course_id"), _signs_in())
        .where(tables.User.disabled.is_(False), tables.User.password_hash.is_(None))
    )


def _signs_in() -> ColumnElement[bool]:
    return exists().where(tables.Identity.user_id == tables.User.id, tables.Identity.provider == "local")


def _only_theirs() -> tuple[ColumnElement[bool], ...]:
    """Users whose submissions and memberships are all in the actor's courses.

    Also of users without a password: whoever sets the first one owns the account from then on.
    """
    taught: Any = bindparam("taught", expanding=True)
    other, own, work = tables.Membership.__table__.alias(), tables.Assignment, tables.Submission
    elsewhere = exists().where(other.c.user_id == tables.User.id, other.c.course_id.not_in(taught))
    theirs = select(own.id).where(own.course_id.in_(taught))
    worked = exists().where(work.student_id == tables.User.id, work.assignment_id.not_in(theirs))
    return ~worked, ~elsewhere


def list_invitable(
    session: Session, actor: Actor, course_id: int, user_ids: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Those of these members (None: all without a password) for whom the actor may make password links."""
    taught = [course for course, role in actor.roles.items() if role == "instructor"]
    given = {"course_id": course_id, "taught": taught}
    query = _linkable(actor.administrator, user_ids is not None)
    if user_ids is None:
        return tuple(session.scalars(query, given))
    these = ({**given, "user_ids": list(some)} for some in chunks(user_ids))
    allowed = {one for some in these for one in session.scalars(query, some)}
    return tuple(one for one in user_ids if one in allowed)


@cache
def _linkable(by_administrator: bool, some: bool) -> Any:
    here, other = tables.Membership, tables.Membership.__table__.alias()
    query: Any = select(tables.User.id).join(here, here.user_id == tables.User.id)
    query = query.where(
        here.course_id == bindparam("course_id"), tables.User.disabled.is_(False), _signs_in()
    )
    if not by_administrator:
        anywhere = exists().where(other.c.user_id == tables.User.id, other.c.role.in_(STAFF))
        query = query.where(here.role == "student", ~anywhere, tables.User.administrator.is_(False))
        query = query.where(*_only_theirs())
    wanted = tables.User.id.in_(bindparam("user_ids", expanding=True))
    query = query.where(wanted if some else tables.User.password_hash.is_(None))
    return query.order_by(tables.User.name, tables.User.id)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
