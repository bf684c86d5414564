"""Pending uploads: files that are kept for a day and shown before they are submitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from grading.checks.upload_notes import Reading, reading
from grading.documents import SubmittedFiles, in_language
from grading.domain.base_value import Value
from grading.domain.document import Document
from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.domain.rubric import Rubric
from grading.store import tables
from grading.store.assignments import versions
from grading.store.blobs import delete_unused_blobs, store_blobs
from grading.store.bulk import chunks, delete_rows
from grading.store.database import now
from grading.store.submissions.receipts import ReceivedFile, fingerprint, received_file, sort_by_path
from grading.store.tables import (
    IdempotencyKey,
    Upload,
    UploadFile,
    User,
    new_id,
)

UPLOAD_GONE = define_message(
    "uploads.upload_gone",
    "This upload no longer exists. If you did not submit it, upload your files again.",
)

GRACE_PERIOD = timedelta(minutes=15)
"""A submission within this time after its upload counts from the upload's end."""
KEEP_FOR = timedelta(days=1)
"""Until deletion, see `grading.store.privacy.retention`."""


class PendingUpload(Value):
    """An upload that is not submitted yet."""

    id: str
    assignment_id: int
    user_id: int
    created_at: datetime
    counts_until: datetime
    """Submitted until then, it counts from `created_at`; later, from the submission."""
    counts_at: datetime
    """The time from which it would count if it were submitted now."""
    kept_until: datetime
    reading: Reading
    files: tuple[ReceivedFile, ...] = ()
    fingerprint: str = ""


class AlreadySubmitted(Exception):
    """This upload was submitted before."""

    def __init__(self, submission_id: str) -> None:
        super().__init__(submission_id)
        self.submission_id = submission_id


def read_upload(session: Session, assignment: tables.Assignment, content: SubmittedFiles) -> Reading:
    """What the files look like to the checks, by the rubric that counts now."""
    version = versions.published_version(session, assignment)
    starter = [Document.model_validate(document) for document in version.starter]
    rubric, tests = (
        Rubric.model_validate(version.rubric),
        [p for p in version.files if p.startswith("tests/")],
    )
    documents = in_language(content.documents, assignment.language)
    return reading(documents, content.notes, rubric, starter, tests)


def save_upload(
    session: Session, assignment_id: int, user_id: int, content: SubmittedFiles, read: Reading, form_key: str
) -> str:
    """Store an upload in place of an earlier one of the same user; returns its id."""
    # the lock of submitting: an upload is not replaced while it is being submitted
    session.execute(select(User.id).where(User.id == user_id).with_for_update())
    discard_upload(session, assignment_id, user_id)
    files = [received_file(file.name, file.data) for file in content.files]
    row = Upload(
        id=new_id(),
        assignment_id=assignment_id,
        user_id=user_id,
        form_key=form_key,
        documents=[document.model_dump(mode="json") for document in content.documents],
        notes=list(content.notes),
        reading=read.model_dump(mode="json"),
        fingerprint=fingerprint(files),
        created_at=now(session),
    )
    session.add(row)
    session.flush()
    store_blobs(session, (file.data for file in content.files))
    session.add_all(UploadFile(upload_id=row.id, **file.model_dump()) for file in files)
    session.flush()
    return row.id


def load_upload(session: Session, upload_id: str, user_id: int) -> PendingUpload:
    """A user's own upload. Raises NotFound."""
    row = session.get(Upload, upload_id) if upload_id.isalnum() else None
    if row is None or row.user_id != user_id:
        raise NotFound(UPLOAD_GONE)
    file = UploadFile
    files = session.execute(select(file.path, file.sha256, file.size).where(file.upload_id == row.id))
    listed = tuple(sort_by_path(ReceivedFile(**one._mapping) for one in files))
    return _waiting(session, row).model_copy(update={"files": listed, "fingerprint": row.fingerprint})


def load_unsubmitted(session: Session, upload_id: str, user_id: int, caller: str) -> PendingUpload:
    """A user's own upload. Raises AlreadySubmitted, or NotFound when it is gone.

    The submission is looked for last: another request that submits the upload deletes it and stores the
    submission in one transaction.
    """
    try:
        return load_upload(session, upload_id, user_id)
    except NotFound:
        before = find_submission(session, caller, upload_id)
        if before is None:
            raise
        raise AlreadySubmitted(before) from None


