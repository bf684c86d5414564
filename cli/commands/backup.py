"""Backing the store up and bringing it back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from cli.settings import Settings
from grading.store import Store
from grading.store.privacy import backup as backups
from grading.store.privacy.backup import Manifest

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
