"""An assignment as its page shows it: task, files, rubric and late rule, as one reader may see them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.errors import NotFound
from grading.late import LateRule, steps
from grading.rubric import Rubric, Value
from grading.store import groups, tables
from grading.store.blobs import fetch
from grading.store.database import now
from grading.store.door import Door, door
from grading.store.groups import Group

OFFERED = ("starter/", "data/")
"""Folders whose files students may have; solutions, tests and instructions never leave."""


class Offered(Value):
    """A file to download."""

    path: str
    size: int

    @property
    def name(self) -> str:
        """Without the folder it lies in."""
        return self.path.partition("/")[2]


class ShownCriterion(Value):
    """A criterion as students see it: what earns points, not how that is found out."""

    title: str
    points: float
    levels: tuple[str, ...]


class LateStep(Value):
    """Until then so much is kept."""

    until: datetime
    credit: float


class Overview(Value):
    """An assignment, and how its reader stands."""

    id: int
    course_id: int
    course: str
    course_title: str
    slug: str
    title: str
    due_at: datetime | None
    """That of all; the reader's own is `door.due`."""
    visible: bool
    archived: bool
    counts: str
    group_size: int
    now: datetime
    ready: bool
    """It has a rubric, so it can be handed in."""
    task: str = ""
    criteria: tuple[ShownCriterion, ...] = ()
    max_points: float = 0
    files: tuple[Offered, ...] = ()
    steps: tuple[LateStep, ...] = ()
    door: Door
    group: Group | None = None


def find(session: Session, assignment_id: int) -> tables.Assignment:
    """The assignment. Raises NotFound."""
    found = session.get(tables.Assignment, assignment_id)
    if found is None:
        raise NotFound("There is no such assignment.")
    return found


def overview(session: Session, assignment: tables.Assignment, user_id: int) -> Overview:
    """The assignment as this user sees it."""
    people = groups.together(session, assignment, user_id)
    moment = now(session)
    stands = door(session, assignment, user_id, people, moment)
    found = Overview(
        id=assignment.id,
        course_id=assignment.course_id,
        course=assignment.course.slug,
        course_title=assignment.course.title,
        slug=assignment.slug,
        title=assignment.title,
        due_at=assignment.due_at,
        visible=assignment.visible,
        archived=assignment.course.archived,
        counts=assignment.counts,
        group_size=assignment.group_size,
        now=moment,
        ready=False,
        steps=_steps(stands.due, stands.rule),
        door=stands,
        group=groups.group_of(session, assignment.id, user_id) if assignment.group_size > 1 else None,
    )
    version = _version(session, assignment)
    if version is None:
        return found
    rubric = Rubric.model_validate(version.rubric)
    shown = {
        "ready": True,
        "task": version.task,
        "criteria": tuple(
            ShownCriterion(title=one.title, points=one.points, levels=one.levels) for one in rubric.criteria
        ),
        "max_points": rubric.max_points,
        "files": _offered(session, version.files),
    }
    return found.model_copy(update=shown)


def offered(session: Session, assignment: tables.Assignment, path: str) -> bytes:
    """The bytes of a file that students may have. Raises NotFound for all others."""
    version = _version(session, assignment)
    name = version.files.get(path) if version is not None and path.startswith(OFFERED) else None
    if name is None:
        raise NotFound("There is no such file.")
    return fetch(session, name)


class _Version(Value):
    """What a page needs of the version that counts; starter and solution as documents are large."""

    task: str
    rubric: dict[str, Any]
    files: dict[str, str]


def _version(session: Session, assignment: tables.Assignment) -> _Version | None:
    version = tables.RubricVersion
    query = (
        select(version.task, version.rubric, version.files)
        .where(version.assignment_id == assignment.id, version.published_at.is_not(None))
        .order_by(version.published_at.desc(), version.number.desc())
    )
    row = session.execute(query.limit(1)).one_or_none()
    return None if row is None else _Version(**row._mapping)


def _offered(session: Session, files: Mapping[str, str]) -> tuple[Offered, ...]:
    names = {path: name for path, name in files.items() if path.startswith(OFFERED)}
    blob = tables.Blob
    known = select(blob.sha256, blob.size).where(blob.sha256.in_(set(names.values())))
    sizes = {name: size for name, size in session.execute(known)}  # noqa: C416 - rows are no pairs to mypy
    order = sorted(names, key=lambda path: (not path.startswith(OFFERED[0]), path.casefold()))
    return tuple(Offered(path=path, size=sizes.get(names[path], 0)) for path in order)


def _steps(due: datetime | None, rule: LateRule) -> tuple[LateStep, ...]:
    if due is None:
        return ()
    return tuple(LateStep(until=until, credit=credit) for until, credit in steps(due, rule))