def find_pending(session: Session, user_id: int, assignment_id: int | None = None) -> list[PendingUpload]:
    """A user's upload for an assignment, or None."""
    query = select(Upload).where(Upload.user_id == user_id)
    if assignment_id is not None:
        query = query.where(Upload.assignment_id == assignment_id)
    return [_waiting(session, row) for row in session.scalars(query)]


def _waiting(session: Session, row: Upload) -> PendingUpload:
    moment, until = now(session), row.created_at + GRACE_PERIOD
    return PendingUpload(
        id=row.id,
        assignment_id=row.assignment_id,
        user_id=row.user_id,
        created_at=row.created_at,
        counts_until=until,
        counts_at=row.created_at if moment <= until else moment,
        kept_until=row.created_at + KEEP_FOR,
        reading=Reading.model_validate(row.reading),
    )


def claim_upload(
    session: Session, upload_id: str, user_id: int, caller: str
) -> tuple[PendingUpload, SubmittedFiles]:
    """The upload to submit, locked, and its documents. Raises AlreadySubmitted, or NotFound when it is gone.

    Its files are not read: they are stored, wherever that is, and become files of the submission.
    """
    if upload_id.isalnum():
        # an update, so that SQLite and PostgreSQL both keep a second one waiting
        session.execute(update(Upload).where(Upload.id == upload_id).values(form_key=Upload.form_key))
    before = find_submission(session, caller, upload_id)
    if before is not None:
        raise AlreadySubmitted(before)
    waiting = load_upload(session, upload_id, user_id)
    row = session.get_one(Upload, upload_id)
    documents = tuple(Document.model_validate(document) for document in row.documents)
    return waiting, SubmittedFiles((), documents, tuple(row.notes))


def find_submission(session: Session, caller: str, upload_id: str) -> str | None:
    """The submission that an upload became, or None."""
    row = (
        session.get(IdempotencyKey, (caller, idempotency_key(upload_id[:32])))
        if upload_id.isalnum()
        else None
    )
    return None if row is None else row.submission_id


def idempotency_key(upload_id: str) -> str:
    """The idempotency key under which an upload is submitted once."""
    return f"upload:{upload_id}"


def form_key(key: str, digest: str = "") -> str:
    """The idempotency key of one form with these files; without a digest, its prefix."""
    return f"form:{key}:{digest[:32]}"


def discard_upload(session: Session, assignment_id: int, user_id: int) -> bool:
    """Delete a user's upload for an assignment; returns whether there was one."""
    query = select(Upload.id).where(Upload.assignment_id == assignment_id, Upload.user_id == user_id)
    ids = list(session.scalars(query))
    if ids:
        delete_uploads(session, ids)
        session.expire_all()
    return bool(ids)


def mark_submitted(session: Session, upload_ids: Sequence[str]) -> None:
    """Delete uploads that this transaction submitted; their files belong to submissions now."""
    delete_rows(session, UploadFile, UploadFile.upload_id.in_(upload_ids))
    delete_rows(session, Upload, Upload.id.in_(upload_ids))


def find_form_outcome(
    session: Session, user_id: int, caller: str, assignment_id: int, key: str
) -> tuple[str, str]:
    """The outcome of a form: ("submission", id), ("upload", id) or ("", "").

    For a page that lost its connection while it sent the files.
    """
    if not key:
        return "", ""
    own = select(IdempotencyKey.submission_id).where(
        IdempotencyKey.caller == caller, IdempotencyKey.key.startswith(form_key(key), autoescape=True)
    )
    found = session.scalar(own.order_by(IdempotencyKey.created_at.desc()).limit(1))
    if found is not None:
        return "submission", found
    kept = select(Upload.id).where(
        Upload.user_id == user_id, Upload.assignment_id == assignment_id, Upload.form_key == key
    )
    upload = session.scalar(kept)
    return ("upload", upload) if upload is not None else ("", "")


def delete_uploads(session: Session, ids: Sequence[str]) -> Counter[str]:
    """Delete uploads and files that nothing else refers to."""
    counts: Counter[str] = Counter()
    for some in chunks(ids):
        names = list(session.scalars(select(UploadFile.sha256).where(UploadFile.upload_id.in_(some))))
        counts += delete_rows(session, UploadFile, UploadFile.upload_id.in_(some))
        counts += delete_rows(session, Upload, Upload.id.in_(some))
        counts["blobs"] += delete_unused_blobs(session, names)
    return +counts
