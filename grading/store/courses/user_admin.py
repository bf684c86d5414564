"""Accounts: administration of all users, and each user's own preferences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from typing import Literal as L

from sqlalchemy import bindparam, exists, func, literal, select
from sqlalchemy.orm import Session

from grading.domain.errors import Forbidden, GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import STAFF, Actor
from grading.domain.shared_messages import NO_SUCH_PERSON
from grading.store import tables
from grading.store.accounts import credentials, sessions, users
from grading.store.audit import write_audit
from grading.store.courses import roster
from grading.store.courses.roster import MemberPage, Person

OWN_ACCOUNT = define_message(
    "user_admin.own_account", "You cannot do this to your own account. Ask another administrator."
)
NO_EMAIL = define_message(
    "user_admin.no_email", "Enter an email address, or turn off the email about results."
)
EMAIL_FORM = define_message(
    "user_admin.email_form", "Invalid email address. Use the form name@school.example."
)
NAME_FORM = define_message("user_admin.name_form", "Enter a name of 1 to 200 printable characters.")

Flag = L["administrator", "disabled"]
KINDS = ("administrators", "staff", "disabled", "invited")
"""Filters of the list of accounts."""


@dataclass(frozen=True)
class CourseRole:
    """A user's role in a course."""

    course_id: int
    title: str
    role: str


@dataclass(frozen=True)
class Account:
    """A user with all their courses."""

    person: Person
    places: tuple[CourseRole, ...]
    created_at: datetime
    providers: tuple[tuple[str, str], ...]
    """Identities: (`local`, sign-in name), (an LMS, their id there)."""


@dataclass(frozen=True)
class Preferences:
    """What users set for themselves."""

    email: str
    language: str
    mail_when_ready: bool


_OF_ONE = select(
    *roster.PERSON_COLUMNS, tables.User.created_at, tables.User.language, tables.User.mail_when_ready
).where(tables.User.id == bindparam("user_id"))


def list_users(session: Session, search: str = "", kind: str = "", page: int = 1) -> MemberPage:
    """A page of all users by name, without erased ones."""
    kind = kind if kind in KINDS else ""
    return roster.people_page(session, _listing(kind), {}, search, page)


def list_users_after(session: Session, search: str, kind: str, after: int, limit: int) -> tuple[Person, ...]:
    """The users with ids above `after`, by id, without erased ones."""
    query = _listing(kind).order_by(None).order_by(tables.User.id)
    return roster.find_people(session, query.where(tables.User.id > after).limit(limit), search)


@cache
def _listing(kind: str) -> Any:
    user = tables.User
    known = exists().where(tables.Identity.user_id == user.id)
    query = select(*roster.PERSON_COLUMNS, literal("").label("role")).where(known)
    filters = {
        "administrators": user.administrator,
        "staff": exists().where(tables.Membership.user_id == user.id, tables.Membership.role.in_(STAFF)),
        "disabled": user.disabled,
        "invited": user.password_hash.is_(None),
    }
    query = query.where(filters[kind]) if kind else query
    return query.order_by(func.lower(user.name), user.id)


def load_account(session: Session, user_id: int) -> Account:
    """An account. Raises NotFound, also for an erased one."""
    return _found(session, user_id, session.execute(_OF_ONE, {"user_id": user_id}).first())


def load_own_account(session: Session, user_id: int) -> tuple[Account, Preferences]:
    """A user's own account and preferences. Raises NotFound."""
    row = session.execute(_OF_ONE, {"user_id": user_id}).first()
    account = _found(session, user_id, row)
    assert row is not None  # or there was no account
    return account, Preferences(row.email, row.language, row.mail_when_ready)


def _found(session: Session, user_id: int, row: Any) -> Account:
    identity = tables.Identity
    named = select(identity.provider, identity.subject).where(identity.user_id == user_id)
    providers = [(one.provider, one.subject) for one in session.execute(named.order_by(identity.id))]
    if row is None or not providers:
        raise NotFound(NO_SUCH_PERSON)
    query = (
        select(tables.Membership.course_id, tables.Course.title, tables.Membership.role)
        .join(tables.Course, tables.Course.id == tables.Membership.course_id)
        .where(tables.Membership.user_id == user_id)
        .order_by(tables.Course.title)
    )
    places = tuple(CourseRole(*one) for one in session.execute(query))
    first = sorted(providers, key=lambda one: one[0] != "local")  # stable: the others as they came
    person = roster.person_of(session, row, "", tuple(subject for _, subject in first))
    return Account(person, places, row.created_at, tuple(providers))


def create_account(
    session: Session, sign_in_name: str, name: str, email: str, administrator: bool, actor: Actor
) -> int:
    """Create an account without a password; returns its id.

    Raises Conflict when the sign-in name is taken.
    """
    name, email = _name(name, empty=True), validate_email(email)
    made = users.create_user(session, sign_in_name, name=name, email=email, administrator=administrator)
    write_audit(session, actor.name, "user.create", f"user:{made.id}", {"administrator": administrator})
    return made.id


def rename_user(session: Session, user_id: int, name: str, email: str, actor: Actor) -> None:
    """Change a user's name and address."""
    account = load_account(session, user_id)
    name, email = _name(name), validate_email(email)
    if (name, email) == (account.person.name, account.person.email):
        return
    user = session.get_one(tables.User, user_id)
    user.name, user.email = name, email
    write_audit(session, actor.name, "user.change", f"user:{user_id}")


def set_flag(session: Session, user_id: int, flag: Flag, value: bool, actor: Actor) -> None:
    """Grant or revoke `administrator` or `disabled`; nobody does so to themselves."""
    load_account(session, user_id)
    if user_id == actor.user_id:
        raise Forbidden(OWN_ACCOUNT)
    user = session.get_one(tables.User, user_id, with_for_update=True)
    if getattr(user, flag) == value:
        return
    setattr(user, flag, value)
    if flag == "disabled":  # so that old sessions and tokens do not come back with the account
        user.sessions += 1
        sessions.end_sessions(session, user_id)
        credentials.revoke_tokens(session, user_id, actor.name)
    users.expire_reset_links(session, [user_id])
    write_audit(session, actor.name, f"user.{flag if value else f'not_{flag}'}", f"user:{user_id}")


def set_preferences(session: Session, user_id: int, wanted: Preferences) -> None:
    """Set a user's preferences; mail needs an address."""
    email = validate_email(wanted.email)
    if wanted.mail_when_ready and not email:
        raise GraderError(NO_EMAIL)
    user = session.get_one(tables.User, user_id)
    if user.email != email:
        write_audit(session, f"user:{user_id}", "user.email", f"user:{user_id}")
    user.email, user.language, user.mail_when_ready = email, wanted.language, wanted.mail_when_ready


def validate_email(text: str) -> str:
    """A valid address or an empty text. Raises GraderError."""
    email = text.strip()
    if not email:
        return ""
    if len(email) > 200 or not email.isprintable() or not re.fullmatch(r"[^@\s,;<>\"]+@[^@\s,;<>\"]+", email):
        raise GraderError(EMAIL_FORM)
    return email


def _name(text: str, *, empty: bool = False) -> str:
    name = text.strip()
    if len(name) > 200 or not name.isprintable() or not (name or empty):
        raise GraderError(NAME_FORM)
    return name
