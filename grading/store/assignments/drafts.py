"""Versions of an assignment that people write: drafts, what counts, restoring, and its settings."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import BindParameter, Integer, ScalarSelect, Select, Text, bindparam, cast, select
from sqlalchemy.orm import Session, aliased

from grading.assignments.editor.diff import Side, differences
from grading.assignments.editor.folder import Content, Settings, compose, exported, others
from grading.assignments.legacy_import import Works
from grading.assignments.loader import Assignment, read_files
from grading.documents import Limits
from grading.domain.errors import Conflict, NotFound
from grading.domain.model import Document
from grading.domain.permissions import Actor
from grading.domain.rubric import Rubric
from grading.domain.value import Value
from grading.store import blobs, tables
from grading.store.assignments import versions
from grading.store.assignments.settings import lock, require_free, set_columns, settings_of
from grading.store.audit import note as audit
from grading.store.database import now

MOST_LINES = 200
"""Versions that are listed."""
MOST_NOTE = 500


class SavedMeanwhile(Conflict):
    """Somebody else saved a version while this one was being written."""

    def __init__(self, number: int, by: str) -> None:
        super().__init__(f"{by or 'Somebody'} saved version {number} while you were writing.")
        self.number = number


class NothingChanged(Conflict):
    """What is to be saved is what is there."""


class VersionLine(Value):
    """A version in the list."""

    number: int
    created_at: datetime
    by: str
    note: str
    published_at: datetime | None
    counts: bool
    """It is the one that hand-ins are graded with now."""


@dataclass(frozen=True)
class Stand:
    """Which version is written on: the newest, whether it counts or not."""

    number: int
    draft: bool
    """It never counted."""
    counting: int | None
    """The number of the one that counts; nothing before the first was published."""
    counting_id: int | None


@dataclass(frozen=True)
class Working(Stand):
    """The same, with the version itself."""

    version: tables.RubricVersion


def working(session: Session, assignment: tables.Assignment) -> Working:
    """What is written on now. Raises NotFound where there is no version at all."""
    row = session.execute(_newest(tables.RubricVersion), {"assignment_id": assignment.id}).one_or_none()
    if row is None:
        raise NotFound("This assignment has no rubric yet.")
    found = row[0]
    return Working(found.number, found.published_at is None, row.counting, row.counting_id, found)


def stand(session: Session, assignment_id: int) -> Stand:
    """The same without what is in it. Raises NotFound where there is no version at all."""
    columns = (tables.RubricVersion.number, tables.RubricVersion.published_at)
    return _stand_of(session.execute(_newest(*columns), {"assignment_id": assignment_id}).one_or_none())


def _stand_of(row: Any) -> Stand:
    if row is None:
        raise NotFound("This assignment has no rubric yet.")
    return Stand(row.number, row.published_at is None, row.counting, row.counting_id)


def stand_and_has(session: Session, assignment_id: int) -> tuple[Stand, dict[str, bool]]:
    """The same, with whether there is a starter and a solution."""
    row: Any = session.execute(_newest_and_has(), {"assignment_id": assignment_id}).one_or_none()
    return _stand_of(row), {"starter": row.starter, "solution": row.solution}


@cache
def _newest_and_has() -> Select[Any]:
    table = tables.RubricVersion
    has = [(cast(one, Text) != "[]").label(one.key) for one in (table.starter, table.solution)]
    return _newest(table.number, table.published_at, *has)


@cache
def _newest(*columns: Any) -> Select[Any]:
    table, of_it = tables.RubricVersion, bindparam("assignment_id", type_=Integer)
    counting = (_counting(of_it).label("counting"), _counting(of_it, "id").label("counting_id"))
    query: Select[Any] = select(*columns, *counting).where(table.assignment_id == of_it)
    return query.order_by(table.number.desc()).limit(1)


def _counting(assignment_id: int | BindParameter[int], column: str = "number") -> ScalarSelect[int]:
    """The number of the version that counts."""
    table = aliased(tables.RubricVersion)
    return (
        select(getattr(table, column))
        .where(table.assignment_id == assignment_id, table.published_at.is_not(None))
        .order_by(table.published_at.desc(), table.number.desc())
        .limit(1)
        .scalar_subquery()
    )


def version(session: Session, assignment_id: int, number: int) -> tables.RubricVersion:
    """A version by its number. Raises NotFound."""
    of_it = select(tables.RubricVersion).where(
        tables.RubricVersion.assignment_id == assignment_id, tables.RubricVersion.number == number
    )
    found = session.execute(of_it).scalar_one_or_none()
    if found is None:
        raise NotFound("There is no such version.")
    return found


def lines(
    session: Session, assignment: tables.Assignment, below: int | None = None, limit: int = MOST_LINES
) -> list[VersionLine]:
    """The versions (below a number), the newest first, in one query and without what is in them."""
    query = _lines() if below is None else _lines().where(tables.RubricVersion.number < below)
    rows = session.execute(query.limit(limit), {"assignment_id": assignment.id}).all()
    return [
        VersionLine(
            number=row.number,
            created_at=row.created_at,
            by=row.name or "",
            note=row.note,
            published_at=row.published_at,
            counts=row.number == row.counting,
        )
        for row in rows
    ]


@cache
def _lines() -> Any:
    table, of_it = tables.RubricVersion, bindparam("assignment_id", type_=Integer)
    return (
        select(
            table.number,
            table.created_at,
            table.note,
            table.published_at,
            tables.User.name,
            _counting(of_it).label("counting"),
        )
        .outerjoin(tables.User, tables.User.id == table.created_by)
        .where(table.assignment_id == of_it)
        .order_by(table.number.desc())
    )


def files(session: Session, row: tables.RubricVersion) -> dict[str, bytes]:
    """The files of a version, by path."""
    found = blobs.contents(session, set(row.files.values()))
    return {path: found[name] for path, name in row.files.items() if name in found}


def content(session: Session, row: tables.RubricVersion) -> Content:
    """What a version holds, ready to be changed."""
    return content_of(row, files(session, row))


def content_of(row: tables.RubricVersion, stored: Mapping[str, bytes]) -> Content:
    """The same, where its files are known."""
    return Content(
        rubric=Rubric.model_validate(row.rubric),
        task=row.task,
        instructions={stage: str(text) for stage, text in row.instructions.items()},
        share_solution=row.share_solution,
        spoken_language=row.spoken_language,
        show_draft=row.show_draft,
        files=others(stored),
    )


def side(row: tables.RubricVersion) -> Side:
    """What is compared of a version."""
    return Side(
        rubric=Rubric.model_validate(row.rubric),
        task=row.task,
        instructions=row.instructions,
        share_solution=row.share_solution,
        spoken_language=row.spoken_language,
        show_draft=row.show_draft,
        files=row.files,
    )


def zip_of(session: Session, assignment: tables.Assignment, row: tables.RubricVersion) -> dict[str, bytes]:
    """The files of a version's folder, with the settings of now."""
    stored = files(session, row)
    return exported(stored, settings_of(assignment), content_of(row, stored))


