"""Moves of blobs between the database and the object store, in small steps while the system runs.

A key is used once. A row of `UnusedObject` is there whenever no blob refers to an object: it is written
before the object, deleted in the transaction that makes a blob refer to it, and written again in the one that
ends this. So whatever is interrupted, the object is deleted later, and never one that a blob refers to.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, CursorResult, delete, func, literal_column, select, update
from sqlalchemy.orm import Session

from grading.domain.errors import FileDamaged
from grading.store.bulk import chunks
from grading.store.database import Store, now
from grading.store.object_store import ObjectStore, StoredObject
from grading.store.tables import Blob, ClassUpload, SubmissionFile, UnusedObject, UploadFile

STEP = 64
"""Blobs of one step."""
STEP_BYTES = 16 * 1024 * 1024
"""A step ends with the blob that exceeds it."""
WRITE_WITHIN = timedelta(hours=1)
"""For so long an object that is being written is not deleted."""
MARGIN = timedelta(minutes=10)
"""Of that, what no move uses: it ends far from the moment of a deletion."""
KEPT_AFTER_RETURN = timedelta(days=7)
"""An object whose blob is in the database again stays, for backups of the database from before."""
DELETED_AT_ONCE = 200
YOUNG = timedelta(days=1)
"""An object that the database does not know may still become known until then."""


@dataclass(frozen=True)
class Moved:
    """What a step moved."""

    blobs: int = 0
    bytes: int = 0

    def __add__(self, other: Moved) -> Moved:
        return Moved(self.blobs + other.blobs, self.bytes + other.bytes)


@dataclass(frozen=True)
class Places:
    """Where blobs are: their number and bytes."""

    in_database: Moved
    in_objects: Moved
    to_move: Moved
    unused: int
    """Objects to be deleted."""


def new_key(sha256: str) -> str:
    """A key for a blob, which no object had before."""
    return f"{sha256[:2]}/{sha256}-{secrets.token_hex(8)}"


def move_to_objects(store: Store, objects: ObjectStore) -> Moved:
    """Move some blobs to the object store; nothing when there are none. Raises FilesUnavailable.

    Each is read back before the row lets its bytes go.
    """
    with store.read() as session:
        names = list_movable(session, objects.larger_than)
    if not names:
        return Moved()
    keys = {name: new_key(name) for name in names}
    with store.write() as session:
        until = now(session) + WRITE_WITHIN
        session.add_all(UnusedObject(key=key, delete_at=until) for key in keys.values())
    written = {name: size for name, key in keys.items() if (size := _write(store, objects, name, key))}
    with store.write() as session:
        moved = [size for name, size in written.items() if _refer(session, name, keys[name])]
        # of those that are left, no blob refers to the object
        _delete_at(session, list(keys.values()), now(session))
    return Moved(len(moved), sum(moved))


def list_movable(session: Session, larger_than: int) -> list[str]:
    """Some blobs to move: files of submissions, which are large and not shared with what is not submitted."""
    submitted = select(SubmissionFile.sha256).where(SubmissionFile.sha256 == Blob.sha256).exists()
    query = select(Blob.sha256, Blob.size).where(*_large(larger_than), submitted, *_waits_for_nobody())
    names, total = [], 0
    for row in session.execute(query.limit(STEP)):
        names.append(row.sha256)
        total += row.size
        if total > STEP_BYTES:
            break
    return names


def _large(larger_than: int) -> tuple[Any, ...]:
    """Blobs in the database of more bytes; the literal is the condition of their index."""
    indexed: ColumnElement[bool] = literal_column("blobs.size > 65536")
    return Blob.object_key.is_(None), indexed, Blob.size > larger_than


def _waits_for_nobody() -> tuple[Any, ...]:
    """What is uploaded and not submitted yet is about to be read, or deleted."""
    return tuple(
        ~select(table.sha256).where(table.sha256 == Blob.sha256).exists()
        for table in (UploadFile, ClassUpload)
    )


def _write(store: Store, objects: ObjectStore, name: str, key: str) -> int:
    """Write a blob's object and read it back; returns its size, 0 when there is nothing to write."""
    query = select(Blob.data).where(Blob.sha256 == name, Blob.object_key.is_(None))
    with store.read() as session:
        content = session.scalar(query)
    if not content:
        return 0
    objects.put(key, content)
    objects.verify(key, name, len(content))
    return len(content)


def _refer(session: Session, name: str, key: str) -> bool:
    """Let a blob refer to an object that is not about to be deleted; False if one of them is gone."""
    here = (Blob.sha256 == name, Blob.object_key.is_(None))
    if session.scalar(select(Blob.sha256).where(*here).with_for_update(key_share=True)) is None:
        return False
    safe = UnusedObject.delete_at > now(session) + MARGIN
    if not _count(session, delete(UnusedObject).where(UnusedObject.key == key, safe)):
        return False
    return bool(_count(session, update(Blob).where(*here).values(object_key=key, data=b"")))


