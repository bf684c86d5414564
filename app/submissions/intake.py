"""Taking a submission, the same way from the form, the API and webhooks."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.web.parsing import limits, trusted
from app.web.services import services
from grading import documents
from grading.documents import SubmittedFiles, UploadedFile
from grading.domain.permissions import Actor
from grading.shared.telemetry import current, mark, working_on
from grading.store import tables
from grading.store.courses import groups
from grading.store.database import now
from grading.store.submissions import intake, pending_uploads
from grading.store.submissions.intake import Accepted, Idempotency, IncomingSubmission

log = logging.getLogger(__name__)


def body_hash(parts: Sequence[str], files: Sequence[UploadedFile]) -> str:
    """A digest of all that makes a submission what it is."""
    digest = hashlib.sha256()
    for part in (*parts, *(f"{file.name}\0{hashlib.sha256(file.data).hexdigest()}" for file in files)):
        digest.update(hashlib.sha256(part.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()


def accept(
    build: Callable[[Session], IncomingSubmission], also: Callable[[Session, str], None] | None = None
) -> Accepted:
    """Build and store a submission in one transaction (`also` gets its id there), then announce it."""
    began_ns = time.time_ns()
    try:
        accepted = _stored(build, also)
    except IntegrityError:
        # two of the same at once on a database that locks rows: now the first one's rows are there
        accepted = _stored(build, also)
    if not accepted.repeated:
        with working_on(submission=accepted.submission_id, round=accepted.round_id):
            log.info("round %s of submission %s was accepted", accepted.round_id, accepted.submission_id)
            about = {"grader.submission": accepted.submission_id, "grader.request": current("request")}
            mark("accept", accepted.round_id, began_ns, **about)
            services().dispatch.announce(accepted.round_id)
    return accepted


def _stored(
    build: Callable[[Session], IncomingSubmission], also: Callable[[Session, str], None] | None
) -> Accepted:
    with services().store.write() as session:
        accepted = intake.accept_submission(session, build(session))
        if also is not None:
            also(session, accepted.submission_id)
    return accepted


def read(files: Sequence[UploadedFile]) -> SubmittedFiles:
    """What the files hold, within this server's limits. Raises DocumentError."""
    return documents.read(files, limits(services().config.server))


@dataclass(frozen=True)
class Form:
    """What came by the form: its one-time key, or an empty one, and the files as they were sent and read."""

    assignment_id: int
    key: str
    files: tuple[UploadedFile, ...]
    content: SubmittedFiles


def at_once(actor: Actor, course_id: int, form: Form) -> str:
    """Submit what a form sent; returns the submission. The same form with the same files submits once."""
    digest = body_hash((str(form.assignment_id),), form.files)
    key = Idempotency(actor.name, pending_uploads.form_key(form.key, digest), digest) if form.key else None

    def build(_: Session) -> IncomingSubmission:
        return _by_person(actor, course_id, form.assignment_id, form.content, key)

    def also(session: Session, _: str) -> None:
        pending_uploads.discard_upload(session, form.assignment_id, actor.user_id)

    return accept(build, also).submission_id


def for_student(actor: Actor, course_id: int, student_id: int, form: Form) -> str:
    """Submit for a student what staff sent; returns the submission. The same form and student submit once."""
    digest = body_hash((str(form.assignment_id), str(student_id)), form.files)
    key = Idempotency(actor.name, pending_uploads.form_key(form.key, digest), digest) if form.key else None

    def build(_: Session) -> IncomingSubmission:
        own = _by_person(actor, course_id, form.assignment_id, form.content, key)
        return replace(own, student_id=student_id)

    return accept(build).submission_id


def keep(actor: Actor, course_id: int, form: Form) -> str:
    """Keep what a form sent until it is submitted; returns the upload. Raises what submitting would."""
    with services().store.read() as session:
        assignment = session.get_one(tables.Assignment, form.assignment_id)
        require_open(session, assignment, actor)
        read_now = pending_uploads.read_upload(session, assignment, form.content)
    with services().store.write() as session:
        return pending_uploads.save_upload(
            session, form.assignment_id, actor.user_id, form.content, read_now, form.key
        )


def require_open(session: Session, assignment: tables.Assignment, actor: Actor) -> None:
    """Go on if this person may submit now; said before a long upload is read. Raises SubmissionRefused."""
    if trusted(actor, assignment.course_id):
        intake.require_current(assignment)
        return
    people = groups.group_members(session, assignment, actor.user_id)
    intake.require_open(session, assignment, actor.user_id, people, now(session))


def confirm(actor: Actor, upload_id: str) -> str:
    """Submit an upload, once; returns the submission. Its time is that of the upload for 15 minutes.

    Raises AlreadySubmitted.
    """

    def build(session: Session) -> IncomingSubmission:
        waiting, content = pending_uploads.claim_upload(session, upload_id, actor.user_id, actor.name)
        assignment = session.get_one(tables.Assignment, waiting.assignment_id)
        key = Idempotency(actor.name, pending_uploads.idempotency_key(upload_id), waiting.fingerprint)
        incoming = _by_person(actor, assignment.course_id, assignment.id, content, key)
        return replace(incoming, at=waiting.counts_at, stored=waiting.files)

    def also(session: Session, _: str) -> None:
        pending_uploads.mark_submitted(session, [upload_id])

    return accept(build, also).submission_id


def _by_person(
    actor: Actor, course_id: int, assignment_id: int, content: SubmittedFiles, key: Idempotency | None
) -> IncomingSubmission:
    return IncomingSubmission(
        assignment_id=assignment_id,
        student_id=actor.user_id,
        source="form",
        content=content,
        submitted_by=actor.user_id,
        idempotency=key,
        trusted=trusted(actor, course_id),
    )
