"""Blobs: bytes stored once under their SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from grading.store.bulk import delete_rows
from grading.store.database import insert_into
from grading.store.tables import (
    Blob,
    ClassUpload,
    RubricVersion,
    SubmissionFile,
    UploadFile,
)


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
    """The content of a blob. Raises NoResultFound."""
    return session.execute(select(Blob.data).where(Blob.sha256 == sha256)).scalar_one()


def load_sizes(session: Session, names: Iterable[str]) -> dict[str, int]:
    """Bytes of blobs by their SHA-256; unknown ones are left out."""
    wanted = set(names)
    query = select(Blob.sha256, Blob.size).where(Blob.sha256.in_(wanted))
    return {row.sha256: row.size for row in session.execute(query)} if wanted else {}


def delete_unused_blobs(session: Session, names: Iterable[str]) -> int:
    """Delete those of these blobs that nothing refers to; returns how many."""
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
                removed += delete_rows(
                    session, Blob, Blob.sha256 == name, ~files, ~class_uploads, ~uploads
                ).total()
        except IntegrityError:
            continue  # somebody submits the same file at this moment
    return removed


def load_blobs(session: Session, names: Iterable[str]) -> dict[str, bytes]:
    """The contents of blobs by their SHA-256; unknown ones are left out."""
    rows = session.execute(select(Blob.sha256, Blob.data).where(Blob.sha256.in_(list(names))))
    return {row.sha256: row.data for row in rows}
