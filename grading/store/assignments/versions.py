"""Rubric versions of an assignment: drafts, publication, import and export."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import BindParameter, Integer, ScalarSelect, Select, Text, bindparam, cast, select
from sqlalchemy.orm import Session, aliased, joinedload

from grading.assignments import loader as folders
from grading.assignments.editor.diff import Side, differences
from grading.assignments.editor.folder import Content, Settings, compose, exported, others
from grading.assignments.legacy_import import Works
from grading.assignments.loader import read_files
from grading.documents import Limits
from grading.domain.base_value import Value
from grading.domain.document import Document
from grading.domain.errors import CannotUndo, Conflict, NotFound
from grading.domain.jobs import ENGLISH
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.rubric import Rubric
from grading.domain.shared_messages import NO_SUCH_ASSIGNMENT
from grading.store import blobs, tables
from grading.store.assignments.settings import lock_assignment, require_free_slug, set_columns, settings_of
from grading.store.audit import done_at, write_audit
from grading.store.blobs import store_blobs
from grading.store.database import now
from grading.store.tables import (
    Assignment,
    Course,
    RubricVersion,
)

NO_ASSIGNMENT_OF_NAME = define_message(
    "versions.no_assignment_of_name",
    "The assignment '%(name)s' does not exist. Write it as course/assignment.",
)
NO_RUBRIC_YET = define_message(
    "versions.no_rubric_yet", "The assignment '%(slug)s' has no rubric yet. Publish or import one first."
)
NO_RUBRIC = define_message("versions.no_rubric", "This assignment has no rubric yet.")
NO_SUCH_VERSION = define_message("versions.no_such_version", "This version does not exist.")
NOTHING_CHANGED = define_message("versions.nothing_changed", "Nothing was changed, so nothing was saved.")
PUBLISHED_SINCE = define_message(
    "versions.published_since", "Nothing was undone: version %(version)s was published in the meantime."
)
GRADED_SINCE = define_message(
    "versions.graded_since",
    "Nothing was undone: submissions were graded with version %(version)s in the meantime.",
)


@dataclass(frozen=True)
class NewVersion:
    """The content of an assignment folder, ready to be stored; `digest` identifies it."""

    slug: str
    title: str
    language: str
    release: str
    digest: str
    rubric: Rubric
    task: str = ""
    instructions: Mapping[str, str] = field(default_factory=dict)
    starter: Sequence[Document] = ()
    solution: Sequence[Document] = ()
    share_solution: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    due: datetime | None = None
    spoken_language: str = ENGLISH
    show_draft: bool = False
    report: Sequence[str] = ()
    """Notes for the instructor on how its files were read, a sentence each."""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the assignment that the folder sets beside those above."""


def version_of_folder(read: folders.Assignment, release: str = "after_review") -> NewVersion:
    """A folder's content, ready to be stored; `release` is the default where it sets none."""
    return NewVersion(
        slug=read.slug,
        title=read.title,
        language=read.language,
        release=read.release or release,
        digest=read.version,
        rubric=read.rubric,
        task=read.task,
        instructions=read.instructions,
        starter=read.starter,
        solution=read.solution,
        share_solution=read.share_solution,
        spoken_language=read.spoken_language,
        show_draft=read.show_draft,
        files=dict(read.files),
        due=read.due,
        report=read.notes,
        rules=read.rules,
    )


def find_or_create_course(session: Session, slug: str, title: str | None = None) -> Course:
    """The course of that slug, created if it is new."""
    found = session.execute(select(Course).where(Course.slug == slug)).scalar_one_or_none()
    if found is None:
        found = Course(slug=slug, title=title or slug.replace("-", " ").capitalize())
        session.add(found)
        session.flush()
    return found


def import_version(
    session: Session, course_slug: str, new: NewVersion
) -> tuple[Assignment, RubricVersion, bool]:
    """Store an assignment and publish its version; a version equal to the newest is not added (last value
    False).
    """
    owner = find_or_create_course(session, course_slug)
    assignment = session.execute(
        select(Assignment).where(Assignment.course_id == owner.id, Assignment.slug == new.slug)
    ).scalar_one_or_none()
    if assignment is None:
        assignment = Assignment(course_id=owner.id, slug=new.slug, title=new.title, created_at=now(session))
        session.add(assignment)
    assignment.title, assignment.language, assignment.release = new.title, new.language, new.release
    assignment.due_at = new.due
    for name, value in new.rules.items():
        setattr(assignment, name, value)
    session.flush()
    counts = find_published(session, assignment)
    if counts is not None and counts.digest == new.digest:
        return assignment, counts, False
    version = add_version(session, assignment, new)
    version.published_at = version.created_at
    return assignment, version, True


