"""Backups: consistent archives with a manifest, their rotation, and restoring them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import Field, ValidationError
from sqlalchemy import Connection, Engine, func, inspect, select, table, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from grading.domain.base_value import Value
from grading.domain.errors import Conflict, GraderError, NotFound
from grading.store import schema
from grading.store.audit import write_audit
from grading.store.database import Store, now
from grading.store.failover import TABLE as HISTORIES
from grading.store.failover import parse_url
from grading.store.learning_platforms import all_tables
from grading.store.privacy import erasure
from grading.store.privacy.erasure import find_student

MANIFEST, CONTENT = "manifest.json", "database"
MOST_MANIFEST = 64 * 1024
CHUNK_BYTES = 1024 * 1024
STALE_S = 86_400
STAMP = "%Y%m%dT%H%M%S"
ROTATED = re.compile(r"grader-\d{8}T\d{6}\.\d{3}Z\.zip")
UNREADABLE = (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


class BackupDamaged(GraderError):
    """The file is not a backup of Grader, or it is damaged; use another one."""

    code = "backup_damaged"
    status = 422


class Manifest(Value):
    """Manifest of an archive."""

    format: Literal[1] = 1
    version: str
    """Version of Grader."""
    revision: str
    kind: Literal["sqlite", "postgresql"]
    created: datetime
    """By the database's clock."""
    sha256: str
    """Of the content."""
    size: int = Field(ge=0)
    counts: dict[str, int]


def _no_progress(_done: int, _total: int) -> None:
    """Tell nobody."""