def works(row: tables.RubricVersion) -> Works:
    """Solution and starter of a version, which say what the words of a rubric mean."""
    solution, starter = ([Document.model_validate(d) for d in one] for one in (row.solution, row.starter))
    return Works(solution, starter, frozenset(path for path in row.files if path.startswith("data/")))


def save(
    session: Session,
    assignment: tables.Assignment,
    said: Content,
    base: int,
    actor: Actor,
    note: str = "",
    report: Sequence[str] = (),
) -> tables.RubricVersion:
    """A new draft, made from version `base`. `report` is kept below its note.

    Raises SavedMeanwhile where `base` is not the newest any more, NothingChanged, and AssignmentError for
    what no folder may say either.
    """
    lock(session, assignment)
    newest = working(session, assignment).version
    if newest.number != base:
        by = session.get(tables.User, newest.created_by) if newest.created_by else None
        raise SavedMeanwhile(newest.number, by.name if by else "")
    read = read_files(compose(settings_of(assignment), said), Limits())
    if not differences(side(newest), _read_side(read)):
        raise NothingChanged("Nothing was changed, so nothing was saved.")
    made = versions.add_version(session, assignment, versions.of_folder(read, assignment.release))
    made.created_by = actor.user_id
    made.note = versions.with_report(note.strip()[:MOST_NOTE], report)
    audit(session, actor.name, "assignment.save", f"assignment:{assignment.id}", {"version": made.number})
    return made


def _read_side(read: Assignment) -> Side:
    return Side(
        rubric=read.rubric,
        task=read.task,
        instructions=read.instructions,
        share_solution=read.share_solution,
        spoken_language=read.spoken_language,
        show_draft=read.show_draft,
        files={path: hashlib.sha256(data).hexdigest() for path, data in read.files},
    )


def publish(session: Session, assignment: tables.Assignment, number: int, actor: Actor) -> bool:
    """From now on this version counts. False when it did already."""
    lock(session, assignment)
    row = version(session, assignment.id, number)
    if row.published_at is not None:
        return False
    row.published_at = now(session)
    session.flush()
    audit(session, actor.name, "assignment.publish", f"assignment:{assignment.id}", {"version": number})
    return True


def restore(
    session: Session, assignment: tables.Assignment, number: int, actor: Actor, note: str
) -> tables.RubricVersion:
    """A new draft that says what an old version said. Raises NothingChanged where that is the newest."""
    old = version(session, assignment.id, number)
    base = working(session, assignment).version.number
    return save(session, assignment, content(session, old), base, actor, note)


def create(
    session: Session,
    course_id: int,
    settings: Settings,
    first: Content,
    actor: Actor,
    report: Sequence[str] = (),
) -> tables.Assignment:
    """A new assignment with a first draft. Raises Conflict where the course has one of that slug."""
    session.execute(select(tables.Course.id).where(tables.Course.id == course_id).with_for_update())
    require_free(session, course_id, settings.slug)
    made = tables.Assignment(course_id=course_id, created_at=now(session), slug=settings.slug)
    set_columns(made, settings)
    session.add(made)
    session.flush()
    read = read_files(compose(settings, first), Limits())
    row = versions.add_version(session, made, versions.of_folder(read, settings.release))
    row.created_by, row.note = actor.user_id, versions.with_report("", report) if report else ""
    audit(session, actor.name, "assignment.create", f"assignment:{made.id}", {"slug": settings.slug})
    return made
