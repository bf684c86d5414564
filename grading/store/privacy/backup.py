"""Back-ups: one archive with a manifest, written beside its name and renamed; and restoring them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Literal

from pydantic import Field, ValidationError
from sqlalchemy import inspect, make_url, text
from sqlalchemy.exc import SQLAlchemyError

from grading.domain.errors import Conflict, GraderError, NotFound
from grading.domain.value import Value
from grading.store import schema
from grading.store.audit import note
from grading.store.database import Store
from grading.store.privacy import database_dump, erasure
from grading.store.privacy.database_dump import BackupFailed
from grading.store.privacy.student_data import find_student

MANIFEST, CONTENT = "manifest.json", "database"
MOST_MANIFEST = 64 * 1024
PIECE = 1024 * 1024
STALE_S = 86_400
STAMP = "%Y%m%dT%H%M%S"
ROTATED = re.compile(r"grader-\d{8}T\d{6}\.\d{3}Z\.zip")
UNREADABLE = (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


class BackupDamaged(GraderError):
    """The file is no back-up of Grader, or was damaged since; take another one."""

    code = "backup_damaged"
    status = 422


class Manifest(Value):
    """What an archive says of itself."""

    format: Literal[1] = 1
    version: str
    """Of Grader."""
    revision: str
    kind: Literal["sqlite", "postgresql"]
    created: datetime
    """By the database's clock."""
    sha256: str
    """Of the content."""
    size: int = Field(ge=0)
    counts: dict[str, int]


