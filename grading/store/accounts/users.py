"""Users: accounts, identities, roles, and the signed-in user of a request."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy import and_, bindparam, case, exists, func, select, true, update
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, Forbidden, GraderError
from grading.domain.messages import define_message
from grading.domain.permissions import SCOPES, STAFF, Actor
from grading.domain.shared_messages import ACCOUNT_DISABLED
from grading.store import tables
from grading.store.accounts import sessions as open_sessions
from grading.store.accounts import sign_in_attempts
from grading.store.audit import write_audit
from grading.store.database import now
from grading.store.tables import Membership, OpenSession, RegradeRequest, User

SUBJECT_FORM = define_message("accounts.subject_form", "A sign-in name needs 1 to 200 printable characters.")
SUBJECT_TAKEN = define_message(
    "accounts.subject_taken", "The sign-in name '%(subject)s' is already taken. Choose another one."
)
PASSWORD_TOO_SHORT = define_message(
    "accounts.password_too_short", "A password needs at least %(least)s characters."
)
PASSWORD_TOO_LONG = define_message(
    "accounts.password_too_long", "A password has at most %(most)s characters."
)
STUDENT_ID_FORM = define_message(
    "accounts.student_id_form", "A student's ID needs 1 to 200 printable characters."
)
ROLE_UNKNOWN = define_message("accounts.role_unknown", "Choose a role: student, grader or instructor.")
NO_SCOPE = define_message("accounts.no_scope", "A token needs at least one of the scopes %(scopes)s.")
MOST_DAILY_TOKENS = 10**12
TOKEN_TOO_LONG = define_message("accounts.token_too_long", "A token is valid for at most 730 days.")
ID_OF_STAFF = define_message(
    "accounts.id_of_staff", "The ID '%(subject)s' belongs to staff. Enter the student's ID."
)
ACCOUNT_IN_NO_COURSE = define_message(
    "accounts.account_in_no_course",
    "The account '%(subject)s' is not in a course yet. Ask an administrator to add it to its first course.",
)

MIN_PASSWORD = 10
MAX_PASSWORD = 1000
_HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


@dataclass(frozen=True)
class NewToken:
    """A new token; `secret` is shown once and not stored."""

    id: int
    secret: str


def create_user(
    session: Session,
    sign_in_name: str,
    password: str | None = None,
    *,
    name: str = "",
    email: str = "",
    administrator: bool = False,
) -> tables.User:
    """Create a user with the `local` identity `sign_in_name`. Raises Conflict when it is taken."""
    subject = sign_in_name.strip()
    if not 0 < len(subject) <= 200 or not subject.isprintable():
        raise GraderError(SUBJECT_FORM)
    if find_user(session, "local", subject) is not None:
        raise Conflict(SUBJECT_TAKEN(subject=subject))
    user = tables.User(
        name=name or subject, email=email, administrator=administrator, created_at=now(session)
    )
    if password is not None:
        user.password_hash = hash_password(password)
    user.identities.append(tables.Identity(provider="local", subject=subject))
    session.add(user)
    session.flush()
    return user


def ensure_administrator(session: Session) -> str | None:
    """Create the user `admin` if there is no administrator; returns its new password, else None."""
    if session.scalar(select(tables.User.id).where(tables.User.administrator).limit(1)) is not None:
        return None
    password = secrets.token_urlsafe(12)
    user = create_user(session, "admin", password, name="Administrator", administrator=True)
    write_audit(session, "system", "user.create", f"user:{user.id}", {"administrator": True})
    return password


def hash_password(password: str) -> str:
    """The Argon2id hash (19 MiB, two passes) of a password of at least 10 characters."""
    if len(password) < MIN_PASSWORD:
        raise GraderError(PASSWORD_TOO_SHORT(least=MIN_PASSWORD))
    if len(password) > MAX_PASSWORD:
        raise GraderError(PASSWORD_TOO_LONG(most=MAX_PASSWORD))
    return _HASHER.hash(password)


def set_password(
    session: Session, user: tables.User, password: str, hashed: str = "", *, keep: str = ""
) -> None:
    """Set a user's password; ends password links and sessions but one, resets sign-in counters."""
    user.password_hash = hashed or hash_password(password)
    sign_in_attempts.reset_account(session, user.id)
    open_sessions.end_sessions(session, user.id, keep)
    expire_reset_links(session, [user.id])
    write_audit(session, f"user:{user.id}", "password.set", f"user:{user.id}")


