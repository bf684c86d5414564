"""What requests upload: files, keys of forms, limits."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable

from werkzeug.datastructures import FileStorage

from grading.config.settings import Server
from grading.documents import Limits, UploadedFile
from grading.domain.errors import EmptyUpload
from grading.domain.permissions import Actor, Subject, may

MIB = 1024 * 1024
FORM_KEY = re.compile(r"[A-Za-z0-9_-]{16,64}")


def limits(server: Server) -> Limits:
    """The bounds of one hand-in as configured."""
    return Limits(
        max_upload_bytes=server.max_upload_mb * MIB,
        max_data_bytes=server.max_data_mb * MIB,
        max_files=server.max_files,
    )


def uploaded(files: Iterable[FileStorage]) -> tuple[UploadedFile, ...]:
    """The files of a form. Raises EmptyUpload when none was chosen."""
    chosen = [file for file in files if file.filename]
    if not chosen:
        raise EmptyUpload("Choose at least one file to hand in.")
    return tuple(UploadedFile(file.filename or "", file.read()) for file in chosen)


def new_key() -> str:
    """A key for one form: sent twice, it hands in once."""
    return secrets.token_urlsafe(16)


def form_key(given: str) -> str:
    """The key a form was sent with, or nothing when it is not one of ours."""
    return given if FORM_KEY.fullmatch(given) else ""


def trusted(actor: Actor, course_id: int) -> bool:
    """Whether due dates and numbers of hand-ins do not bind this person."""
    return may(actor, "submit.for_others", Subject(course_id))