def write_backup(store: Store, to: Path, by: str = "cli") -> Manifest:
    """Back a running database up into a new file that only its owner may read. Raises BackupFailed.

    The file appears whole or not at all.
    """
    if to.exists():
        raise Conflict(f"{to} is there already; choose another name.")
    try:
        to.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _scratch(to.parent) as folder:
            state = database_dump.dump(store, folder / CONTENT)
            manifest = _pack(folder, state)
            (folder / "archive").replace(to)
            _sync_folder(to.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BackupFailed(f"No back-up was written to {to.parent}: {reason}.") from error
    with store.write() as session:
        detail = {"file": to.name, "sha256": manifest.sha256, **manifest.counts}
        note(session, by, "database.backup", "database", detail)
    return manifest


def _pack(folder: Path, state: database_dump.State) -> Manifest:
    """Put content and manifest into `archive`, safe on the disk."""
    digest, size = hashlib.sha256(), 0
    handle = os.open(folder / "archive", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        # what pg_dump writes is compressed
        method = zipfile.ZIP_STORED if state.kind == "postgresql" else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(file, "w", method, compresslevel=1) as archive:
            with archive.open(CONTENT, "w", force_zip64=True) as to, (folder / CONTENT).open("rb") as content:
                while piece := content.read(PIECE):
                    digest.update(piece)
                    size += len(piece)
                    to.write(piece)
            manifest = Manifest(
                version=version("grader"),
                revision=state.revision,
                kind=state.kind,  # type: ignore[arg-type]  # checked by pydantic
                created=state.moment,
                sha256=digest.hexdigest(),
                size=size,
                counts=state.counts,
            )
            archive.writestr(MANIFEST, manifest.model_dump_json(indent=2))
        file.flush()
        os.fsync(file.fileno())
    return manifest


def rotate(store: Store, folder: Path, keep: int | None, by: str = "cli") -> tuple[Path, Manifest]:
    """Back up into a folder under the time's name, then remove all but the newest `keep` made so."""
    to = folder / f"grader-{_stamp(datetime.now(UTC))}.zip"
    manifest = write_backup(store, to, by)
    for left in folder.glob(".grader-*"):  # by a back-up that was killed
        if datetime.now(UTC).timestamp() - left.stat().st_mtime > STALE_S:
            shutil.rmtree(left, ignore_errors=True)
    made = sorted(path for path in folder.iterdir() if ROTATED.fullmatch(path.name) and path != to)
    if keep is not None:
        for path in made[: max(0, len(made) - (keep - 1))]:
            path.unlink(missing_ok=True)
    return to, manifest


def verify(path: Path) -> Manifest:
    """Read a whole archive. Raises BackupDamaged unless it is as it was written."""
    return _read(path, lambda _: None)


def restore(
    url: str, path: Path, *, replace: bool, safety: Path, by: str = "cli"
) -> tuple[Manifest, Path | None]:
    """Bring a database to the state of an archive and to the newest revision; returns its manifest.

    Refuses a database that holds anything, unless `replace`: then that is backed up into the folder `safety`
    first, and students who were erased since are erased again. Refuses while others use the database.
    """
    kind = "sqlite" if make_url(url).get_backend_name() == "sqlite" else "postgresql"
    place = Path(make_url(url).database or "").resolve().parent if kind == "sqlite" else None
    if place is not None:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _scratch(place) as folder:
        manifest = _extract(path, folder / CONTENT, kind)
        store = Store(url)
        try:
            database_dump.require_unused(store.engine)
            saved = _make_way(store, safety, replace)
            erased = _erased_since(store, manifest.created) if saved else []
            database_dump.require_unused(store.engine)
            if kind == "postgresql":
                database_dump.load(store, folder / CONTENT)
                _finish(url, manifest, erased, by)
        finally:
            store.close()
        if kind == "sqlite":
            _finish(f"sqlite:///{folder / CONTENT}", manifest, erased, by)
            _swap(folder / CONTENT, Path(make_url(url).database or ""))
    return manifest, saved


def _extract(path: Path, to: Path, kind: str) -> Manifest:
    """The verified content. Raises what stands against restoring it here."""
    with to.open("xb") as file:
        manifest = _read(path, file.write)
    if manifest.kind != kind:
        raise Conflict(f"This is a back-up of {manifest.kind}, the database configured here is {kind}.")
    if manifest.revision not in schema.known():
        raise Conflict(
            f"This back-up is of a newer Grader (revision {manifest.revision}, this one knows up to "
            f"{schema.newest()}); update Grader first."
        )
    return manifest


def _read(path: Path, take: Callable[[bytes], object]) -> Manifest:
    try:
        with zipfile.ZipFile(path) as archive:
            with archive.open(MANIFEST) as file:
                manifest = Manifest.model_validate_json(file.read(MOST_MANIFEST))
            with archive.open(CONTENT) as content:
                whole = _copied(content, manifest, take)
    except FileNotFoundError:
        raise BackupDamaged(f"There is no file {path}.") from None
    except (*UNREADABLE, KeyError, ValidationError) as error:
        raise BackupDamaged(f"{path} cannot be read as a back-up of Grader; take another one.") from error
    if not whole:
        raise BackupDamaged(f"{path} was damaged since it was written; take another one.")
    return manifest


def _copied(content: IO[bytes], manifest: Manifest, take: Callable[[bytes], object]) -> bool:
    """Whether the content is that of the manifest; never reads much more than it should hold."""
    digest, size = hashlib.sha256(), 0
    while size <= manifest.size and (piece := content.read(PIECE)):
        digest.update(piece)
        size += len(piece)
        take(piece)
    return size == manifest.size and digest.hexdigest() == manifest.sha256


def _make_way(store: Store, safety: Path, replace: bool) -> Path | None:
    """Back up what is in the database; nothing when it is empty."""
    try:
        if not database_dump.holds_rows(store):
            return None
        if not replace:
            raise Conflict(
                "The database holds data already; --replace backs it up first and then puts the back-up "
                "in its place."
            )
        saved = safety / f"before-restore-{_stamp(datetime.now(UTC))}.zip"
        write_backup(store, saved, "restore")
    except SQLAlchemyError as error:
        raise BackupFailed(f"What is in the database now cannot be read: {type(error).__name__}.") from error
    return saved


def _erased_since(store: Store, moment: datetime) -> list[str]:
    if "audit" not in inspect(store.engine).get_table_names():
        return []
    with store.read() as session:
        return erasure.erased_since(session, moment)


def _finish(url: str, manifest: Manifest, erased: list[str], by: str) -> None:
    """Bring the tables up to date, erase again who was erased since, and note it."""
    schema.upgrade(url)
    store = Store(url)
    try:
        with store.write() as session:
            for name in erased:
                with suppress(NotFound):  # they came after the back-up
                    erasure.erase(session, find_student(session, name), "restore")
            detail = {"of": manifest.created.isoformat(), "sha256": manifest.sha256, "erased again": erased}
            note(session, by, "database.restore", "database", detail)
        if erased:
            erasure.compact(store)
        if store.engine.dialect.name == "sqlite":
            with store.engine.connect() as connection:
                if connection.execute(text("pragma quick_check")).scalar_one() != "ok":
                    raise BackupDamaged
    finally:
        store.close()


def _swap(new: Path, old: Path) -> None:
    """Put a finished SQLite file in the place of another one that nobody uses."""
    model = old if old.exists() else old.resolve().parent
    owner = model.stat()
    os.chmod(new, owner.st_mode & 0o666 if model == old else 0o600)
    if os.geteuid() == 0:
        os.chown(new, owner.st_uid, owner.st_gid)
    with new.open("rb") as file:
        os.fsync(file.fileno())
    for suffix in ("-wal", "-shm"):  # of a file that was killed; its content was saved before
        Path(f"{old}{suffix}").unlink(missing_ok=True)
    new.replace(old)
    _sync_folder(old.resolve().parent)


@contextmanager
def _scratch(beside: Path | None) -> Iterator[Path]:
    """A folder for one's own eyes that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=".grader-", dir=beside))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _stamp(moment: datetime) -> str:
    return f"{moment:{STAMP}}.{moment.microsecond // 1000:03d}Z"
