"""Commands on stored data: backup, retention, erasure, export, and retries of submissions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import click
from redis.exceptions import RedisError

from cli.commands.admin import writing
from cli.output import counted, progress_bar
from cli.settings import Settings
from grading.broker.away import refuses_password
from grading.broker.dispatch import open_dispatch
from grading.broker.erasure import withdraw
from grading.domain.errors import FilesUnavailable, GraderError, NotFound
from grading.domain.messages import define_message
from grading.store import Store, blob_moves, open_store, schema
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
@click.option("--verify", is_flag=True, help="Check that FILE is complete; write nothing.")
@click.option(
    "--to-folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a file named by date and time into this folder, for timers and cron.",
)
@click.option("--keep", type=click.IntRange(1), help="With --to-folder: keep this many, the newest.")
@click.pass_obj
def backup(
    settings: Settings, file: Path | None, verify: bool, to_folder: Path | None, keep: int | None
) -> None:
    """Back up the database to FILE while the system runs."""
    if (file is None) == (to_folder is None) or (verify and file is None):
        raise click.UsageError("Give FILE or --to-folder.")
    if keep is not None and to_folder is None:
        raise click.UsageError("--keep needs --to-folder.")
    if verify:
        assert file is not None
        click.echo(f"{file} is complete: {_sentence(backups.verify_backup(file))}")
        return
    with closing(Store(settings.config.database.url)) as store:
        schema.reached_revision(store)  # whichever it is: one before an upgrade is backed up, too
        with progress_bar("Copying the database") as report:

            def packed(done: int, total: int) -> None:
                report(done, total, "Packing")

            if to_folder is not None:
                file, manifest = backups.rotate_backups(store, to_folder, keep, progress=packed)
            else:
                assert file is not None
                manifest = backups.write_backup(store, file, progress=packed)
    click.echo(f"{file}: {_sentence(manifest)}")
    click.echo("config.toml and the secrets are not in it. Store them separately.")
    if settings.config.files.used:
        click.echo("Files in the object store are not in it. Back up the bucket after the database.")


@click.command()
@click.argument("file", type=FILE)
@click.option("--replace", is_flag=True, help="Replace the data in the database.")
@click.option(
    "--safety",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the backup of the replaced data; the folder of FILE by default.",
)
@click.pass_obj
def restore(settings: Settings, file: Path, replace: bool, safety: Path | None) -> None:
    """Restore the database from the backup FILE.

    Stop the system first.
    """
    manifest, saved = backups.restore_backup(
        settings.config.database.url, file, replace=replace, safety=safety or file.resolve().parent
    )
    if saved:
        click.echo(f"The replaced data is in {saved}")
    click.echo(f"Restored: {_sentence(manifest)}")
    if settings.config.files.used:
        click.echo("Restore the bucket as well, then run `grader files verify`.")
    click.echo("Start the system. Interrupted runs are dispatched again.")


def _sentence(manifest: Manifest) -> str:
    counts = ", ".join(f"{number} {name}" for name, number in manifest.counts.items())
    return (
        f"{manifest.kind} at {manifest.created:%Y-%m-%d %H:%M:%S} UTC, "
        f"revision {manifest.revision}, Grader {manifest.version}, {counts}"
    )


class RedisAway(GraderError):
    """Redis does not answer, and it can hold the student's work: start it, or use --without-redis."""

    code = "redis_away"
    status = 503
    default_message = define_message(
        "error.redis_away",
        "Redis does not answer, and it can hold the student's work. Start it or use --without-redis.",
    )


class RedisRefuses(GraderError):
    """Redis refuses the password, and it can hold the student's work: correct GRADER_REDIS_URL."""

    code = "redis_refuses"
    status = 503
    default_message = define_message(
        "error.redis_refuses",
        "Redis refuses the password, and it can hold the student's work. Correct GRADER_REDIS_URL.",
    )


@click.command()
@click.option("--dry-run", is_flag=True, help="Only count; delete nothing.")
@click.pass_obj
def retention(settings: Settings, dry_run: bool) -> None:
    """Delete data older than [retention] in config.toml.

    The sweeper does this once a day.
    """
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
    _tell(counts, "To delete" if dry_run else "Deleted", "No data is older than [retention] allows.")


