"""Class uploads: a zip with the files of many students, from its preview to its confirmation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.documents import SubmittedFiles
from grading.documents.class_zip import StudentFiles, name_key
from grading.domain.errors import Conflict, GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.store import tables
from grading.store.accounts import users
from grading.store.audit import write_audit
from grading.store.blobs import load_blob, store_blobs
from grading.store.database import now
from grading.store.submissions import intake
from grading.store.submissions.intake import Accepted, IncomingSubmission

NO_SUCH_UPLOAD = define_message("class_uploads.no_such_upload", "This class upload does not exist.")
SUBMITTED_ALREADY = define_message(
    "class_uploads.submitted_already", "This class upload was already submitted."
)
STUDENT_NOT_IN_COURSE = define_message(
    "class_uploads.student_not_in_course",
    "One of the chosen students is not in this course. Reload the page.",
)


@dataclass(frozen=True)
class Member:
    """A student of the course with the keys that match them."""

    user_id: int
    name: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Match:
    """The files of one student in the zip, with the matching student of the course, if any."""

    entry: StudentFiles
    member: Member | None
    how: str = ""


@dataclass(frozen=True)
class Choice:
    """The decision about one entry: a student's id, or None to create a student."""

    entry: StudentFiles
    content: SubmittedFiles
    user_id: int | None


def create_class_upload(
    session: Session, assignment_id: int, actor: Actor, filename: str, data: bytes
) -> str:
    """Store a zip for its preview; returns the upload's id."""
    (sha256,) = store_blobs(session, [data])
    row = tables.ClassUpload(
        assignment_id=assignment_id,
        created_by=actor.user_id,
        sha256=sha256,
        filename=filename[:400],
        created_at=now(session),
    )
    session.add(row)
    session.flush()
    write_audit(session, actor.name, "batch.upload", f"batch:{row.id}", {"assignment": assignment_id})
    return row.id


def load_class_upload(session: Session, batch_id: str) -> tables.ClassUpload:
    """The class upload. Raises NotFound."""
    row = session.get(tables.ClassUpload, batch_id) if batch_id.isalnum() else None
    if row is None:
        raise NotFound(NO_SUCH_UPLOAD)
    return row


def load_zip(session: Session, batch: tables.ClassUpload) -> bytes:
    """The content of the zip."""
    return load_blob(session, batch.sha256)


def list_students(session: Session, course_id: int) -> tuple[Member, ...]:
    """The students of a course."""
    query = (
        select(tables.User)
        .join(tables.Membership, tables.Membership.user_id == tables.User.id)
        .where(tables.Membership.course_id == course_id, tables.Membership.role == "student")
        .order_by(tables.User.name, tables.User.id)
    )
    return tuple(
        Member(user.id, user.name, tuple(identity.subject for identity in user.identities))
        for user in session.scalars(query)
    )


def match_students(entries: Sequence[StudentFiles], known: Sequence[Member]) -> tuple[Match, ...]:
    """Match each entry by id, else by a name that only one student of the course has."""
    by_id = _unique([(identity.casefold(), member) for member in known for identity in member.ids])
    by_name = _unique([(name_key(member.name), member) for member in known])
    result = []
    for entry in entries:
        found, how = by_id.get((entry.id or "").casefold()), "by sign-in name"
        if found is None and entry.name:
            found, how = by_name.get(name_key(entry.name)), "by name"
        result.append(Match(entry, found, how if found else ""))
    return tuple(result)


def confirm_class_upload(
    session: Session, batch: tables.ClassUpload, course_id: int, choices: Sequence[Choice], actor: Actor
) -> list[Accepted]:
    """Submit for all chosen students in this transaction. Raises Conflict when it is confirmed already."""
    if batch.confirmed_at is not None:
        raise Conflict(SUBMITTED_ALREADY)
    allowed = {member.user_id for member in list_students(session, course_id)}
    batch.confirmed_at = now(session)
    accepted = []
    for choice in choices:
        if choice.user_id is not None and choice.user_id not in allowed:
            raise GraderError(STUDENT_NOT_IN_COURSE)
        student_id = choice.user_id or _create(session, choice.entry, course_id)
        incoming = IncomingSubmission(
            assignment_id=batch.assignment_id,
            student_id=student_id,
            source="zip",
            content=choice.content,
            priority="batch",
            submitted_by=actor.user_id,
            trusted=True,
        )
        accepted.append(intake.accept_submission(session, incoming))
    write_audit(session, actor.name, "batch.confirm", f"batch:{batch.id}", {"students": len(accepted)})
    return accepted


def _create(session: Session, entry: StudentFiles, course_id: int) -> int:
    """Create a student under the id in the zip, or under the key where it has only a name."""
    subject = entry.id or entry.key
    user = users.find_or_create_student(session, "local", subject, entry.name or "", "", course_id)
    return user.id


def _unique(pairs: Sequence[tuple[str, Member]]) -> Mapping[str, Member]:
    """Keys of exactly one student."""
    found: dict[str, Member | None] = {}
    for key, member in pairs:
        same = found.get(key, member)
        found[key] = member if same is member and key else None
    return {key: member for key, member in found.items() if member is not None}


def lock_class_upload(session: Session, batch_id: str) -> tables.ClassUpload:
    """The class upload, locked until the transaction ends. Raises NotFound."""
    row = session.scalar(
        select(tables.ClassUpload).where(tables.ClassUpload.id == batch_id).with_for_update()
    )
    if row is None:
        raise NotFound(NO_SUCH_UPLOAD)
    return row