def newest_version(session: Session, assignment: Assignment) -> RubricVersion | None:
    """The version with the highest number, which may be a draft, or None."""
    of_it = select(RubricVersion).where(RubricVersion.assignment_id == assignment.id)
    return session.execute(of_it.order_by(RubricVersion.number.desc()).limit(1)).scalar_one_or_none()


def find_published(session: Session, assignment: Assignment) -> RubricVersion | None:
    """The version that was published last, or None."""
    published = RubricVersion.published_at.is_not(None)
    of_it = select(RubricVersion).where(RubricVersion.assignment_id == assignment.id, published)
    last = of_it.order_by(RubricVersion.published_at.desc(), RubricVersion.number.desc())
    return session.execute(last.limit(1)).scalar_one_or_none()


def add_version(session: Session, assignment: Assignment, new: NewVersion) -> RubricVersion:
    """Add a version that is not published."""
    last = newest_version(session, assignment)
    names = store_blobs(session, new.files.values())
    version = RubricVersion(
        assignment_id=assignment.id,
        number=last.number + 1 if last else 1,
        digest=new.digest,
        rubric=new.rubric.model_dump(mode="json"),
        task=new.task,
        instructions=dict(new.instructions),
        starter=[document.model_dump(mode="json") for document in new.starter],
        solution=[document.model_dump(mode="json") for document in new.solution],
        share_solution=new.share_solution,
        spoken_language=new.spoken_language,
        show_draft=new.show_draft,
        files=dict(zip(new.files, names, strict=True)),
        note=with_report("Imported", new.report) if new.report else "",
        created_at=now(session),
    )
    session.add(version)
    session.flush()
    return version


def with_report(note: str, report: Sequence[str]) -> str:
    """A version's note, with the notes on how its files were read below."""
    return "\n".join((note, *(" ".join(sentence.split()) for sentence in report)))


def find_by_name(session: Session, name: str) -> Assignment:
    """The assignment `course/slug`. Raises NotFound."""
    course_slug, _, slug = name.partition("/")
    found = session.execute(
        select(Assignment).join(Course).where(Course.slug == course_slug, Assignment.slug == slug)
    ).scalar_one_or_none()
    if found is None:
        raise NotFound(NO_ASSIGNMENT_OF_NAME(name=name))
    return found


def list_names(session: Session) -> list[str]:
    """The names `course/slug` of all assignments."""
    rows = session.execute(select(Course.slug, Assignment.slug).join(Assignment.course))
    return [f"{course}/{slug}" for course, slug in rows]


def published_version(session: Session, assignment: Assignment) -> RubricVersion:
    """The version that was published last. Raises NotFound."""
    found = find_published(session, assignment)
    if found is None:
        raise NotFound(NO_RUBRIC_YET(slug=assignment.slug))
    return found


class Criterion(Value):
    """A criterion of an assignment's published rubric."""

    id: str
    title: str
    max_points: float


def criteria_of(session: Session, assignment_id: int) -> tuple[Criterion, ...]:
    """The criteria of the newest published version, in their order."""
    rubric = newest_rubric(session, assignment_id)
    return tuple(
        Criterion(id=one["id"], title=one["title"], max_points=one["points"])
        for one in rubric.get("criteria", ())
    )


def newest_rubric(session: Session, assignment_id: int) -> Mapping[str, Any]:
    """The rubric of the newest published version as stored JSON; empty where there is none."""
    query = select(RubricVersion.rubric).where(
        RubricVersion.assignment_id == assignment_id, RubricVersion.published_at.is_not(None)
    )
    return session.scalar(query.order_by(RubricVersion.number.desc()).limit(1)) or {}


def load_assignment(session: Session, assignment_id: int) -> Assignment:
    """The assignment. Raises NotFound."""
    found = session.scalar(_found_assignment(), {"assignment_id": assignment_id})
    if found is None:
        raise NotFound(NO_SUCH_ASSIGNMENT)
    return found


@cache
def _found_assignment() -> Select[Assignment]:
    query = select(Assignment).options(joinedload(Assignment.course, innerjoin=True))
    return query.where(Assignment.id == bindparam("assignment_id"))


VERSIONS_PER_PAGE = 200
"""Versions in a list."""
MAX_NOTE = 500


SAVED_BY = define_message("versions.saved_by", "%(name)s saved version %(version)s while you were editing.")
SAVED = define_message("versions.saved", "Someone saved version %(version)s while you were editing.")


class SavedMeanwhile(Conflict):
    """Not saved: someone else saved a version at the same time. Reload the page and try again."""

    default_message = define_message(
        "error.saved_meanwhile",
        "Not saved: someone else saved a version at the same time. Reload the page and try again.",
    )

    def __init__(self, number: int, by: str) -> None:
        super().__init__(SAVED_BY(name=by, version=number) if by else SAVED(version=number))
        self.number = number


