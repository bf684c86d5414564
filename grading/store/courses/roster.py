"""Roster of a course: members and their roles, import of CSV rosters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    String,
    bindparam,
    case,
    delete,
    exists,
    func,
    or_,
    select,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from grading.domain.errors import CannotUndo, Conflict, Forbidden, GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import STAFF, Actor, Subject, may
from grading.domain.shared_messages import NO_SUCH_PERSON
from grading.store import tables
from grading.store.accounts import users as user_accounts
from grading.store.accounts.users import ACCOUNT_IN_NO_COURSE
from grading.store.audit import UNDO, done_at, write_audit
from grading.store.bulk import chunks
from grading.store.database import cache_now, clock_column, literal_limit, now
from grading.tabular.roster_csv import ROLES, Problem, Roster, Row

COURSE_CHANGED = define_message(
    "roster.course_changed",
    "The course changed after you opened this preview. Check the preview again, then confirm.",
)
DISABLED = define_message(
    "roster.disabled", "The account '%(id)s' is disabled. Ask an administrator to enable it."
)
NO_SUCH_MEMBER = define_message("roster.no_such_member", "This person is not in this course.")
NO_ROLE = define_message("roster.no_role", "Choose a role: student, grader or instructor.")
OWN_MEMBERSHIP = define_message(
    "roster.own_membership", "You cannot change your own role in the course. Ask another instructor."
)
MEMBER_ADDED_MEANWHILE = define_message(
    "roster.member_added_meanwhile",
    "Someone else just added one of these people. Check the list again, then confirm.",
)

PER_PAGE = 25
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Person:
    """A user in a list."""

    user_id: int
    name: str
    email: str
    ids: tuple[str, ...]
    """Their subjects at providers: sign-in name, student id."""
    role: str
    administrator: bool
    disabled: bool
    enters: bool
    """Whether they have a password."""
    invited_until: datetime | None
    """Expiry of their open password link."""


@dataclass(frozen=True)
class MemberPage:
    """A page of a list of users."""

    items: tuple[Person, ...]
    page: int
    pages: int
    total: int


PERSON_COLUMNS = (
    tables.User.id,
    tables.User.name,
    tables.User.email,
    tables.User.administrator,
    tables.User.disabled,
    tables.User.password_hash.is_not(None).label("enters"),
    select(func.max(tables.ResetLink.expires_at))
    .where(tables.ResetLink.user_id == tables.User.id, tables.ResetLink.used_at.is_(None))
    .correlate(tables.User)
    .scalar_subquery()
    .label("invited_until"),
)
"""Columns that lists read of a user; the role follows."""


def list_members(
    session: Session, course_id: int, search: str = "", role: str = "", page: int = 1
) -> MemberPage:
    """A page of a course's members, staff first, then by name."""
    return people_page(session, _listing(bool(role)), {"course_id": course_id, "role": role}, search, page)


@cache
def _listing(one_role: bool) -> Any:
    here = tables.Membership
    query = (
        select(*PERSON_COLUMNS, here.role).select_from(tables.User).join(here, here.user_id == tables.User.id)
    )
    query = query.where(here.course_id == bindparam("course_id"))
    if one_role:
        query = query.where(here.role == bindparam("role"))
    first = case({"instructor": 0, "grader": 1}, value=here.role, else_=2)
    return query.order_by(first, func.lower(tables.User.name), tables.User.id)


