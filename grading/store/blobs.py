"""Blobs: bytes stored once under their SHA-256, in the database or in the object store.

New bytes are written to the database, in the transaction of what refers to them; `blob_moves` moves large
ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError, NoResultFound
from sqlalchemy.orm import Session

from grading.domain.errors import FileDamaged, FilesUnavailable
from grading.store.database import insert_into, now
from grading.store.object_store import ObjectStore
from grading.store.tables import (
    Blob,
    ClassUpload,
    RubricVersion,
    SubmissionFile,
    UnusedObject,
    UploadFile,
)

_COLUMNS = (Blob.sha256, Blob.size, Blob.object_key, Blob.data)
_DELETE = delete(Blob).execution_options(synchronize_session=False)


def store_blobs(session: Session, data: Iterable[bytes]) -> list[str]:
    """Store each of `data` unless it is stored; returns their SHA-256 in order.

    Inserts are sorted by hash: transactions that insert the same blobs in another order would deadlock.
    """
    named = [(hashlib.sha256(content).hexdigest(), content) for content in data]
    for name, content in sorted(dict(named).items()):
        row = {"sha256": name, "size": len(content), "data": content}
        session.execute(insert_into(session, Blob).values(row).on_conflict_do_nothing())
    return [name for name, _ in named]


def load_blob(session: Session, sha256: str) -> bytes:
    """The content of a blob. Raises NoResultFound, FilesUnavailable and FileDamaged."""
    found = load_blobs(session, [sha256])
    if sha256 not in found:
        raise NoResultFound
    return found[sha256]


def load_sizes(session: Session, names: Iterable[str]) -> dict[str, int]:
    """Bytes of blobs by their SHA-256; unknown ones are left out."""
    wanted = set(names)
    query = select(Blob.sha256, Blob.size).where(Blob.sha256.in_(wanted))
    return {row.sha256: row.size for row in session.execute(query)} if wanted else {}


def load_blobs(session: Session, names: Iterable[str]) -> dict[str, bytes]:
    """The contents of blobs by their SHA-256; unknown ones are left out.

    A session that only reads begins a new transaction after a file from the object store.
    Raises FilesUnavailable and FileDamaged.
    """
    rows = session.execute(select(*_COLUMNS).where(Blob.sha256.in_(list(names)))).all()
    found = {row.sha256: row.data if row.object_key is None else _fetch(session, row) for row in rows}
    return {name: content for name, content in found.items() if content is not None}


def _fetch(session: Session, row: Any) -> bytes | None:
    """The content of an object; none where its blob was deleted meanwhile."""
    if session.info.get("reads"):
        # the object store may take its time: on SQLite an open transaction keeps the log of all writes
        session.commit()
    objects = objects_of(session)
    try:
        return objects.get(row.object_key, row.sha256, row.size)
    except FileDamaged:
        # an object stays when its blob moves back, but not when it is deleted, and then stored again or not
        key = select(Blob.object_key).where(Blob.sha256 == row.sha256, Blob.object_key == row.object_key)
        if session.scalar(key) is not None:
            raise
        return load_blobs(session, [row.sha256]).get(row.sha256)


def objects_of(session: Session) -> ObjectStore:
    """The object store of a session. Raises FilesUnavailable where the configuration names none."""
    objects: ObjectStore | None = session.info.get("objects")
    if objects is None:
        raise FilesUnavailable
    return objects


def delete_unused_blobs(session: Session, names: Iterable[str]) -> int:
    """Delete those of these blobs that nothing refers to; returns how many.

    Their objects are deleted after the commit, by `blob_moves.delete_objects`.
    """
    wanted = sorted(set(names))
    if not wanted:
        return 0
    material = {name for files in session.scalars(select(RubricVersion.files)) for name in files.values()}
    files = select(SubmissionFile.sha256).where(SubmissionFile.sha256 == Blob.sha256).exists()
    class_uploads = select(ClassUpload.sha256).where(ClassUpload.sha256 == Blob.sha256).exists()
    uploads = select(UploadFile.sha256).where(UploadFile.sha256 == Blob.sha256).exists()
    removed = 0
    for name in wanted:
        if name in material:
            continue
        try:
            with session.begin_nested():
                unused = (Blob.sha256 == name, ~files, ~class_uploads, ~uploads)
                gone = session.execute(_DELETE.where(*unused).returning(Blob.object_key)).all()
                keys = [row.object_key for row in gone if row.object_key is not None]
                session.add_all(UnusedObject(key=key, delete_at=now(session)) for key in keys)
                removed += len(gone)
        except IntegrityError:
            continue  # somebody submits the same file at this moment
    return removed