def expire_reset_links(session: Session, user_ids: Sequence[int], *, of_instructors: bool = False) -> None:
    """Expire the open password links of these users, or only those that instructors made."""
    moment, link = now(session), tables.ResetLink
    administrators = select(tables.User.id).where(tables.User.administrator)
    of_these = link.created_by.not_in(administrators) if of_instructors else true()
    for start in range(0, len(user_ids), 500):
        theirs = link.user_id.in_(user_ids[start : start + 500])
        open_ones = update(link).where(theirs, of_these, link.used_at.is_(None), link.expires_at > moment)
        session.execute(open_ones.values(expires_at=moment))


def password_matches(stored: str | None, password: str) -> bool:
    """Whether a password matches its hash. Without a hash it is False after the same computation."""
    try:
        if stored is None:
            _HASHER.hash(password)
            return False
        return _HASHER.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False


def session_stamp(user: tables.User) -> str:
    """A short digest that changes with the password, and when all sessions are ended."""
    return stamp_of(user.sessions, user.password_hash)


def stamp_of(sessions: int, password_hash: str | None) -> str:
    """The session stamp from the columns it depends on."""
    stamp = f"{sessions}:{password_hash or ''}" if sessions else password_hash or ""
    return hashlib.sha256(stamp.encode()).hexdigest()[:16]


def find_user(session: Session, provider: str, subject: str) -> tables.User | None:
    """The user with this identity, or None."""
    if not subject.isprintable():
        return None
    query = select(tables.User).join(tables.Identity)
    return session.scalar(
        query.where(tables.Identity.provider == provider, tables.Identity.subject == subject)
    )


def list_names(session: Session, user_ids: Sequence[int]) -> tuple[str, ...]:
    """The names of these users, of those that there are, in the order of names."""
    if not user_ids:
        return ()
    query = select(tables.User.name).where(tables.User.id.in_(user_ids))
    return tuple(session.scalars(query.order_by(tables.User.name)))


def sign_in_name(session: Session, user_id: int) -> str:
    """A user's `local` subject; empty for users of other providers only."""
    query = select(tables.Identity.subject).where(
        tables.Identity.user_id == user_id, tables.Identity.provider == "local"
    )
    return session.scalar(query.order_by(tables.Identity.id).limit(1)) or ""


def has_password(session: Session, user_id: int) -> bool:
    """Whether a user has a password of Grader."""
    found = select(tables.User.id).where(tables.User.id == user_id, tables.User.password_hash.is_not(None))
    return session.scalar(found) is not None


def find_or_create_student(
    session: Session, provider: str, subject: str, name: str, email: str, course_id: int
) -> tables.User:
    """The student with this identity, created and enrolled if needed. Staff keep their role."""
    subject = subject.strip()
    name, email = printable(name), printable(email)
    if not 0 < len(subject) <= 200 or not subject.isprintable():
        raise GraderError(STUDENT_ID_FORM)
    user = find_user(session, provider, subject)
    known = user is not None
    if user is None:
        user = tables.User(name=(name or subject)[:200], email=email[:200], created_at=now(session))
        user.identities.append(tables.Identity(provider=provider, subject=subject))
        session.add(user)
        session.flush()
        write_audit(session, "system", "user.create", f"user:{user.id}", {"provider": provider})
    if user.disabled:
        raise Forbidden(ACCOUNT_DISABLED)
    if session.get(tables.Membership, (user.id, course_id)) is None:
        if user.administrator or set(roles(session, user.id).values()) - {"student"}:
            raise Forbidden(ID_OF_STAFF(subject=subject))
        homeless = known and provider == "local" and not roles(session, user.id)
        if homeless and user.id not in former_members(session, course_id, [user.id]):
            raise Forbidden(ACCOUNT_IN_NO_COURSE(subject=subject))
        enrol(session, user.id, course_id, "student")
    return user


def former_members(session: Session, course_id: int, user_ids: Sequence[int]) -> frozenset[int]:
    """Users with submissions in the course, or removed from it, by the audit.

    An account without courses may belong to future staff: an instructor who adds it to their own course
    could make a link to its password. Only former members of the same course come back without an
    administrator.
    """
    found: set[int] = set()
    work, own, log = tables.Submission, tables.Assignment, tables.Audit
    for start in range(0, len(user_ids), 500):
        some = user_ids[start : start + 500]
        submitted = select(work.student_id).join(own, own.id == work.assignment_id)
        found.update(session.scalars(submitted.where(own.course_id == course_id, work.student_id.in_(some))))
        names = {f"user:{one}": one for one in some}
        removed = select(log.object).where(log.action == "roster.remove", log.course_id == course_id)
        found.update(names[one] for one in session.scalars(removed.where(log.object.in_(names))))
    return frozenset(found)


