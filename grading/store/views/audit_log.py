"""Pages of the audit, with the names of actors and objects, in a constant number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import bindparam, exists, or_, select
from sqlalchemy.orm import Session

from grading.store.database import literal_limit
from grading.store.learning_platforms import known_platforms
from grading.store.tables import Assignment, Audit, ClassUpload, Course, Identity, Submission, Token, User

PER_PAGE = 25
MAX_PEOPLE = 50
SOME: Any = bindparam("ids", expanding=True)


@dataclass(frozen=True)
class NamedObject:
    """An actor or object: its kind, its id, and its present name if it has one."""

    kind: str
    id: str
    name: str = ""
    of: str = ""
    """The student of a submission, the owner of a token."""
    number: int = 0
    """The number of a submission."""


@dataclass(frozen=True)
class AuditEntry:
    """One row; each field is a column."""

    id: int
    at: datetime
    action: str
    actor: NamedObject
    object: NamedObject
    detail: Mapping[str, Any]
    """As stored; a `student` becomes a NamedObject."""


@dataclass(frozen=True)
class AuditPage:
    """A page, the newest first; `older` is the id that the next page starts below, if there is one."""

    lines: tuple[AuditEntry, ...]
    older: int | None


@dataclass(frozen=True)
class AuditFilters:
    """Filters of the audit."""

    course_id: int | None = None
    """None: all courses."""
    person: str = ""
    """Part of the actor's name, address or id."""
    kinds: tuple[str, ...] = ()
    """First parts of actions, as in `grade.change`; none: all."""
    before: int | None = None
    """Rows with a lower id."""


def list_entries(session: Session, wanted: AuditFilters) -> AuditPage:
    """One page."""
    given = {"course_id": wanted.course_id, "before": wanted.before}
    known = {name: value for name, value in given.items() if value is not None}
    query = _newest(frozenset(known), wanted.kinds)
    if person := wanted.person.replace("\0", "").strip()[:200]:
        query = query.where(Audit.actor.in_(_actors(session, person)))
    rows = session.execute(query, known).all()
    shown = rows[:PER_PAGE]
    details = [_of_students(row.detail or {}) for row in shown]
    called = {name for row in shown for name in (row.actor, row.object)}
    names = _names(session, called | {one["student"] for one in details if "student" in one})
    lines = tuple(
        _entry(row, actor=names[row.actor], object=names[row.object], detail=_named(detail, names))
        for row, detail in zip(shown, details, strict=True)
    )
    return AuditPage(lines, shown[-1].id if len(rows) > PER_PAGE else None)


def _entry(row: Any, **read: Any) -> AuditEntry:
    """As stored but for what was `read` of it."""
    return AuditEntry(**{**row._mapping, **read})


def _of_students(detail: Mapping[str, Any]) -> Mapping[str, Any]:
    """The value as the audit names people."""
    student = detail.get("student")
    return {**detail, "student": f"user:{student}"} if isinstance(student, int | str) else detail


def _named(detail: Mapping[str, Any], names: Mapping[str, NamedObject]) -> Mapping[str, Any]:
    return {**detail, "student": names[detail["student"]]} if "student" in detail else detail


@cache
def _newest(given: frozenset[str], kinds: tuple[str, ...]) -> Any:
    columns = [getattr(Audit, one.name) for one in fields(AuditEntry)]
    query: Any = select(*columns).order_by(Audit.id.desc()).limit(literal_limit(PER_PAGE + 1))
    if "course_id" in given:
        query = query.where(Audit.course_id == bindparam("course_id"))
    if kinds:
        # the word itself or with more after a dot: a range, which an index finds; '/' comes after '.'
        what = Audit.action
        query = query.where(
            or_(*((what == one) | ((what >= f"{one}.") & (what < f"{one}/")) for one in kinds))
        )
    if "before" in given:
        query = query.where(Audit.id < bindparam("before"))
    return query


