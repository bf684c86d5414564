"""What a student can prove a hand-in with: its files, their hashes, and one fingerprint of them all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.errors import NotFound
from grading.late import Lateness
from grading.rubric import Value
from grading.store import tables
from grading.store.settling import lateness_of


class ReceivedFile(Value):
    """A file as it was kept; `sha256` is that of its bytes, `size` their number."""

    path: str
    sha256: str
    size: int

    @property
    def line(self) -> str:
        """How the fingerprint sees it."""
        return f"{self.sha256} {self.size} {self.path}"


class Receipt(Value):
    """A hand-in as it was accepted."""

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
    source: str
    created_at: datetime
    lateness: Lateness
    files: tuple[ReceivedFile, ...]
    fingerprint: str


def fingerprint(files: Iterable[ReceivedFile]) -> str:
    r"""SHA-256 over the lines `sha256 size path`, sorted by path, each ended by `\n`, in UTF-8."""
    lines = (f"{file.line}\n" for file in in_order(files))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def in_order(files: Iterable[ReceivedFile]) -> list[ReceivedFile]:
    """By path as bytes, so that no language decides the order."""
    return sorted(files, key=lambda file: file.path.encode("utf-8", "surrogatepass"))


def received(path: str, data: bytes) -> ReceivedFile:
    """A file with its hash."""
    return ReceivedFile(path=path, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def receipt(session: Session, submission_id: str) -> Receipt:
    """The receipt of a hand-in. Raises NotFound. Older ones get the fingerprint their files give."""
    found = session.get(tables.Submission, submission_id) if submission_id.isalnum() else None
    if found is None:
        raise NotFound("There is no such submission.")
    files = files_of(session, submission_id)
    member = tables.SubmissionMember
    others = select(tables.User.id, tables.User.name).join(member, member.user_id == tables.User.id)
    known = session.execute(others.where(member.submission_id == submission_id).order_by(tables.User.name))
    names = [(row.id, row.name) for row in known]
    assignment = found.assignment
    return Receipt(
        submission_id=found.id,
        course_id=assignment.course_id,
        course_title=assignment.course.title,
        assignment_id=assignment.id,
        assignment_title=assignment.title,
        number=found.number,
        student_id=found.student_id,
        student=found.student.name,
        members=tuple(user_id for user_id, _ in names),
        member_names=tuple(name for _, name in names),
        source=found.source,
        created_at=found.created_at,
        lateness=lateness_of(session, found),
        files=files,
        fingerprint=found.fingerprint or fingerprint(files),
    )


def files_of(session: Session, submission_id: str) -> tuple[ReceivedFile, ...]:
    """The files of a hand-in as the receipt lists them."""
    file = tables.SubmissionFile
    query = select(file.path, file.sha256, file.size).where(file.submission_id == submission_id)
    return tuple(in_order(ReceivedFile(**row._mapping) for row in session.execute(query)))