def enrol(session: Session, user_id: int, course_id: int, role: str) -> None:
    """Give a user a role in a course, replacing an earlier one."""
    if role not in ("student", "grader", "instructor"):
        raise GraderError(ROLE_UNKNOWN)
    session.merge(tables.Membership(user_id=user_id, course_id=course_id, role=role))
    session.flush()
    if role != "student":
        expire_reset_links(session, [user_id], of_instructors=True)  # who may make none for staff


def roles(session: Session, user_id: int) -> dict[int, str]:
    """The user's role by course id."""
    return {row.course_id: row.role for row in session.execute(_roles(), {"user_id": user_id})}


@cache
def _roles() -> Any:
    here = tables.Membership
    return select(here.course_id, here.role).where(here.user_id == bindparam("user_id"))


def actor_of(session: Session, user: tables.User) -> Actor:
    """The user as an actor, for `grading.domain.permissions`."""
    return Actor(user.id, user.administrator, roles(session, user.id))


def create_token(
    session: Session,
    user_id: int,
    name: str,
    scopes: Iterable[str],
    valid_for: timedelta,
    daily_tokens: int | None = None,
) -> NewToken:
    """Create an API token `grd_…`; only its SHA-256 is stored.

    `daily_tokens` of models are its own limit by the gateway; 0 for any number.
    """
    wanted = sorted(set(scopes))
    if not wanted or not set(wanted) <= set(SCOPES):
        raise GraderError(NO_SCOPE(scopes=tuple(SCOPES)))
    if not timedelta(0) < valid_for <= timedelta(days=730):
        raise GraderError(TOKEN_TOO_LONG)
    secret = "grd_" + secrets.token_urlsafe(32)
    moment = now(session)
    row = tables.Token(
        user_id=user_id,
        name=(printable(name) or "token")[:100],
        hash=_token_hash(secret),
        scopes=wanted,
        created_at=moment,
        expires_at=moment + valid_for,
        daily_tokens=daily_tokens,
    )
    session.add(row)
    session.flush()
    limit = {} if daily_tokens is None else {"daily_tokens": daily_tokens}
    write_audit(session, f"user:{user_id}", "token.create", f"token:{row.id}", {"scopes": wanted, **limit})
    return NewToken(row.id, secret)


def verify_token(session: Session, secret: str) -> Actor | None:
    """The actor of a token, with its scopes; None when unknown, expired, revoked or of a disabled user."""
    if not secret.startswith("grd_"):
        return None
    row = session.scalar(select(tables.Token).where(tables.Token.hash == _token_hash(secret)))
    if row is None or row.revoked_at is not None or row.expires_at <= now(session):
        return None
    user = session.get_one(tables.User, row.user_id)
    if user.disabled:
        return None
    return Actor(user.id, user.administrator, roles(session, user.id), frozenset(row.scopes), row.id)


def printable(text: str) -> str:
    """A text without control characters, which databases and readers do not accept."""
    return "".join(c for c in text if c.isprintable()).strip()


def _token_hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True)
class SignedInUser:
    """The signed-in user of a request; `stamp` is that of their sessions."""

    name: str
    actor: Actor
    stamp: str
    language: str
    """Language of pages; empty: the browser's."""
    open_requests: int
    """Open regrade requests in the courses they are staff of."""


_OPEN = select(func.count()).where(RegradeRequest.state == "open")
_HERE = _OPEN.where(RegradeRequest.course_id == Membership.course_id).correlate(Membership)
_WAITING = case(
    (User.administrator, _OPEN.scalar_subquery()),
    (Membership.role.in_(sorted(STAFF)), _HERE.scalar_subquery()),
    else_=0,
)
"""In all courses for an administrator, else in the course of the row."""
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


def load_reader(session: Session, user_id: int) -> SignedInUser | None:
    """The active user with this id, or None."""
    return _reader(user_id, session.execute(_READER, {"user_id": user_id}).all())


def load_reader_of_session(session: Session, user_id: int, session_id: str) -> SignedInUser | None:
    """The active user of an open session, or None; one query."""
    given = {"user_id": user_id, "session_id": session_id}
    return _reader(user_id, session.execute(_READER_OF_SESSION, given).all())


def _reader(user_id: int, rows: Sequence[Any]) -> SignedInUser | None:
    if not rows:
        return None
    first = rows[0]
    roles = {row.course_id: row.role for row in rows if row.course_id is not None}
    waiting = first.waiting if first.administrator else sum(row.waiting for row in rows)
    return SignedInUser(
        name=first.name,
        actor=Actor(user_id, first.administrator, roles),
        stamp=stamp_of(first.sessions, first.password_hash),
        language=first.language,
        open_requests=waiting,
    )


def set_language(session: Session, user_id: int, language: str) -> None:
    """Set the language of a user's pages."""
    session.execute(update(User).where(User.id == user_id).values(language=language))
