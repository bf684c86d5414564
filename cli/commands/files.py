"""`grader files`: where files are, and their moves between the database and the object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import click

from cli.output import counted, progress_bar
from cli.settings import Settings
from grading.config.files import Files
from grading.domain.errors import ConfigError, GraderError
from grading.store import Store, blob_moves, open_store, schema
from grading.store.blob_moves import Moved
from grading.store.object_store import ObjectStore

NO_STORE = "files.bucket: config.toml names no object store."
MIB = 1024 * 1024


@contextmanager
def _opened(settings: Settings) -> Iterator[tuple[Store, ObjectStore]]:
    """The database and its object store. Raises ConfigError where there is none."""
    with closing(open_store(settings.config)) as store:
        schema.require_usable(store)
        if store.objects is None:
            raise ConfigError(NO_STORE)
        yield store, store.objects


@click.group()
def files() -> None:
    """Show and move files between the database and the object store."""


@files.command("status")
@click.pass_obj
def files_status(settings: Settings) -> None:
    """Count the files in the database and in the object store."""
    config = settings.config.files
    with closing(Store(settings.config.database.url)) as store:
        schema.require_usable(store)
        with store.read() as session:
            places = blob_moves.count_places(session, config.larger_than_kb * 1024 if config.moves else 0)
    click.echo(f"in the database: {_sentence(places.in_database)}")
    click.echo(f"in the object store: {_sentence(places.in_objects)}")
    click.echo(f"to move there: {_sentence(places.to_move)}")
    click.echo(f"to delete there: {counted(places.unused, 'object')}")


@files.command("to-store")
@click.pass_obj
def files_to_store(settings: Settings) -> None:
    """Move all large files to the object store now.

    The system may run; the sweeper moves the same files more slowly. It can be stopped and started again.
    """
    if not settings.config.files.moves:
        raise ConfigError(
            "files.larger_than_kb: nothing is moved while it is 0."
            if settings.config.files.used
            else NO_STORE
        )
    with _opened(settings) as (store, objects):
        moved = _until_none(lambda: blob_moves.move_to_objects(store, objects))
    click.echo(f"Moved to the object store: {_sentence(moved)}.")


@files.command("to-database")
@click.pass_obj
def files_to_database(settings: Settings) -> None:
    """Move all files back to the database.

    The system may run, with files.larger_than_kb = 0, or it would move them to the object store again. It can
    be stopped and started again. Objects stay for seven days, for backups from before.
    """
    _require_still(settings.config.files)
    after, moved = "", Moved()
    with _opened(settings) as (store, objects), progress_bar("Moving files") as report:
        while True:
            some, after = blob_moves.move_to_database(store, objects, after)
            moved += some
            report(moved.blobs, None, f"{_sentence(moved)} moved")
            if not after:
                break
        with store.read() as session:
            left = blob_moves.count_places(session).in_objects.blobs
    click.echo(f"Moved to the database: {_sentence(moved)}.")
    if left:
        raise GraderError(f"{counted(left, 'file')} could not be read. `grader files verify` lists them.")


def _require_still(config: Files) -> None:
    if config.moves:
        raise ConfigError(
            "files.larger_than_kb: set it to 0 and restart the sweeper first; it would move files to the "
            "object store again."
        )


@files.command("verify")
@click.pass_obj
def files_verify(settings: Settings) -> None:
    """Read all files in the object store and check their hashes.

    Exits with status 1 if some are missing or damaged, and lists the hashes of these.
    """
    after, good, damaged = "", Moved(), 0
    with _opened(settings) as (store, objects), progress_bar("Reading files") as report:
        while True:
            some, bad, after = blob_moves.verify_objects(store, objects, after)
            good, damaged = good + some, damaged + len(bad)
            for name in bad:
                click.echo(name)
            report(good.blobs, None, f"{_sentence(good)} read")
            if not after:
                break
    click.echo(f"Unchanged: {_sentence(good)}.")
    if damaged:
        raise GraderError(f"{counted(damaged, 'file')} missing or damaged in the object store.")


@files.command("unknown")
@click.option("--delete", "remove", is_flag=True, help="Delete them.")
@click.pass_obj
def files_unknown(settings: Settings, remove: bool) -> None:
    """Count or delete objects that this database does not know.

    After a restore these are the files of later submissions. Only objects older than a day count. Never
    delete them if another installation uses the same prefix.
    """
    number = 0
    with _opened(settings) as (store, objects):
        for page in blob_moves.unknown_objects(store, objects):
            number += len(page)
            if remove:
                objects.delete([one.key for one in page])
    click.echo(f"{'Deleted' if remove else 'Unknown'}: {counted(number, 'object')}.")


def _until_none(step: Callable[[], Moved]) -> Moved:
    moved = Moved()
    with progress_bar("Moving files") as report:
        while (some := step()).blobs:
            moved += some
            report(moved.blobs, None, f"{_sentence(moved)} moved")
    return moved


def _sentence(moved: Moved) -> str:
    return f"{counted(moved.blobs, 'file')}, {moved.bytes / MIB:.1f} MiB"