def _delete_at(session: Session, keys: Sequence[str], moment: datetime) -> None:
    session.execute(update(UnusedObject).where(UnusedObject.key.in_(keys)).values(delete_at=moment))


def _count(session: Session, statement: Any) -> int:
    result = session.execute(statement.execution_options(synchronize_session=False))
    assert isinstance(result, CursorResult)
    return result.rowcount


def move_to_database(store: Store, objects: ObjectStore, after: str = "") -> tuple[Moved, str]:
    """Move some blobs back, those after this SHA-256; returns the last one, or "" at the end.

    Raises FilesUnavailable; a blob whose object is damaged stays where it is.
    """
    moved, last = Moved(), ""
    with store.read() as session:
        found = _in_objects(session, after)
    for row in found:
        last = row.sha256
        try:
            content = objects.get(row.object_key, row.sha256, row.size)
        except FileDamaged:
            continue  # it is logged
        with store.write() as session:
            mine = (Blob.sha256 == row.sha256, Blob.object_key == row.object_key)
            if _count(session, update(Blob).where(*mine).values(object_key=None, data=content)):
                session.add(UnusedObject(key=row.object_key, delete_at=now(session) + KEPT_AFTER_RETURN))
                moved += Moved(1, row.size)
    return moved, last


def _in_objects(session: Session, after: str) -> Sequence[Any]:
    query = select(Blob.sha256, Blob.size, Blob.object_key).where(
        Blob.object_key.is_not(None), Blob.sha256 > after
    )
    return session.execute(query.order_by(Blob.sha256).limit(STEP)).all()


def verify_objects(store: Store, objects: ObjectStore, after: str = "") -> tuple[Moved, list[str], str]:
    """Read some objects; returns what was read, the SHA-256 of damaged blobs, and where to go on."""
    good, damaged, last = Moved(), [], ""
    with store.read() as session:
        found = _in_objects(session, after)
    for row in found:
        last = row.sha256
        try:
            objects.verify(row.object_key, row.sha256, row.size)
        except FileDamaged:
            damaged.append(row.sha256)
        else:
            good += Moved(1, row.size)
    return good, damaged, last


def delete_objects(store: Store, objects: ObjectStore) -> int:
    """Delete some objects that are due; returns how many. Raises FilesUnavailable.

    Any number of processes may do it: deleting twice is no harm, and a key is not used again.
    """
    due = select(UnusedObject.key).order_by(UnusedObject.delete_at).limit(DELETED_AT_ONCE)
    with store.read() as session:
        keys = list(session.scalars(due.where(UnusedObject.delete_at <= now(session))))
        doomed = [key for key in keys if not _is_used(session, key)]
    for some in chunks(doomed, STEP):
        objects.delete(some)
        with store.write() as session:
            session.execute(delete(UnusedObject).where(UnusedObject.key.in_(some)))
    return len(doomed)


def _is_used(session: Session, key: str) -> bool:
    """Whether a blob refers to it, which its row of UnusedObject rules out."""
    return session.scalar(select(Blob.object_key).where(Blob.sha256 == sha256_of(key))) == key


def sha256_of(key: str) -> str:
    """The SHA-256 in a key."""
    return key.rpartition("/")[2].partition("-")[0]


def unknown_objects(store: Store, objects: ObjectStore) -> Iterator[list[StoredObject]]:
    """Objects that the database knows nothing of, in pages: after a restore, those of later submissions."""
    for page in objects.pages():
        with store.read() as session:
            old = now(session) - YOUNG
            known = _known(session, [one.key for one in page])
        yield [one for one in page if one.key not in known and one.modified.astimezone(UTC) < old]


def _known(session: Session, keys: Sequence[str]) -> set[str]:
    known: set[str] = set()
    for some in chunks(keys):
        names = {sha256_of(key) for key in some}
        known.update(session.scalars(select(UnusedObject.key).where(UnusedObject.key.in_(some))))
        used = select(Blob.object_key).where(Blob.sha256.in_(names), Blob.object_key.is_not(None))
        known.update(key for key in session.scalars(used) if key)
    return known


def any_in_objects(session: Session) -> bool:
    """Whether a blob is in the object store. Reads all rows of the table where none is."""
    return session.scalar(select(Blob.sha256).where(Blob.object_key.is_not(None)).limit(1)) is not None


def count_places(session: Session, larger_than: int = 0) -> Places:
    """Where blobs are. Reads all rows of the table."""
    sums = (func.count(), func.coalesce(func.sum(Blob.size), 0))

    def count(*where: Any) -> Moved:
        blobs, size = session.execute(select(*sums).select_from(Blob).where(*where)).one()
        return Moved(blobs, int(size))

    submitted = select(SubmissionFile.sha256).where(SubmissionFile.sha256 == Blob.sha256).exists()
    unused = session.execute(select(func.count()).select_from(UnusedObject)).scalar_one()
    to_move = count(*_large(larger_than), submitted, *_waits_for_nobody()) if larger_than else Moved()
    return Places(count(Blob.object_key.is_(None)), count(Blob.object_key.is_not(None)), to_move, unused)
