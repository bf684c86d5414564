"""Receipts: proof of a submission by its files' hashes and one fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Select, and_, bindparam, exists, select
from sqlalchemy.orm import Session, aliased

from grading.domain.base_value import Value
from grading.domain.errors import NotFound
from grading.domain.lateness import Lateness, LateRule, lateness, own_due
from grading.domain.shared_messages import NO_SUCH_SUBMISSION
from grading.store import tables


class ReceivedFile(Value):
    """A stored file with the SHA-256 and size of its bytes."""

    path: str
    sha256: str
    size: int

    @property
    def line(self) -> str:
        """Its line in the fingerprint."""
        return f"{self.sha256} {self.size} {self.path}"


class Receipt(Value):
    """A submission as it was accepted."""

    submission_id: str
    course_id: int
    course_title: str
    assignment_id: int
    assignment_title: str
    number: int
    student_id: int
    student: str
    members: tuple[int, ...]
    """Users it counts for beside the student."""
    member_names: tuple[str, ...]
    submitted_by: str
    """Name of the person who submitted it; empty if that was the student, or a learning platform."""
    source: str
    created_at: datetime
    lateness: Lateness
    files: tuple[ReceivedFile, ...]
    fingerprint: str


def fingerprint(files: Iterable[ReceivedFile]) -> str:
    r"""SHA-256 over the lines `sha256 size path`, sorted by path, each ended by `\n`, in UTF-8."""
    lines = (f"{file.line}\n" for file in sort_by_path(files))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def sort_by_path(files: Iterable[ReceivedFile]) -> list[ReceivedFile]:
    """Sorted by path as bytes, independent of any locale."""
    return sorted(files, key=lambda file: file.path.encode("utf-8", "surrogatepass"))


def received_file(path: str, data: bytes) -> ReceivedFile:
    """A file with its hash."""
    return ReceivedFile(path=path, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def load_receipt(session: Session, submission_id: str) -> Receipt:
    """The receipt of a submission. Raises NotFound."""
    row = (
        session.execute(_head(), {"submission_id": submission_id}).first()
        if submission_id.isalnum()
        else None
    )
    if row is None:
        raise NotFound(NO_SUCH_SUBMISSION)
    files = list_files(session, submission_id)
    names: list[tuple[int, str]] = []
    if row.in_group:
        member = tables.SubmissionMember
        others = select(tables.User.id, tables.User.name).join(member, member.user_id == tables.User.id)
        known = session.execute(
            others.where(member.submission_id == submission_id).order_by(tables.User.name)
        )
        names = [(one.id, one.name) for one in known]
    due = own_due(row.due_at, row.own)
    return Receipt(
        submission_id=row.id,
        course_id=row.course_id,
        course_title=row.course_title,
        assignment_id=row.assignment_id,
        assignment_title=row.assignment_title,
        number=row.number,
        student_id=row.student_id,
        student=row.student,
        members=tuple(user_id for user_id, _ in names),
        member_names=tuple(name for _, name in names),
        submitted_by=row.submitted_by or "",
        source=row.source,
        created_at=row.created_at,
        lateness=lateness(row.created_at, due, LateRule.model_validate(row.late or {})),
        files=files,
        fingerprint=row.fingerprint,
    )


@cache
def _head() -> Select[Any]:
    """A submission with assignment, course and student, and whether it has group members."""
    own, assignment, extension = tables.Submission, tables.Assignment, tables.Extension
    theirs = and_(extension.assignment_id == assignment.id, extension.student_id == own.student_id)
    person = aliased(tables.User)
    columns = (
        own.id,
        own.number,
        own.student_id,
        own.source,
        own.created_at,
        own.fingerprint,
        assignment.course_id,
        assignment.id.label("assignment_id"),
        assignment.title.label("assignment_title"),
        assignment.due_at,
        assignment.late,
        tables.Course.title.label("course_title"),
        tables.User.name.label("student"),
        person.name.label("submitted_by"),
        extension.due_at.label("own"),
        exists().where(tables.SubmissionMember.submission_id == own.id).label("in_group"),
    )
    query: Select[Any] = select(*columns).select_from(own)
    return (
        query.join(assignment, assignment.id == own.assignment_id)
        .join(tables.Course, tables.Course.id == assignment.course_id)
        .join(tables.User, tables.User.id == own.student_id)
        .outerjoin(person, and_(person.id == own.submitted_by, person.id != own.student_id))
        .outerjoin(extension, theirs)
        .where(own.id == bindparam("submission_id"))
    )


def list_files(session: Session, submission_id: str) -> tuple[ReceivedFile, ...]:
    """The files of a submission as the receipt lists them."""
    file = tables.SubmissionFile
    query = select(file.path, file.sha256, file.size).where(file.submission_id == submission_id)
    return tuple(sort_by_path(ReceivedFile(**row._mapping) for row in session.execute(query)))
