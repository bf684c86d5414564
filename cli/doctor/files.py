"""The object store of large files: whether an object can be written, read and deleted."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import closing

from sqlalchemy.exc import SQLAlchemyError

from cli.doctor.finding import Finding, Installation, failure, ok
from grading.config.files import Files
from grading.domain.errors import ConfigError, FileDamaged, FilesUnavailable
from grading.store import Store, blob_moves
from grading.store.object_store import ObjectStore, open_objects
from grading.store.reporting.operations import file_of

NAME = "object store"
CONTENT = b"written by grader doctor"
DOCUMENT = "see docs/how-to/administrators/files.md"


def diagnose(installation: Installation) -> Iterator[Finding]:
    """Write, read and delete an object, where the configuration names an object store."""
    files = installation.config.files
    if not files.used:
        if has_objects(installation):
            message = (
                "files are in an object store, but config.toml has no [files] bucket: nobody can read them"
            )
            yield failure("objects_without_store", NAME, message, f"name it again; {DOCUMENT}")
        return
    where = f"bucket {files.bucket} at {files.address}"
    try:
        objects = open_objects(files)
    except ConfigError as error:
        yield failure(
            "object_store_keys_missing", NAME, error.message, "set them for web, sandbox, sweeper and doctor"
        )
        return
    assert objects is not None
    yield _tried(objects, files, where)


def has_objects(installation: Installation) -> bool:
    """Whether a file is in an object store; False where the database cannot tell."""
    try:
        with closing(Store(installation.config.database.url)) as store:
            file = file_of(store)
            if file is not None and not file.exists():
                return False
            with store.read() as session:
                return blob_moves.any_in_objects(session)
    except (SQLAlchemyError, OSError):
        return False


def _tried(objects: ObjectStore, files: Files, where: str) -> Finding:
    """The first of writing, reading and deleting that fails, with what the object store said in the log."""
    key, step = f"probe/{secrets.token_hex(8)}", "write"
    try:
        objects.put(key, CONTENT)
        step = "read"
        objects.get(key, hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
        step = "delete"
        objects.delete([key])
    except FilesUnavailable as error:
        message = f"{where}: an object cannot be {_DONE[step]}{_said(error)}"
        remedy = f"check that it runs, its certificate, and that the keys may {step} objects below "
        return failure("object_store_refuses", NAME, message, f"{remedy}{files.prefix}/; {DOCUMENT}")
    except FileDamaged:
        message = f"{where}: it returns other bytes than were written"
        return failure("object_store_damaged", NAME, message, "use another one; nothing is moved to it")
    moves = (
        f"files above {files.larger_than_kb} KiB are moved to it" if files.moves else "nothing is moved to it"
    )
    return ok(NAME, f"{where} can be written, read and deleted; {moves}")


_DONE = {"write": "written", "read": "read", "delete": "deleted"}


def _said(error: FilesUnavailable) -> str:
    return f" ({error.__cause__.__class__.__name__})" if error.__cause__ is not None else ""
