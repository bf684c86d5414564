"""Courses, assignments and their rubric versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.errors import NotFound
from grading.jobs import ENGLISH
from grading.model import Document
from grading.rubric import Rubric
from grading.store.blobs import keep
from grading.store.database import now
from grading.store.tables import Assignment, Course, RubricVersion


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
    session.flush()
    counts = _counting(session, assignment)
    if counts is not None and counts.digest == new.digest:
        return assignment, counts, False
    version = add_version(session, assignment, new)
    version.published_at = version.created_at
    return assignment, version, True


def _newest(session: Session, assignment: Assignment) -> RubricVersion | None:
    of_it = select(RubricVersion).where(RubricVersion.assignment_id == assignment.id)
    return session.execute(of_it.order_by(RubricVersion.number.desc()).limit(1)).scalar_one_or_none()


def _counting(session: Session, assignment: Assignment) -> RubricVersion | None:
    """The version that was published last; drafts do not count."""
    published = RubricVersion.published_at.is_not(None)
    of_it = select(RubricVersion).where(RubricVersion.assignment_id == assignment.id, published)
    newest = of_it.order_by(RubricVersion.published_at.desc(), RubricVersion.number.desc())
    return session.execute(newest.limit(1)).scalar_one_or_none()


def add_version(session: Session, assignment: Assignment, new: NewVersion) -> RubricVersion:
    """A version that does not count yet."""
    newest = _newest(session, assignment)
    names = keep(session, new.files.values())
    version = RubricVersion(
        assignment_id=assignment.id,
        number=newest.number + 1 if newest else 1,
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
        created_at=now(session),
    )
    session.add(version)
    session.flush()
    return version


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
    newest = _counting(session, assignment)
    if newest is None:
        raise NotFound(f"The assignment '{assignment.slug}' has no rubric yet; import its folder first.")
    return newest