def _actors(session: Session, person: str) -> list[str]:
    """Names of a person in the audit: as user, and by their tokens."""
    escaped = person.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    like = f"%{escaped}%"
    by_id = exists().where(Identity.user_id == User.id, Identity.subject.ilike(like, escape="\\"))
    fits = or_(User.name.ilike(like, escape="\\"), User.email.ilike(like, escape="\\"), by_id)
    people = list(session.scalars(select(User.id).where(fits).order_by(User.id).limit(MAX_PEOPLE)))
    tokens = session.scalars(select(Token.id).where(Token.user_id.in_(people)).limit(500))
    return [*(f"user:{one}" for one in people), *(f"token:{one}" for one in tokens), person]


def _names(session: Session, names: Iterable[str]) -> Mapping[str, NamedObject]:
    """Each `kind:id` with its present name."""
    known = {name: NamedObject(*_parted(name)) for name in names}
    ids: dict[str, set[str]] = {}
    for one in known.values():
        ids.setdefault(one.kind, set()).add(one.id)
    found: dict[tuple[str, str], NamedObject] = {}
    for kind, look in LOADERS.items():
        if wanted := [one for one in ids.get(kind, ()) if kind in TEXT_IDS or _number(one)]:
            found.update(((kind, named.id), named) for named in look(session, wanted))
    for platform in known_platforms():
        for kind, titles in platform.titles.items():
            if wanted := [one for one in ids.get(kind, ()) if _number(one)]:
                found.update(
                    ((kind, key), NamedObject(kind, key, title)) for key, title in titles(session, wanted)
                )
    return {name: found.get((one.kind, one.id), one) for name, one in known.items()}


def _parted(name: str) -> tuple[str, str]:
    kind, _, rest = name.partition(":")
    return kind, rest


def _number(text: str) -> bool:
    return text.isdecimal() and len(text) < 10


def _users(session: Session, ids: list[str]) -> Iterable[NamedObject]:
    rows = session.execute(_named_users(), {"ids": [int(one) for one in ids]})
    return [NamedObject("user", str(row.id), row.name) for row in rows]


@cache
def _named_users() -> Any:
    return select(User.id, User.name).where(User.id.in_(SOME))


def _tokens(session: Session, ids: list[str]) -> Iterable[NamedObject]:
    query = select(Token.id, Token.name, User.name.label("owner")).join(User, User.id == Token.user_id)
    rows = session.execute(query.where(Token.id.in_([int(one) for one in ids])))
    return [NamedObject("token", str(row.id), row.name, row.owner) for row in rows]


def _courses(session: Session, ids: list[str]) -> Iterable[NamedObject]:
    query = select(Course.id, Course.title).where(Course.id.in_([int(one) for one in ids]))
    return [NamedObject("course", str(row.id), row.title) for row in session.execute(query)]


def _assignments(session: Session, ids: list[str]) -> Iterable[NamedObject]:
    query = select(Assignment.id, Assignment.title).where(Assignment.id.in_([int(one) for one in ids]))
    return [NamedObject("assignment", str(row.id), row.title) for row in session.execute(query)]


def _submissions(session: Session, ids: list[str]) -> Iterable[NamedObject]:
    rows = session.execute(_named_submissions(), {"ids": ids})
    return [NamedObject("submission", row.id, row.title, row.name, row.number) for row in rows]


@cache
def _named_submissions() -> Any:
    return (
        select(Submission.id, Submission.number, Assignment.title, User.name)
        .join(Assignment, Assignment.id == Submission.assignment_id)
        .join(User, User.id == Submission.student_id)
        .where(Submission.id.in_(SOME))
    )


def _class_uploads(session: Session, ids: list[str]) -> Iterable[NamedObject]:
    query = select(ClassUpload.id, ClassUpload.filename).where(ClassUpload.id.in_(ids))
    return [NamedObject("batch", row.id, row.filename) for row in session.execute(query)]


TEXT_IDS = frozenset({"submission", "batch"})
LOADERS = {
    "user": _users,
    "token": _tokens,
    "course": _courses,
    "assignment": _assignments,
    "submission": _submissions,
    "batch": _class_uploads,
}
