"""Courses, assignments and their rubric versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import Session, joinedload

from grading.assignments import loader as folders
from grading.domain.errors import NotFound
from grading.domain.jobs import ENGLISH
from grading.domain.model import Document
from grading.domain.rubric import Rubric
from grading.domain.value import Value
from grading.store.blobs import keep
from grading.store.database import now
from grading.store.tables import (
    Assignment,
    Course,
    RubricVersion,
)


@dataclass(frozen=True)
class NewVersion:
    """What an assignment folder holds, ready to be stored; `digest` identifies its content."""

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
    """What the instructor should know of how its files were read, a sentence each."""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the assignment that the folder speaks of beside those above."""


def of_folder(read: folders.Assignment, release: str = "after_review") -> NewVersion:
    """What was read from a folder, ready to be stored; `release` counts where it names none."""
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


def course(session: Session, slug: str, title: str | None = None) -> Course:
    """The course of that slug, made if it is new."""
    found = session.execute(select(Course).where(Course.slug == slug)).scalar_one_or_none()
    if found is None:
        found = Course(slug=slug, title=title or slug.replace("-", " ").capitalize())
        session.add(found)
        session.flush()
    return found


def put(session: Session, course_slug: str, new: NewVersion) -> tuple[Assignment, RubricVersion, bool]:
    """Store an assignment; what is already its newest version adds none (last value False)."""
    owner = course(session, course_slug)
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
    counts = counting(session, assignment)
    if counts is not None and counts.digest == new.digest:
        return assignment, counts, False
    version = add_version(session, assignment, new)
    version.published_at = version.created_at
    return assignment, version, True


def newest(session: Session, assignment: Assignment) -> RubricVersion | None:
    """The version of the highest number, also a draft."""
    of_it = select(RubricVersion).where(RubricVersion.assignment_id == assignment.id)
    return session.execute(of_it.order_by(RubricVersion.number.desc()).limit(1)).scalar_one_or_none()


def counting(session: Session, assignment: Assignment) -> RubricVersion | None:
    """The version that was published last; drafts do not count."""
    published = RubricVersion.published_at.is_not(None)
    of_it = select(RubricVersion).where(RubricVersion.assignment_id == assignment.id, published)
    last = of_it.order_by(RubricVersion.published_at.desc(), RubricVersion.number.desc())
    return session.execute(last.limit(1)).scalar_one_or_none()


def add_version(session: Session, assignment: Assignment, new: NewVersion) -> RubricVersion:
    """A version that does not count yet."""
    last = newest(session, assignment)
    names = keep(session, new.files.values())
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
    """The note of a version, with the sentences about how its files were read on the lines below."""
    return "\n".join((note, *(" ".join(sentence.split()) for sentence in report)))


def find(session: Session, name: str) -> Assignment:
    """The assignment called `course/slug`."""
    course_slug, _, slug = name.partition("/")
    found = session.execute(
        select(Assignment).join(Course).where(Course.slug == course_slug, Assignment.slug == slug)
    ).scalar_one_or_none()
    if found is None:
        raise NotFound(f"There is no assignment '{name}'; write it as course/assignment.")
    return found


def version(session: Session, assignment: Assignment) -> RubricVersion:
    """The version that counts now."""
    found = counting(session, assignment)
    if found is None:
        raise NotFound(f"The assignment '{assignment.slug}' has no rubric yet; publish or import one first.")
    return found


class Criterion(Value):
    """A criterion of an assignment's newest rubric."""

    id: str
    title: str
    max_points: float


def criteria_of(session: Session, assignment_id: int) -> tuple[Criterion, ...]:
    """Of the newest version that counts, in their order."""
    rubric = newest_rubric(session, assignment_id)
    return tuple(
        Criterion(id=one["id"], title=one["title"], max_points=one["points"])
        for one in rubric.get("criteria", ())
    )


def newest_rubric(session: Session, assignment_id: int) -> Mapping[str, Any]:
    """The newest version that counts, as stored JSON; empty where there is none."""
    query = select(RubricVersion.rubric).where(
        RubricVersion.assignment_id == assignment_id, RubricVersion.published_at.is_not(None)
    )
    return session.scalar(query.order_by(RubricVersion.number.desc()).limit(1)) or {}


def by_id(session: Session, assignment_id: int) -> Assignment:
    """The assignment. Raises NotFound."""
    found = session.scalar(_found_assignment(), {"assignment_id": assignment_id})
    if found is None:
        raise NotFound("There is no such assignment.")
    return found


@cache
def _found_assignment() -> Select[Assignment]:
    query = select(Assignment).options(joinedload(Assignment.course, innerjoin=True))
    return query.where(Assignment.id == bindparam("assignment_id"))