class NothingChanged(Conflict):
    """The new version is identical to the current one."""

    default_message = define_message(
        "error.nothing_changed", "The new version is identical to the current one."
    )


class VersionEntry(Value):
    """A version in a list."""

    number: int
    created_at: datetime
    by: str
    note: str
    published_at: datetime | None
    counts: bool
    """Submissions are graded with it now."""


@dataclass(frozen=True)
class VersionState:
    """State of the newest version, which editors work on."""

    number: int
    draft: bool
    """It was never published."""
    counting: int | None
    """Number of the published version that counts; None before the first publication."""
    counting_id: int | None


@dataclass(frozen=True)
class NewestVersion(VersionState):
    """The newest version with its state."""

    version: tables.RubricVersion


def load_newest(session: Session, assignment: tables.Assignment) -> NewestVersion:
    """The newest version. Raises NotFound."""
    row = session.execute(_newest(tables.RubricVersion), {"assignment_id": assignment.id}).one_or_none()
    if row is None:
        raise NotFound(NO_RUBRIC)
    found = row[0]
    return NewestVersion(found.number, found.published_at is None, row.counting, row.counting_id, found)


def newest_state(session: Session, assignment_id: int) -> VersionState:
    """The newest version's state without its content. Raises NotFound."""
    columns = (tables.RubricVersion.number, tables.RubricVersion.published_at)
    return _state_of(session.execute(_newest(*columns), {"assignment_id": assignment_id}).one_or_none())


def _state_of(row: Any) -> VersionState:
    if row is None:
        raise NotFound(NO_RUBRIC)
    return VersionState(row.number, row.published_at is None, row.counting, row.counting_id)


def newest_state_with_files(session: Session, assignment_id: int) -> tuple[VersionState, dict[str, bool]]:
    """The newest version's state, with whether it has a starter and a solution."""
    row: Any = session.execute(_newest_and_has(), {"assignment_id": assignment_id}).one_or_none()
    return _state_of(row), {"starter": row.starter, "solution": row.solution}


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
    """The version that counts: its number, or another column."""
    table = aliased(tables.RubricVersion)
    return (
        select(getattr(table, column))
        .where(table.assignment_id == assignment_id, table.published_at.is_not(None))
        .order_by(table.published_at.desc(), table.number.desc())
        .limit(1)
        .scalar_subquery()
    )


def version_by_number(session: Session, assignment_id: int, number: int) -> tables.RubricVersion:
    """A version by its number. Raises NotFound."""
    of_it = select(tables.RubricVersion).where(
        tables.RubricVersion.assignment_id == assignment_id, tables.RubricVersion.number == number
    )
    found = session.execute(of_it).scalar_one_or_none()
    if found is None:
        raise NotFound(NO_SUCH_VERSION)
    return found


