"""What is kept of people: retention, erasing a student, and giving them all that is held on them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import click
from redis.exceptions import RedisError

from cli.settings import Settings
from grading.broker.dispatch import open_dispatch
from grading.broker.purge import withdraw
from grading.domain.errors import GraderError
from grading.store import Store, schema
from grading.store.privacy import erasure
from grading.store.privacy import export as exports
from grading.store.privacy import retention as keeping
from grading.store.privacy.erasure import Student, find_student


class RedisAway(GraderError):
    """Redis does not answer, and it may hold the student's work: start it, or give --without-redis."""

    code = "redis_away"
    status = 503


@click.command()
@click.option("--dry-run", is_flag=True, help="Only count what is older than config.toml keeps it.")
@click.pass_obj
def retention(settings: Settings, dry_run: bool) -> None:
    """Remove what is older than [retention] in config.toml keeps it; the sweeper does so once a day."""
    kept = settings.config.retention
    with closing(Store(settings.config.database.url)) as store:
        schema.require_newest(store)
        with store.read() as session:
            counts = keeping.count_overdue(session, kept)
        if not dry_run:
            more = True
            while more:
                with store.write() as session:
                    more = bool(keeping.delete_chunk(session, kept))
    _tell(counts, "Would be removed" if dry_run else "Removed", "Nothing is older than it is kept.")


@click.command()
@click.argument("student")
@click.option("--dry-run", is_flag=True, help="Only count what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--without-redis", is_flag=True, help="Also while Redis is away; the sweeper cleans it later.")
@click.pass_obj
def erase(settings: Settings, student: str, dry_run: bool, yes: bool, without_redis: bool) -> None:
    """Erase everything of STUDENT (sign-in name, student id, e-mail address or user:NUMBER)."""
    with closing(Store(settings.config.database.url)) as store:
        schema.require_newest(store)
        with store.read() as session:
            found, counts = erasure.preview_erasure(session, student)
        _tell(counts, f"Of {student} ({found.name})", f"There is no work of {student} ({found.name}).")
        if dry_run:
            return
        if not yes:
            click.confirm("Erase all of it? Nothing brings it back but a back-up", abort=True)
        if not without_redis:
            _require_redis(settings)
        with store.write() as session:
            erased = erasure.erase_student(session, found, "cli")
        _tell(erased.counts, "Erased", "Erased.")
        if not without_redis:
            _withdraw(settings, erased.student)
        erasure.compact_database(store)
    click.echo("Back-ups made before still hold it, until they are removed.")


@click.command()
@click.argument("student")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def export(settings: Settings, student: str, file: Path) -> None:
    """Write everything held on STUDENT into FILE, a zip."""
    if file.exists():
        raise click.UsageError(f"{file} is there already; choose another name.")
    part = file.with_name(f".{file.name}.{os.getpid()}")
    with closing(Store(settings.config.database.url)) as store:
        schema.require_newest(store)
        try:
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as to, store.write() as session:
                found = find_student(session, student)
                counts = exports.write_export(session, found, to, "cli")
            part.replace(file)
        except OSError as error:
            raise GraderError(f"{file} cannot be written: {error.strerror or error}.") from error
        finally:
            part.unlink(missing_ok=True)
    _tell(counts, f"{file}: of {found.name}", f"{file}: nothing is held.")


def _require_redis(settings: Settings) -> None:
    dispatch = open_dispatch(settings.running)
    try:
        dispatch.registry.redis.ping()
    except (RedisError, OSError) as error:
        raise RedisAway from error
    finally:
        dispatch.registry.redis.close()


def _withdraw(settings: Settings, found: Student) -> None:
    dispatch = open_dispatch(settings.running)
    try:
        ids = (*found.submissions, *found.rounds, *found.runs)
        click.echo(f"Withdrawn from Redis: {withdraw(dispatch.registry.redis, ids)} entries.")
    except (RedisError, OSError) as error:
        click.echo(f"Redis stopped answering ({error}); the sweeper does its part once it is back.")
    finally:
        dispatch.registry.redis.close()


def _tell(counts: Mapping[str, int], head: str, nothing: str) -> None:
    said = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
    click.echo(f"{head}: {said}." if said else nothing)