def write_backup(
    store: Store, to: Path, by: str = "cli", progress: Callable[[int, int], None] = _no_progress
) -> Manifest:
    """Back up a running database into a new file that only its owner may read. Raises BackupFailed.

    The file appears complete or not at all. `progress` is called with the bytes packed and all bytes.
    """
    if to.exists():
        raise Conflict(f"{to} already exists. Choose another name.")
    try:
        to.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _scratch(to.parent) as folder:
            state = dump_database(store, folder / CONTENT)
            manifest = _pack(folder, state, progress)
            (folder / "archive").replace(to)
            _sync_folder(to.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BackupFailed(f"No backup was written to {to.parent}: {reason}.") from error
    with store.write() as session:
        detail = {"file": to.name, "sha256": manifest.sha256, **manifest.counts}
        write_audit(session, by, "database.backup", "database", detail)
    return manifest


def _pack(folder: Path, state: State, progress: Callable[[int, int], None]) -> Manifest:
    """Write content and manifest into `archive` and sync it to the disk."""
    digest, size, total = hashlib.sha256(), 0, (folder / CONTENT).stat().st_size
    handle = os.open(folder / "archive", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        # what pg_dump writes is compressed
        method = zipfile.ZIP_STORED if state.kind == "postgresql" else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(file, "w", method, compresslevel=1) as archive:
            with archive.open(CONTENT, "w", force_zip64=True) as to, (folder / CONTENT).open("rb") as content:
                while piece := content.read(CHUNK_BYTES):
                    digest.update(piece)
                    size += len(piece)
                    to.write(piece)
                    progress(size, total)
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


def rotate_backups(
    store: Store,
    folder: Path,
    keep: int | None,
    by: str = "cli",
    progress: Callable[[int, int], None] = _no_progress,
) -> tuple[Path, Manifest]:
    """Back up into a folder under the time's name, then delete all but the newest `keep` of them."""
    to = folder / f"grader-{_stamp(datetime.now(UTC))}.zip"
    manifest = write_backup(store, to, by, progress)
    for left in folder.glob(".grader-*"):  # by a backup that was killed
        if datetime.now(UTC).timestamp() - left.stat().st_mtime > STALE_S:
            shutil.rmtree(left, ignore_errors=True)
    made = sorted(path for path in folder.iterdir() if ROTATED.fullmatch(path.name) and path != to)
    if keep is not None:
        for path in made[: max(0, len(made) - (keep - 1))]:
            path.unlink(missing_ok=True)
    return to, manifest


def verify_backup(path: Path) -> Manifest:
    """Read a whole archive. Raises BackupDamaged when its content was changed."""
    return _read(path, lambda _: None)


def restore_backup(
    url: str, path: Path, *, replace: bool, safety: Path, by: str = "cli"
) -> tuple[Manifest, Path | None]:
    """Restore a database from an archive; returns the manifest and the backup of the database before.

    Refuses a database with rows, unless `replace`: then that is backed up into the folder `safety` first,
    and students who were erased since are erased again. Refuses while other processes use the database.
    """
    kind = "sqlite" if parse_url(url).get_backend_name() == "sqlite" else "postgresql"
    place = Path(parse_url(url).database or "").resolve().parent if kind == "sqlite" else None
    if place is not None:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _scratch(place) as folder:
        manifest = _extract(path, folder / CONTENT, kind)
        store = Store(url)
        try:
            if kind == "postgresql":
                schema.reached_revision(store)
            require_unused(store.engine)
            saved = _make_way(store, safety, replace)
            erased = _erased_since(store, manifest.created) if saved else []
            require_unused(store.engine)
            if kind == "postgresql":
                load_dump(store, folder / CONTENT)
                _finish(url, manifest, erased, by)
        finally:
            store.close()
        if kind == "sqlite":
            _finish(f"sqlite:///{folder / CONTENT}", manifest, erased, by)
            _swap(folder / CONTENT, Path(parse_url(url).database or ""))
    return manifest, saved


def _extract(path: Path, to: Path, kind: str) -> Manifest:
    """Extract the verified content. Raises Conflict when it does not fit this database or version."""
    with to.open("xb") as file:
        manifest = _read(path, file.write)
    if manifest.kind != kind:
        raise Conflict(f"This is a backup of {manifest.kind}. The configured database is {kind}.")
    if manifest.revision not in schema.revisions().known:
        raise Conflict(
            f"This backup is of another version of Grader ({manifest.version}, at {manifest.revision}; "
            f"this one knows up to {schema.newest_revision()}); restore it with that version."
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
        raise BackupDamaged(f"{path} is not a readable backup of Grader. Use another one.") from error
    if not whole:
        raise BackupDamaged(f"{path} was damaged since it was written; take another one.")
    return manifest


def _copied(content: IO[bytes], manifest: Manifest, take: Callable[[bytes], object]) -> bool:
    """Whether the content matches the manifest; reads little more than the size in it."""
    digest, size = hashlib.sha256(), 0
    while size <= manifest.size and (piece := content.read(CHUNK_BYTES)):
        digest.update(piece)
        size += len(piece)
        take(piece)
    return size == manifest.size and digest.hexdigest() == manifest.sha256


def _make_way(store: Store, safety: Path, replace: bool) -> Path | None:
    """Back up what is in the database; None when it is empty."""
    try:
        if not holds_rows(store):
            return None
        if not replace:
            raise Conflict(
                "The database holds data already; --replace backs it up first and then puts the backup "
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
    """Upgrade the tables, erase students again who were erased since, and audit the restore."""
    schema.upgrade(url)
    store = Store(url)
    try:
        with store.write() as session:
            for name in erased:
                with suppress(NotFound):  # they came after the backup
                    erasure.erase_student(session, find_student(session, name), "restore")
            detail = {"of": manifest.created.isoformat(), "sha256": manifest.sha256, "erased again": erased}
            write_audit(session, by, "database.restore", "database", detail)
        if erased:
            erasure.compact_database(store)
        if store.engine.dialect.name == "sqlite":
            with store.engine.connect() as connection:
                if connection.execute(text("pragma quick_check")).scalar_one() != "ok":
                    raise BackupDamaged
    finally:
        store.close()


def _swap(new: Path, old: Path) -> None:
    """Replace an SQLite file that no process uses."""
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
    """A temporary folder that only its owner may read."""
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


COUNTED_TABLES = {"submissions": "submissions", "grades": "grades", "files": "submission_files"}
POSTGRES_FOLDERS = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/opt/homebrew/bin")


class BackupFailed(GraderError):
    """The backup could not be made or brought back."""

    code = "backup_failed"
    status = 500


@dataclass(frozen=True)
class State:
    """Kind, revision, time and row counts of a dumped database."""

    kind: str
    """`sqlite` or `postgresql`."""
    revision: str
    moment: datetime
    counts: dict[str, int]
    """Rows of submissions, grades and files."""


def dump_database(store: Store, to: Path) -> State:
    """Write a consistent copy while others keep writing; `to` must not exist. Raises BackupFailed."""
    if schema.current_revision(store) is None:
        raise BackupFailed("There are no tables to back up. Create them with `grader db upgrade`.")
    return _dump_sqlite(store, to) if store.engine.dialect.name == "sqlite" else _dump_postgres(store, to)


def _dump_sqlite(store: Store, to: Path) -> State:
    with store.read() as session:
        moment = now(session)
    raw = store.engine.raw_connection()
    try:
        driver: Any = raw.driver_connection
        driver.execute("VACUUM INTO ?", (str(to),))
    except sqlite3.Error as error:
        raise BackupFailed(f"The copy of the database could not be written: {error}.") from error
    finally:
        raw.close()
    with closing(sqlite3.connect(f"{to.resolve().as_uri()}?mode=ro", uri=True)) as copy:
        revision = copy.execute("select version_num from alembic_version").fetchone()[0]
        counts = {
            name: copy.execute(f"select count(*) from {source}").fetchone()[0]  # noqa: S608 - our names
            for name, source in COUNTED_TABLES.items()
        }
    return State("sqlite", revision, moment, counts)


def _dump_postgres(store: Store, to: Path) -> State:
    engine = store.engine.execution_options(isolation_level="REPEATABLE READ")
    with Session(engine) as session:
        # it only waits for pg_dump, which sees exactly what it sees
        session.execute(text("set local idle_in_transaction_session_timeout = 0"))
        snapshot = session.execute(text("select pg_export_snapshot()")).scalar_one()
        revision = session.execute(text("select version_num from alembic_version")).scalar_one()
        counts = {
            name: session.execute(select(func.count()).select_from(table(source))).scalar_one()
            for name, source in COUNTED_TABLES.items()
        }
        state = State("postgresql", revision, now(session), counts)
        keep = ("--format=custom", "--no-owner", "--no-privileges", f"--snapshot={snapshot}")
        _run("pg_dump", [*keep, "--file", str(to)], store.url)
    return state


def load_dump(store: Store, content: Path) -> None:
    """Replace all tables by a PostgreSQL dump, in one transaction. Raises BackupFailed."""
    script = content.with_suffix(".sql")
    # psql's own restriction of the script stays within it; ours comes before
    _run("pg_restore", ["--no-owner", "--no-privileges", "--file", str(script), str(content)], None)
    drops = content.with_suffix(".drops.sql")
    names = [name for name in inspect(store.engine).get_table_names() if name in _ours()]
    quote = store.engine.dialect.identifier_preparer.quote_identifier
    drops.write_text("".join(f"drop table public.{quote(name)} cascade;\n" for name in names))
    store.engine.dispose()
    once = ["--no-psqlrc", "--quiet", "--single-transaction", "--set", "ON_ERROR_STOP=1"]
    _run("psql", [*once, "--output", os.devnull, "--file", str(drops), "--file", str(script)], store.url)


def _ours() -> set[str]:
    """Tables that a restore replaces; a PostgreSQL database may hold others."""
    return {*all_tables().tables, "alembic_version"}


def holds_rows(store: Store) -> bool:
    """Whether any table that a restore replaces has rows."""
    with store.engine.connect() as connection:
        without = {"alembic_version", HISTORIES}  # they have rows in a new database, too
        names = _ours().intersection(inspect(connection).get_table_names()) - without
        return any(_has_rows(connection, name) for name in sorted(names))


def _has_rows(connection: Connection, name: str) -> bool:
    return connection.execute(select(text("1")).select_from(table(name)).limit(1)).first() is not None


def require_unused(engine: Engine) -> None:
    """Raise Conflict while other processes have the database open."""
    if engine.dialect.name == "postgresql":
        others = (
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
        with engine.connect() as connection:
            used = connection.execute(text(others)).scalar_one() > 0
    else:
        engine.dispose()  # or this process would be the one that uses it
        used = not _alone(Path(engine.url.database or ""))
    if used:
        raise Conflict("The database is in use; stop web, store and sweep first, then restore.")


def _alone(path: Path) -> bool:
    """Whether no other process has the file open: leaving WAL mode needs that; it also empties the log."""
    if not path.exists():
        return True
    with closing(sqlite3.connect(path, timeout=2, isolation_level=None)) as connection:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=DELETE").fetchone()
        except sqlite3.OperationalError:
            return False
    return str(mode) == "delete"


def _run(program: str, arguments: Sequence[str], url: str | None) -> None:
    environ = dict(os.environ)
    command = [find_program(program), *arguments]
    if url is not None:
        parts = parse_url(url).set(drivername="postgresql")
        if parts.password:
            environ["PGPASSWORD"] = str(parts.password)  # the list of processes shows arguments
        clean = parts.set(password=None).render_as_string(hide_password=False)
        command += ["--dbname", clean]
    done = subprocess.run(
        command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise BackupFailed(f"{program} failed: {lines[0] if lines else 'it gave no reason'}.")


def find_program(name: str) -> str:
    """Path of a PostgreSQL program of the newest installed version. Raises BackupFailed."""
    root = Path("/")
    # what is on the PATH may be a wrapper that chooses the version itself
    program = shutil.which(name)
    if program is None:
        installed = [path for folder in POSTGRES_FOLDERS for path in root.glob(f"{folder[1:]}/{name}")]
        newest = max(
            installed, key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))], default=None
        )
        program = str(newest) if newest else None
    if program is None:
        raise BackupFailed(f"{name} is not on this machine; install the PostgreSQL client programs.")
    return program
