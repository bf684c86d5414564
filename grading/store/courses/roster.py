"""The people of a course: listing, adding many from a table, changing roles, taking somebody out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import Select, bindparam, delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from grading.domain.errors import Conflict, Forbidden, GraderError, NotFound
from grading.domain.permissions import STAFF, Actor, Subject, may
from grading.store import tables
from grading.store.accounts import users as accounts
from grading.store.audit import note
from grading.store.bulk import chunks
from grading.store.database import now
from grading.tabular.roster_csv import ROLES, Problem, Roster, Row

COUNTED = {"new": "made", "add": "joined", "change": "changed", "same": "unchanged"}
"""What the audit calls each kind of entry."""


@dataclass(frozen=True)
class Changed:
    """A field that gets another value: `name`, `email` or `role`."""

    field: str
    before: str
    after: str


@dataclass(frozen=True)
class Entry:
    """What becomes of one line.

    `kind`: `new` (a person is made), `add` (somebody known joins), `change`, `same`. `kept` names what the
    line says and does not get: `name`, `email` (of who is not only this instructor's student), `role` (a
    student line for staff), `own` (one's own role).
    """

    row: Row
    kind: str
    role: str
    user_id: int | None = None
    changes: tuple[Changed, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What importing a table would do."""

    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...]

    def of(self, *kinds: str) -> tuple[Entry, ...]:
        """The entries of these kinds."""
        return tuple(entry for entry in self.entries if entry.kind in kinds)

    @property
    def digest(self) -> str:
        """The same as long as the same would be done."""
        return hashlib.sha256(repr((self.entries, self.problems)).encode()).hexdigest()


@dataclass(frozen=True)
class _Known:
    """Who is there already: by id, with all roles by user."""

    users: Mapping[str, tables.User]
    roles: Mapping[int, Mapping[int, str]]
    returning: frozenset[int]
    """Users in no course who were in this one before."""

    def staff(self, user: tables.User) -> bool:
        return user.administrator or not STAFF.isdisjoint(self.roles[user.id].values())


def plan(session: Session, course_id: int, roster: Roster, actor: Actor) -> Plan:
    """What importing the table would do; nothing is changed."""
    return _plan(_known(session, [row.id for row in roster.rows], course_id), course_id, roster, actor)


def apply(session: Session, course_id: int, roster: Roster, actor: Actor, digest: str | None = None) -> Plan:
    """Import the table. Raises Conflict when that would no longer do what `digest` stands for."""
    session.execute(select(tables.Course.id).where(tables.Course.id == course_id).with_for_update())
    known = _known(session, [row.id for row in roster.rows], course_id)
    planned = _plan(known, course_id, roster, actor)
    if digest is not None and digest != planned.digest:
        raise Conflict("The course has changed since you looked at this. Look again, then confirm.")
    _create(session, planned, course_id)
    for entry in planned.of("add", "change"):
        _change(session, known.users[entry.row.id], entry, course_id, actor)
    counts = {word: len(planned.of(kind)) for kind, word in COUNTED.items()}
    if counts["unchanged"] < len(planned.entries):
        note(session, actor.name, "roster.import", f"course:{course_id}", counts)
    session.flush()
    return planned


def _known(session: Session, ids: Sequence[str], course_id: int) -> _Known:
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
    return _Known(users, roles, accounts.formerly_in(session, course_id, homeless))


def _plan(known: _Known, course_id: int, roster: Roster, actor: Actor) -> Plan:
    entries, problems = [], list(roster.problems)
    for row in roster.rows:
        user = known.users.get(row.id)
        if user is None:
            entries.append(Entry(row, "new", row.role or "student"))
        elif user.disabled:
            problems.append(Problem(row.line, f"The account '{row.id}' is disabled; ask an administrator."))
        elif not (known.roles[user.id] or actor.administrator or user.id in known.returning):
            problems.append(
                Problem(
                    row.line,
                    f"The account '{row.id}' is in no course yet; an administrator adds it to its first one.",
                )
            )
        else:
            entries.append(_entry(row, user, known, course_id, actor))
    return Plan(tuple(entries), tuple(sorted(problems, key=lambda problem: problem.line)))


def _entry(row: Row, user: tables.User, known: _Known, course_id: int, actor: Actor) -> Entry:
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
        raise Conflict(
            "Somebody added one of these people at this moment. Look again, then confirm."
        ) from None
    session.add_all(tables.Membership(user_id=user.id, course_id=course_id, role=role) for user, role in made)
    session.flush()


def _change(session: Session, user: tables.User, entry: Entry, course_id: int, actor: Actor) -> None:
    for change in entry.changes:
        if change.field != "role":
            setattr(user, change.field, change.after)
    if entry.kind == "add":
        accounts.enrol(session, user.id, course_id, entry.role)
    for change in entry.changes:
        if change.field == "role":
            _enrol(session, user.id, course_id, change.after, change.before, actor)


def member(session: Session, course_id: int, user_id: int) -> tables.Membership:
    """Somebody's place in a course. Raises NotFound."""
    found = session.scalar(_member(), {"user_id": user_id, "course_id": course_id})
    if found is None:
        raise NotFound("There is no such person in this course.")
    return found


@cache
def _member() -> Select[tables.Membership]:
    here = tables.Membership
    return select(here).where(here.user_id == bindparam("user_id"), here.course_id == bindparam("course_id"))


def set_role(session: Session, course_id: int, user_id: int, role: str, actor: Actor) -> None:
    """Give somebody another role. One's own is for others to change."""
    found = member(session, course_id, user_id)
    if role not in ROLES:
        raise GraderError("Choose a role: student, grader or instructor.")
    _not_oneself(user_id, actor)
    if found.role != role:
        _enrol(session, user_id, course_id, role, found.role, actor)


def _enrol(session: Session, user_id: int, course_id: int, role: str, before: str, actor: Actor) -> None:
    accounts.enrol(session, user_id, course_id, role)
    if role in STAFF:
        accounts.end_links(session, [user_id])  # made by somebody who may no longer make one
    detail = {"before": before, "after": role}
    note(session, actor.name, "role.change", f"user:{user_id}", detail, course_id)


def remove(session: Session, course_id: int, user_id: int, actor: Actor) -> None:
    """Take somebody out of a course and its groups. What they handed in, and its grades, stay."""
    found = member(session, course_id, user_id)
    _not_oneself(user_id, actor)
    of_course = select(tables.Assignment.id).where(tables.Assignment.course_id == course_id)
    groups = tables.GroupMember
    session.execute(
        delete(groups)
        .where(groups.user_id == user_id, groups.assignment_id.in_(of_course))
        .execution_options(synchronize_session=False)
    )
    note(session, actor.name, "roster.remove", f"user:{user_id}", {"role": found.role}, course_id)
    session.delete(found)
    session.flush()


def _not_oneself(user_id: int, actor: Actor) -> None:
    if user_id == actor.user_id and not actor.administrator:
        raise Forbidden("You cannot change your own place in the course; ask another instructor.")