@click.command()
@click.argument("student")
@click.option("--dry-run", is_flag=True, help="Only count; erase nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--without-redis", is_flag=True, help="Also without Redis; the sweeper removes the rest later.")
@click.pass_obj
def erase(settings: Settings, student: str, dry_run: bool, yes: bool, without_redis: bool) -> None:
    """Erase all data about STUDENT.

    STUDENT is a sign-in name, a student ID, an email address or user:NUMBER.
    """
    with closing(open_store(settings.config)) as store:
        schema.require_usable(store)
        with store.read() as session:
            found, counts = erasure.preview_erasure(session, student)
        _tell(
            counts,
            f"Data about {student} ({found.name})",
            f"There is no data about {student} ({found.name}).",
        )
        if dry_run:
            return
        if not yes:
            click.confirm("Erase all of it? Only a backup can restore it", abort=True)
        if not without_redis:
            _require_redis(settings)
        with store.write() as session:
            erased = erasure.erase_student(session, found, "cli")
        _tell(erased.counts, "Erased", "Erased.")
        _delete_objects(store)
        if not without_redis:
            _withdraw(settings, erased.student)
        erasure.compact_database(store)
    click.echo("Earlier backups still contain the data until you delete them.")


@click.command()
@click.argument("student")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def export(settings: Settings, student: str, file: Path) -> None:
    """Export all data about STUDENT to FILE, a ZIP file.

    STUDENT is a sign-in name, a student ID, an email address or user:NUMBER.
    """
    if file.exists():
        raise click.UsageError(f"{file} already exists. Choose another name.")
    part = file.with_name(f".{file.name}.{os.getpid()}")
    with closing(open_store(settings.config)) as store:
        schema.require_usable(store)
        try:
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as to:
                with store.read() as session:
                    found = find_student(session, student)
                counts = exports.write_export(store, found, to, "cli")
            part.replace(file)
        except OSError as error:
            raise GraderError(f"{file} cannot be written: {error.strerror or error}.") from error
        finally:
            part.unlink(missing_ok=True)
    _tell(counts, f"{file}: data about {found.name}", f"{file}: there is no data.")


def _delete_objects(store: Store) -> None:
    """Delete the objects of what was erased; the sweeper does, where the object store does not answer."""
    if store.objects is None:
        return
    number = 0
    try:
        while some := blob_moves.delete_objects(store, store.objects):
            number += some
    except FilesUnavailable:
        click.echo("The object store does not answer. The sweeper deletes the files there later.")
        return
    click.echo(f"Deleted from the object store: {counted(number, 'object')}.")


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
        click.echo(f"Removed from Redis: {withdraw(dispatch.registry.redis, ids)} entries.")
    except (RedisError, OSError) as error:
        click.echo(f"Redis does not answer ({error}). The sweeper removes the rest later.")
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
@click.option("--all", "everything", is_flag=True, help="Retry all failed runs.")
@click.option("--error", "code", help="Only failures with this error code.")
@click.pass_obj
def replay(settings: Settings, submissions: tuple[str, ...], everything: bool, code: str | None) -> None:
    """List failed runs, or retry those of SUBMISSIONS.

    SUBMISSIONS are IDs; --all retries all failed runs. Completed stages are not run again, and submissions
    do not change.
    """
    with writing(settings) as session:
        listed = [one for one in retry.list_dead_rounds(session, limit=None) if _has(one, code)]
    if submissions:
        listed_ids = {one.submission_id for one in listed}
        unknown = [one for one in submissions if one not in listed_ids]
        if unknown:
            raise NotFound(f"These submissions have no failed runs: {', '.join(unknown)}.")
    elif not everything:
        return _show(listed)
    chosen = [one for one in listed if everything or one.submission_id in submissions]
    done = 0
    for some in chunks(chosen, AT_ONCE):
        with writing(settings) as session:
            done += sum(retry.retry_round(session, one.round_id, BY) for one in some)
    click.echo(f"Retrying {done} of {len(chosen)} submissions. The sweeper dispatches them within seconds.")


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
    click.echo("Retry: grader replay SUBMISSION…, or grader replay --all [--error CODE]")