def people_page(session: Session, query: Any, given: Mapping[str, Any], search: str, page: int) -> MemberPage:
    """A page of users with a role each; `search` finds names, addresses and ids.

    `query` is a cached, ordered statement; `given` are its parameters.
    """
    page, search = max(page, 1), search.strip()[:200]
    known = {**given, "like": _like(search), "skipped": (page - 1) * PER_PAGE}
    dialect = session.get_bind().dialect.name
    rows = session.execute(_page(query, dialect, bool(search), page == 1), known).all()
    if not rows and page > 1:
        return people_page(session, query, given, search, _pages(session, query, known))
    if rows:
        cache_now(session, rows[0].clock)  # whose link is still valid
    total = rows[0].total if rows else 0
    return MemberPage(people_of(session, rows), page, max(1, -(-total // PER_PAGE)), total)


@cache
def _page(query: Any, dialect: str, searching: bool, first: bool) -> Any:
    query = query.where(_found()) if searching else query
    listed = query.add_columns(func.count().over().label("total"), clock_column(dialect)).limit(
        literal_limit(PER_PAGE)
    )
    return listed if first else listed.offset(bindparam("skipped", type_=Integer))


def _pages(session: Session, query: Any, given: Mapping[str, Any]) -> int:
    # without a search, this is what all names are like
    some = query.where(_found()).with_only_columns(tables.User.id).order_by(None)
    counted = session.scalar(select(func.count()).select_from(some.subquery()), given)
    return max(1, -(-(counted or 0) // PER_PAGE))


def _like(search: str) -> str:
    escaped = search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%".replace("\0", "")


def _found() -> ColumnElement[bool]:
    """A search condition with the parameter `like`, as `_like` makes it."""
    like: Any = bindparam("like")
    identity = exists().where(
        tables.Identity.user_id == tables.User.id, tables.Identity.subject.ilike(like, escape="\\")
    )
    return or_(
        tables.User.name.ilike(like, escape="\\"), tables.User.email.ilike(like, escape="\\"), identity
    )


def find_people(session: Session, query: Any, search: str) -> tuple[Person, ...]:
    """The people of a query of PERSON_COLUMNS and a role; `search` finds names, addresses and ids."""
    if search.strip():
        query = query.where(_found())
    return people_of(session, session.execute(query, {"like": _like(search.strip()[:200])}).all())


def people_of(session: Session, rows: Sequence[Any]) -> tuple[Person, ...]:
    """The users of rows with PERSON_COLUMNS and a role."""
    names = load_subjects(session, [row.id for row in rows])
    return tuple(person_of(session, row, row.role, names.get(row.id, ())) for row in rows)


def person_of(session: Session, row: Any, role: str, ids: tuple[str, ...]) -> Person:
    """A user from a row with PERSON_COLUMNS."""
    moment = now(session) if row.invited_until else NEVER
    return Person(
        row.id,
        row.name,
        row.email,
        ids,
        role,
        row.administrator,
        row.disabled,
        row.enters,
        _still(row.invited_until, moment),
    )


def _still(until: datetime | None, moment: datetime) -> datetime | None:
    return until if until is not None and until > moment else None


def load_subjects(session: Session, user_ids: Sequence[int]) -> Mapping[int, tuple[str, ...]]:
    """The subjects of each of these users, the sign-in name first."""
    found: dict[int, tuple[str, ...]] = {}
    for row in session.execute(_subjects(), {"user_ids": list(user_ids)}):
        found[row.user_id] = (*found.get(row.user_id, ()), row.subject)
    return found


@cache
def _subjects() -> Any:
    identity = tables.Identity
    query = select(identity.user_id, identity.subject)
    query = query.where(identity.user_id.in_(bindparam("user_ids", expanding=True)))
    return query.order_by(identity.provider != "local", identity.id)


@dataclass(frozen=True)
class NamedPerson:
    """A user in a table for other programs."""

    user_id: int
    sign_in_name: str
    name: str
    email: str


def load_named(session: Session, user_ids: Sequence[int]) -> tuple[NamedPerson, ...]:
    """These users, in the given order."""
    found: dict[int, NamedPerson] = {}
    for some in chunks(user_ids):
        names = load_subjects(session, some)
        query = select(tables.User.id, tables.User.name, tables.User.email).where(tables.User.id.in_(some))
        for row in session.execute(query):
            found[row.id] = NamedPerson(row.id, names.get(row.id, ("",))[0], row.name, row.email)
    return tuple(found[one] for one in user_ids)


def load_person(session: Session, user_id: int, role: str) -> Person:
    """A user with this role. Raises NotFound."""
    found = session.execute(_person(), {"user_id": user_id, "role": role}).all()
    if not found:
        raise NotFound(NO_SUCH_PERSON)
    return people_of(session, found)[0]


@cache
def _person() -> Any:
    role = bindparam("role", type_=String).label("role")
    return select(*PERSON_COLUMNS, role).where(tables.User.id == bindparam("user_id"))


def find_student(session: Session, course_id: int, user_id: int) -> Person | None:
    """A student of the course whose account is not disabled, or None."""
    member = session.scalar(_member(), {"user_id": user_id, "course_id": course_id})
    if member is None or member.role != "student":
        return None
    person = load_person(session, user_id, member.role)
    return None if person.disabled else person


RESULT_NAMES = {"new": "made", "add": "joined", "change": "changed", "same": "unchanged"}
"""Names of the kinds of entries in the audit."""


@dataclass(frozen=True)
class Changed:
    """A field with a new value: `name`, `email` or `role`."""

    field: str
    before: str
    after: str


@dataclass(frozen=True)
class Entry:
    """The effect of one row of the table.

    `kind`: `new` (a user is created), `add` (an existing user joins), `change`, `same`. `kept` names fields
    of the row that are not applied: `name`, `email` (of users who are not only this instructor's students),
    `role` (student rows of staff), `own` (one's own role).
    """

    row: Row
    kind: str
    role: str
    user_id: int | None = None
    changes: tuple[Changed, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The effects of importing a table."""

    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...]

    def of(self, *kinds: str) -> tuple[Entry, ...]:
        """The entries of these kinds."""
        return tuple(entry for entry in self.entries if entry.kind in kinds)

    @property
    def digest(self) -> str:
        """A digest of all effects; equal for equal effects."""
        return hashlib.sha256(repr((self.entries, self.problems)).encode()).hexdigest()


@dataclass(frozen=True)
class _ExistingUsers:
    """Existing users by id, with all their roles."""

    users: Mapping[str, tables.User]
    roles: Mapping[int, Mapping[int, str]]
    returning: frozenset[int]
    """Users in no course who were in this one before."""

    def staff(self, user: tables.User) -> bool:
        return user.administrator or not STAFF.isdisjoint(self.roles[user.id].values())


def plan_import(session: Session, course_id: int, roster: Roster, actor: Actor) -> Plan:
    """The effects of importing a table; nothing is changed."""
    return _plan(
        _existing_users(session, [row.id for row in roster.rows], course_id), course_id, roster, actor
    )


def apply_import(
    session: Session, course_id: int, roster: Roster, actor: Actor, digest: str | None = None
) -> Plan:
    """Import a table. Raises Conflict unless its effects still have this digest."""
    session.execute(select(tables.Course.id).where(tables.Course.id == course_id).with_for_update())
    known = _existing_users(session, [row.id for row in roster.rows], course_id)
    planned = _plan(known, course_id, roster, actor)
    if digest is not None and digest != planned.digest:
        raise Conflict(COURSE_CHANGED)
    _create(session, planned, course_id)
    for entry in planned.of("add", "change"):
        _change(session, known.users[entry.row.id], entry, course_id, actor)
    counts = {word: len(planned.of(kind)) for kind, word in RESULT_NAMES.items()}
    if counts["unchanged"] < len(planned.entries):
        write_audit(session, actor.name, "roster.import", f"course:{course_id}", counts)
    session.flush()
    return planned


def _existing_users(session: Session, ids: Sequence[str], course_id: int) -> _ExistingUsers:
    users: dict[str, tables.User] = {}
    roles: dict[int, dict[int, str]] = {}
    for some in chunks(ids):
        query = (
            select(tables.Identity.subject, tables.User)
            .join(tables.User)
            .where(tables.Identity.provider == "local", tables.Identity.subject.in_(some))
        )
        users.update((row[0], row[1]) for row in session.execute(query))
    for few in chunks([user.id for user in users.values()]):
        roles.update((one, {}) for one in few)
        for member in session.scalars(select(tables.Membership).where(tables.Membership.user_id.in_(few))):
            roles[member.user_id][member.course_id] = member.role
    homeless = [user_id for user_id, held in roles.items() if not held]
    return _ExistingUsers(users, roles, user_accounts.former_members(session, course_id, homeless))


def _plan(known: _ExistingUsers, course_id: int, roster: Roster, actor: Actor) -> Plan:
    entries, problems = [], list(roster.problems)
    for row in roster.rows:
        user = known.users.get(row.id)
        if user is None:
            entries.append(Entry(row, "new", row.role or "student"))
        elif user.disabled:
            problems.append(Problem(row.line, DISABLED(id=row.id)))
        elif not (known.roles[user.id] or actor.administrator or user.id in known.returning):
            problems.append(
                Problem(
                    row.line,
                    ACCOUNT_IN_NO_COURSE(subject=row.id),
                )
            )
        else:
            entries.append(_entry(row, user, known, course_id, actor))
    return Plan(tuple(entries), tuple(sorted(problems, key=lambda problem: problem.line)))


def _entry(row: Row, user: tables.User, known: _ExistingUsers, course_id: int, actor: Actor) -> Entry:
    roles, changes, kept = known.roles[user.id], [], []
    theirs = bool(roles) and all(may(actor, "roster.change", Subject(course)) for course in roles)
    for field, before, after in (("name", user.name, row.name), ("email", user.email, row.email)):
        if after and after != before:
            if actor.administrator or (theirs and not known.staff(user)):
                changes.append(Changed(field, before, after))
            else:
                kept.append(field)
    here = roles.get(course_id)
    if here is None:
        return Entry(row, "add", row.role or "student", user.id, tuple(changes), tuple(kept))
    role = row.role or here
    if role != here and (user.id == actor.user_id or (role == "student" and here in STAFF)):
        kept.append("own" if user.id == actor.user_id else "role")
        role = here
    if role != here:
        changes.append(Changed("role", here, role))
    kind = "change" if changes else "same"
    return Entry(row, kind, role, user.id, tuple(changes), tuple(kept))


def _create(session: Session, planned: Plan, course_id: int) -> None:
    moment, made = now(session), []
    for entry in planned.of("new"):
        row = entry.row
        user = tables.User(name=row.name or row.id, email=row.email, created_at=moment)
        user.identities.append(tables.Identity(provider="local", subject=row.id))
        made.append((user, entry.role))
    session.add_all(user for user, _ in made)
    try:
        session.flush()
    except IntegrityError:
        raise Conflict(MEMBER_ADDED_MEANWHILE) from None
    session.add_all(tables.Membership(user_id=user.id, course_id=course_id, role=role) for user, role in made)
    session.flush()


def _change(session: Session, user: tables.User, entry: Entry, course_id: int, actor: Actor) -> None:
    for change in entry.changes:
        if change.field != "role":
            setattr(user, change.field, change.after)
    if entry.kind == "add":
        user_accounts.enrol(session, user.id, course_id, entry.role)
    for change in entry.changes:
        if change.field == "role":
            _enrol(session, user.id, course_id, change.after, change.before, actor)


def load_membership(session: Session, course_id: int, user_id: int) -> tables.Membership:
    """A user's membership in a course. Raises NotFound."""
    found = session.scalar(_member(), {"user_id": user_id, "course_id": course_id})
    if found is None:
        raise NotFound(NO_SUCH_MEMBER)
    return found


@cache
def _member() -> Select[tables.Membership]:
    here = tables.Membership
    return select(here).where(here.user_id == bindparam("user_id"), here.course_id == bindparam("course_id"))


def set_role(session: Session, course_id: int, user_id: int, role: str, actor: Actor) -> None:
    """Change a member's role; nobody changes their own."""
    found = load_membership(session, course_id, user_id)
    if role not in ROLES:
        raise GraderError(NO_ROLE)
    _not_oneself(user_id, actor)
    if found.role != role:
        _enrol(session, user_id, course_id, role, found.role, actor)


def _enrol(session: Session, user_id: int, course_id: int, role: str, before: str, actor: Actor) -> None:
    user_accounts.enrol(session, user_id, course_id, role)
    if role in STAFF:
        user_accounts.expire_reset_links(session, [user_id])  # made by somebody who may no longer make one
    detail = {"before": before, "after": role}
    write_audit(session, actor.name, "role.change", f"user:{user_id}", detail, course_id)


def remove_member(session: Session, course_id: int, user_id: int, actor: Actor) -> None:
    """Remove a member from a course and its groups. Submissions and grades stay."""
    found = load_membership(session, course_id, user_id)
    _not_oneself(user_id, actor)
    of_course = select(tables.Assignment.id).where(tables.Assignment.course_id == course_id)
    groups = tables.GroupMember
    gone = session.execute(
        delete(groups)
        .where(groups.user_id == user_id, groups.assignment_id.in_(of_course))
        .returning(groups.assignment_id, groups.group_id, groups.confirmed)
        .execution_options(synchronize_session=False)
    )
    detail: dict[str, Any] = {"role": found.role}
    if were := [list(row) for row in gone]:
        detail[UNDO] = were
    write_audit(session, actor.name, "roster.remove", f"user:{user_id}", detail, course_id)
    session.delete(found)
    session.flush()


def restore_member(session: Session, course_id: int, user_id: int, moment: datetime, actor: Actor) -> None:
    """Undo the removal that the actor did at this moment, with groups that still exist. Raises CannotUndo."""
    rows = done_at(session, actor.name, moment, "roster.remove")
    row = next((one for one in rows if (one.object, one.course_id) == (f"user:{user_id}", course_id)), None)
    if row is None or session.get(tables.Membership, (user_id, course_id)) is not None:
        raise CannotUndo
    user_accounts.enrol(session, user_id, course_id, row.detail["role"])
    member = tables.GroupMember
    for assignment_id, group_id, confirmed in row.detail.get(UNDO, ()):
        others = select(func.count()).where(
            member.assignment_id == assignment_id, member.group_id == group_id
        )
        room = (
            0 < (session.scalar(others) or 0) < session.get_one(tables.Assignment, assignment_id).group_size
        )
        if room and session.get(member, (assignment_id, user_id)) is None:
            place = {"assignment_id": assignment_id, "user_id": user_id, "group_id": group_id}
            session.add(member(**place, confirmed=confirmed))
    write_audit(
        session, actor.name, "roster.restore", f"user:{user_id}", {"role": row.detail["role"]}, course_id
    )


def _not_oneself(user_id: int, actor: Actor) -> None:
    if user_id == actor.user_id and not actor.administrator:
        raise Forbidden(OWN_MEMBERSHIP)
