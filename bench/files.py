"""`grader bench files`: large files through the database and through the object store of config.toml."""

from __future__ import annotations

import hashlib
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click
from sqlalchemy import update

from cli.settings import Settings
from grading.documents import SubmittedFiles, UploadedFile
from grading.domain.errors import ConfigError
from grading.domain.rubric import Criterion, Rubric
from grading.store import Store, blob_moves, blobs, schema
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.database import now
from grading.store.object_store import ObjectStore, open_objects
from grading.store.submissions import intake
from grading.store.submissions.intake import IncomingSubmission
from grading.store.tables import UnusedObject

COURSE = "bench-files"
RUBRIC = Rubric(criteria=(Criterion(id="code", title="Code", points=1),))


@click.command("files")
@click.option("--count", type=click.IntRange(1), default=1000, show_default=True, help="Number of files.")
@click.option(
    "--size-kb", type=click.IntRange(65), default=1024, show_default=True, help="Size of each, KiB."
)
@click.option("--database", default="", help="An empty database; by default a new SQLite file.")
@click.pass_obj
def command(settings: Settings, count: int, size_kb: int, database: str) -> None:
    """Submit, read, move and delete large files, and print how fast.

    The object store is that of [files] in config.toml; all that was written there is deleted again.
    """
    objects = open_objects(settings.config.files)
    if objects is None:
        raise ConfigError("files.bucket: config.toml names no object store.")
    objects.larger_than = 64 * 1024
    with tempfile.TemporaryDirectory() as folder:
        url = database or f"sqlite:///{Path(folder) / 'bench.db'}"
        schema.upgrade(url)
        with closing(Store(url, objects=objects)) as store:
            measure(store, objects, count, size_kb * 1024)


def measure(store: Store, objects: ObjectStore, count: int, size: int) -> None:
    """One way and back, each step timed; of processors, what this process uses, without the servers."""
    click.echo(f"{store.engine.dialect.name}, {count} files of {size // 1024} KiB")

    @contextmanager
    def timed(what: str) -> Iterator[None]:
        began, used = time.perf_counter(), time.process_time()
        yield
        seconds, used = time.perf_counter() - began, time.process_time() - used
        rate = count * size / seconds / 2**20
        click.echo(
            f"{what}: {seconds:.1f} s, {count / seconds:.0f} files/s, {rate:.0f} MiB/s, {peak():.0f} MiB, "
            f"{1000 * used / count:.1f} ms of a processor a file"
        )

    with timed("submit to the database"):
        names = _submit(store, count, size)
    with timed("read from the database"):
        _read(store, names)
    with timed("move to the object store, with reading back"):
        _until_none(lambda: blob_moves.move_to_objects(store, objects).blobs)
    with timed("read from the object store"):
        _read(store, names)
    with timed("move back to the database"):
        after = "begin"
        while after:
            _, after = blob_moves.move_to_database(store, objects, "" if after == "begin" else after)
    with timed("delete the objects"):
        with store.write() as session:
            session.execute(update(UnusedObject).values(delete_at=now(session)))
        _until_none(lambda: blob_moves.delete_objects(store, objects))


def peak() -> float:
    """The most memory that this process had so far, MiB."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _until_none(step: Callable[[], int]) -> None:
    while step():
        pass


def _submit(store: Store, count: int, size: int) -> list[str]:
    """Submissions of one file each; the SHA-256 of the files."""
    source, names = random.Random(1), []
    with store.write() as session:
        version = NewVersion("files", "Files", "python", "after_review", digest="1", rubric=RUBRIC)
        assignment, _, _ = versions.import_version(session, COURSE, version)
        student = users.find_or_create_student(session, "local", "s", "", "", assignment.course_id)
    for _ in range(count):
        data = source.randbytes(size)
        content = SubmittedFiles((UploadedFile("data.csv", data),), (), ())
        incoming = IncomingSubmission(assignment.id, student.id, "api", content, trusted=True)
        with store.write() as session:
            intake.accept_submission(session, incoming)
        names.append(hashlib.sha256(data).hexdigest())
    return names


def _read(store: Store, names: list[str]) -> None:
    for name in names:
        with store.read_autocommit() as session:
            blobs.load_blob(session, name)
