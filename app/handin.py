"""Taking a hand-in, the same way from the form, the API and webhooks."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from werkzeug.datastructures import FileStorage

from app.services import services
from grading import documents
from grading.config import Server
from grading.documents import HandIn, Limits, UploadedFile
from grading.errors import EmptyUpload
from grading.logs import working_on
from grading.store import submissions
from grading.store.submissions import Accepted, Incoming
from grading.tracing import mark

log = logging.getLogger(__name__)
MIB = 1024 * 1024


def limits(server: Server) -> Limits:
    """The bounds of one hand-in as configured."""
    return Limits(max_upload_bytes=server.max_upload_mb * MIB, max_files=server.max_files)


def uploaded(files: Iterable[FileStorage]) -> tuple[UploadedFile, ...]:
    """The files of a form. Raises EmptyUpload when none was chosen."""
    chosen = [file for file in files if file.filename]
    if not chosen:
        raise EmptyUpload("Choose at least one file to hand in.")
    return tuple(UploadedFile(file.filename or "", file.read()) for file in chosen)


def body_hash(parts: Sequence[str], files: Sequence[UploadedFile]) -> str:
    """A digest of all that makes a hand-in what it is."""
    digest = hashlib.sha256()
    for part in (*parts, *(f"{file.name}\0{hashlib.sha256(file.data).hexdigest()}" for file in files)):
        digest.update(hashlib.sha256(part.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()


def accept(
    build: Callable[[Session], Incoming], also: Callable[[Session, str], None] | None = None
) -> Accepted:
    """Build and store a hand-in in one transaction (`also` gets its id there), then announce it."""
    began_ns = time.time_ns()
    try:
        accepted = _stored(build, also)
    except IntegrityError:
        # two of the same at once on a database that locks rows: now the first one's rows are there
        accepted = _stored(build, also)
    if not accepted.repeated:
        with working_on(submission=accepted.submission_id, round=accepted.round_id):
            log.info("round %s of submission %s was accepted", accepted.round_id, accepted.submission_id)
            mark("accept", accepted.round_id, began_ns, **{"grader.submission": accepted.submission_id})
            services().dispatch.announce(accepted.round_id)
    return accepted


def _stored(build: Callable[[Session], Incoming], also: Callable[[Session, str], None] | None) -> Accepted:
    with services().store.write() as session:
        accepted = submissions.accept(session, build(session))
        if also is not None:
            also(session, accepted.submission_id)
    return accepted


def read(files: Sequence[UploadedFile]) -> HandIn:
    """What the files hold, within this server's limits. Raises DocumentError."""
    return documents.read(files, limits(services().config.server))