def list_versions(
    session: Session, assignment: tables.Assignment, below: int | None = None, limit: int = VERSIONS_PER_PAGE
) -> list[VersionEntry]:
    """Versions (below a number), the newest first, in one query and without their content."""
    query = _versions() if below is None else _versions().where(tables.RubricVersion.number < below)
    rows = session.execute(query.limit(limit), {"assignment_id": assignment.id}).all()
    return [
        VersionEntry(
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
def _versions() -> Any:
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


def load_files(session: Session, row: tables.RubricVersion) -> dict[str, bytes]:
    """The files of a version, by path."""
    found = blobs.load_blobs(session, set(row.files.values()))
    return {path: found[name] for path, name in row.files.items() if name in found}


def load_content(session: Session, row: tables.RubricVersion) -> Content:
    """A version's content, ready to be edited."""
    return content_of(row, load_files(session, row))


def content_of(row: tables.RubricVersion, stored: Mapping[str, bytes]) -> Content:
    """The content of a version whose files are loaded."""
    return Content(
        rubric=Rubric.model_validate(row.rubric),
        task=row.task,
        instructions={stage: str(text) for stage, text in row.instructions.items()},
        share_solution=row.share_solution,
        spoken_language=row.spoken_language,
        show_draft=row.show_draft,
        files=others(stored),
    )


def comparable(row: tables.RubricVersion) -> Side:
    """A version's content for comparing it with others."""
    return Side(
        rubric=Rubric.model_validate(row.rubric),
        task=row.task,
        instructions=row.instructions,
        share_solution=row.share_solution,
        spoken_language=row.spoken_language,
        show_draft=row.show_draft,
        files=row.files,
    )


def export_files(
    session: Session, assignment: tables.Assignment, row: tables.RubricVersion
) -> dict[str, bytes]:
    """The files of a version's folder, with the present settings."""
    stored = load_files(session, row)
    return exported(stored, settings_of(assignment), content_of(row, stored))


def reference_works(row: tables.RubricVersion) -> Works:
    """Solution and starter of a version, from which imports derive checks."""
    solution, starter = ([Document.model_validate(d) for d in one] for one in (row.solution, row.starter))
    return Works(solution, starter, frozenset(path for path in row.files if path.startswith("data/")))


def save_draft(
    session: Session,
    assignment: tables.Assignment,
    content: Content,
    base: int,
    actor: Actor,
    note: str = "",
    report: Sequence[str] = (),
) -> tables.RubricVersion:
    """Store a new draft, made from version `base`; `report` is stored below its note.

    Raises SavedMeanwhile where `base` is not the newest any more, NothingChanged, and AssignmentError for
    content that is invalid in folders, too.
    """
    lock_assignment(session, assignment)
    newest = load_newest(session, assignment).version
    if newest.number != base:
        by = session.get(tables.User, newest.created_by) if newest.created_by else None
        raise SavedMeanwhile(newest.number, by.name if by else "")
    read = read_files(compose(settings_of(assignment), content), Limits())
    if not differences(comparable(newest), _comparable_folder(read)):
        raise NothingChanged(NOTHING_CHANGED)
    made = add_version(session, assignment, version_of_folder(read, assignment.release))
    made.created_by = actor.user_id
    made.note = with_report(note.strip()[:MAX_NOTE], report)
    write_audit(
        session, actor.name, "assignment.save", f"assignment:{assignment.id}", {"version": made.number}
    )
    return made


def _comparable_folder(read: folders.Assignment) -> Side:
    return Side(
        rubric=read.rubric,
        task=read.task,
        instructions=read.instructions,
        share_solution=read.share_solution,
        spoken_language=read.spoken_language,
        show_draft=read.show_draft,
        files={path: hashlib.sha256(data).hexdigest() for path, data in read.files},
    )


def publish_version(session: Session, assignment: tables.Assignment, number: int, actor: Actor) -> bool:
    """Publish a version: from now on it counts. False when it was published before."""
    lock_assignment(session, assignment)
    row = version_by_number(session, assignment.id, number)
    if row.published_at is not None:
        return False
    row.published_at = now(session)
    session.flush()
    write_audit(session, actor.name, "assignment.publish", f"assignment:{assignment.id}", {"version": number})
    return True


def undo_publication(
    session: Session, assignment: tables.Assignment, number: int, moment: datetime, actor: Actor
) -> None:
    """Make a version a draft again that the actor published at this moment. Raises NotFound, CannotUndo."""
    lock_assignment(session, assignment)
    row = version_by_number(session, assignment.id, number)
    done = done_at(session, actor.name, moment, "assignment.publish")
    if row.published_at != moment or not any(one.object == f"assignment:{assignment.id}" for one in done):
        raise CannotUndo
    unpublish(session, assignment, row)
    detail = {"version": number}
    write_audit(session, actor.name, "assignment.unpublish", f"assignment:{assignment.id}", detail)


def unpublish(session: Session, assignment: tables.Assignment, version: tables.RubricVersion) -> None:
    """Make the version in use a draft again. Raises CannotUndo where it was used since it was published."""
    counts = find_published(session, assignment)
    if counts is None or counts.id != version.id:
        raise CannotUndo(PUBLISHED_SINCE(version=counts.number if counts else version.number))
    since = select(tables.Round.id).where(
        tables.Round.rubric_version_id == version.id, tables.Round.created_at >= version.published_at
    )
    if session.scalar(since.limit(1)) is not None:
        raise CannotUndo(GRADED_SINCE(version=version.number))
    version.published_at = None
    session.flush()


def restore_version(
    session: Session, assignment: tables.Assignment, number: int, actor: Actor, note: str
) -> tables.RubricVersion:
    """Store a new draft with the content of an old version.

    Raises NothingChanged where that is the newest.
    """
    old = version_by_number(session, assignment.id, number)
    base = load_newest(session, assignment).version.number
    return save_draft(session, assignment, load_content(session, old), base, actor, note)


def create_assignment(
    session: Session,
    course_id: int,
    settings: Settings,
    first: Content,
    actor: Actor,
    report: Sequence[str] = (),
) -> tables.Assignment:
    """Create an assignment with a first draft. Raises Conflict where the course has one of that slug."""
    session.execute(select(tables.Course.id).where(tables.Course.id == course_id).with_for_update())
    require_free_slug(session, course_id, settings.slug)
    made = tables.Assignment(course_id=course_id, created_at=now(session), slug=settings.slug)
    set_columns(made, settings)
    session.add(made)
    session.flush()
    read = read_files(compose(settings, first), Limits())
    row = add_version(session, made, version_of_folder(read, settings.release))
    row.created_by, row.note = actor.user_id, with_report("", report) if report else ""
    write_audit(session, actor.name, "assignment.create", f"assignment:{made.id}", {"slug": settings.slug})
    return made
