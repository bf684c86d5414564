"""Commands on stored data: back-up, retention, erasure, export, and retries of submissions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import click
from redis.exceptions import RedisError

from cli.commands.admin import writing
from cli.settings import Settings
from grading.broker.away import refuses_password
from grading.broker.dispatch import open_dispatch
from grading.broker.erasure import withdraw
from grading.domain.errors import GraderError, NotFound
from grading.domain.messages import define_message
from grading.store import Store, schema
from grading.store.bulk import chunks
from grading.store.privacy import backup as backups
from grading.store.privacy import erasure
from grading.store.privacy import export as exports
from grading.store.privacy import retention as retention_store
from grading.store.privacy.backup import Manifest
from grading.store.privacy.erasure import Student, find_student
from grading.store.rounds import retry
from grading.store.rounds.retry import DeadRound

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", type=FILE, required=False)
@click.option("--verify", is_flag=True, help="Read FILE and say whether it is whole; write nothing.")
@click.option(
    "--to-folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write there under the time's name, for timers and cron.",
)
@click.option("--keep", type=click.IntRange(1), help="With --to-folder: keep only so many, the newest.")
@click.pass_obj
def backup(
    settings: Settings, file: Path | None, verify: bool, to_folder: Path | None, keep: int | None
) -> None:
    """Back the database up into FILE while everything runs."""
    if (file is None) == (to_folder is None) or (verify and file is None):
        raise click.UsageError("Give a FILE, or --to-folder DIR.")
    if keep is not None and to_folder is None:
        raise click.UsageError("--keep goes with --to-folder.")
    if verify:
        assert file is not None
        click.echo(f"{file} is whole: {_sentence(backups.verify_backup(file))}")
        return
    with closing(Store(settings.config.database.url)) as store:
        schema.reached_revision(store)  # whichever it is: one before an upgrade is backed up, too
        if to_folder is not None:
            file, manifest = backups.rotate_backups(store, to_folder, keep)
        else:
            assert file is not None
            manifest = backups.write_backup(store, file)
    click.echo(f"{file}: {_sentence(manifest)}")
    click.echo("Keep config.toml and the secrets apart from it: they are not in it.")


@click.command()
@click.argument("file", type=FILE)
@click.option("--replace", is_flag=True, help="Put it in the place of what the database holds.")
@click.option(
    "--safety",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the back-up that --replace makes first; that of FILE unless given.",
)
@click.pass_obj
def restore(settings: Settings, file: Path, replace: bool, safety: Path | None) -> None:
    """Bring the configured database to the state of the back-up FILE. Stop the system first."""
    manifest, saved = backups.restore_backup(
        settings.config.database.url, file, replace=replace, safety=safety or file.resolve().parent
    )
    if saved:
        click.echo(f"What was there before is in {saved}")
    click.echo(f"Restored: {_sentence(manifest)}")
    click.echo("Start everything again; work that was under way is set going again by itself.")


def _sentence(manifest: Manifest) -> str:
    counts = ", ".join(f"{number} {name}" for name, number in manifest.counts.items())
    return (
        f"{manifest.kind} at {manifest.created:%Y-%m-%d %H:%M:%S} UTC, "
        f"revision {manifest.revision}, Grader {manifest.version}, {counts}"
    )


class RedisAway(GraderError):
    """Redis does not answer, and it may hold the student's work: start it, or give --without-redis."""

    code = "redis_away"
    status = 503
    default_message = define_message(
        "error.redis_away",
        "Redis does not answer, and it may hold the student's work: start it, or give --without-redis.",
    )


class RedisRefuses(GraderError):
    """Redis refuses the password, and it may hold the student's work: correct GRADER_REDIS_URL."""

    code = "redis_refuses"
    status = 503
    default_message = define_message(
        "error.redis_refuses",
        "Redis refuses the password, and it may hold the student's work: correct GRADER_REDIS_URL.",
    )


@click.command()
@click.option("--dry-run", is_flag=True, help="Only count what is older than config.toml keeps it.")
@click.pass_obj
def retention(settings: Settings, dry_run: bool) -> None:
    """Remove what is older than [retention] in config.toml keeps it; the sweeper does so once a day."""
    periods = settings.config.retention
    with closing(Store(settings.config.database.url)) as store:
        schema.require_usable(store)
        with store.read() as session:
            counts = retention_store.count_overdue(session, periods)
        if not dry_run:
            more = True
            while more:
                with store.write() as session:
                    more = bool(retention_store.delete_chunk(session, periods))
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
        schema.require_usable(store)
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
        schema.require_usable(store)
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
        raise (RedisRefuses if refuses_password(error) else RedisAway) from error
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
    summary = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
    click.echo(f"{head}: {summary}." if summary else nothing)


BY = "cli"
AT_ONCE = 200
"""Rounds of one transaction: those who submit wait for it where the database has one writer."""


@click.command()
@click.argument("submissions", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that were given up.")
@click.option("--error", "code", help="Only those with a stage that ended with this error code.")
@click.pass_obj
def replay(settings: Settings, submissions: tuple[str, ...], everything: bool, code: str | None) -> None:
    """Try again what was given up: SUBMISSIONS by id, or --all; without either, list it.

    Parts that are done stay done, and students keep what they have submitted.
    """
    with writing(settings) as session:
        listed = [one for one in retry.list_dead_rounds(session, limit=None) if _has(one, code)]
    if submissions:
        listed_ids = {one.submission_id for one in listed}
        unknown = [one for one in submissions if one not in listed_ids]
        if unknown:
            raise NotFound(f"Not among those that were given up: {', '.join(unknown)}.")
    elif not everything:
        return _show(listed)
    chosen = [one for one in listed if everything or one.submission_id in submissions]
    done = 0
    for some in chunks(chosen, AT_ONCE):
        with writing(settings) as session:
            done += sum(retry.retry_round(session, one.round_id, BY) for one in some)
    click.echo(f"{done} of {len(chosen)} are tried again; the sweeper sets them going within seconds.")


def _has(one: DeadRound, code: str | None) -> bool:
    return code is None or any(stage.error == code for stage in one.stages)


def _show(listed: list[DeadRound]) -> None:
    if not listed:
        click.echo("Nothing has failed.")
        return
    for one in listed:
        click.echo(
            f"{one.submission_id}  {one.state}  {one.assignment}, {one.student}, submission {one.number}"
        )
        for s in one.stages:
            click.echo(
                f"    {s.stage}: {s.error} after {s.runs} run{'' if s.runs == 1 else 's'}. {s.message}"
            )
        if not one.stages:
            click.echo(f"    {one.failure}")
    click.echo("Try again: grader replay SUBMISSION…, or grader replay --all [--error CODE]")
