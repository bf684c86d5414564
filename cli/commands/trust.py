"""Trust in grades: marks that people gave before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from cli.commands.admin import writing
from cli.output import counted
from cli.settings import Settings
from grading.store.assignments import versions
from grading.store.trust import human_marks
from grading.store.trust.human_marks import Imported
from grading.tabular.marks_csv import MarkMapping, MarksUnreadable, MarkTable, parse_marks, read_mapping

SHOWN = 20
"""Lines and names that are listed."""


@click.group()
def trust() -> None:
    """Measure how far grades can be trusted."""


@trust.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--assignment", "name", required=True, metavar="COURSE/SLUG", help="Assignment.")
@click.option(
    "--mapping",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file that maps columns to criteria and letters to levels.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be imported.")
@click.pass_obj
def import_marks(settings: Settings, file: Path, name: str, mapping: Path | None, dry_run: bool) -> None:
    """Import marks that people gave before from the CSV table FILE.

    Each row has the marks of one work by one person: a column `id` for the student or submission, `marker`
    for the person, and a column for each criterion of the rubric. Empty cells are missing marks. Numbers are
    points; letters and other words need a mapping. All marks are stored or none; the same file again adds
    none, and finds submissions that came since.
    """
    content, rules = file.read_bytes(), mapping.read_bytes() if mapping is not None else b""
    digest = human_marks.digest_of(content, rules)
    with writing(settings) as session:
        assignment = versions.find_by_name(session, name)
        read = read_mapping(rules) if mapping is not None else MarkMapping()
        table = parse_marks(content, human_marks.rubric_of(session, assignment.id), read)
        _say_unmapped(table)
        if dry_run:
            done = human_marks.preview_import(session, assignment, table, digest)
        else:
            done = human_marks.import_marks(session, assignment, table, digest, file.name, "cli")
    _say_done(done, table, dry_run=dry_run)


@trust.command("imports")
@click.option("--assignment", "name", required=True, metavar="COURSE/SLUG", help="Assignment.")
@click.pass_obj
def list_imports(settings: Settings, name: str) -> None:
    """List imported files of marks, with their numbers."""
    with writing(settings) as session:
        assignment = versions.find_by_name(session, name)
        for one in human_marks.list_imports(session, assignment.id):
            click.echo(f"{one.id}: {one.name}, {one.at:%Y-%m-%d %H:%M} UTC, {counted(one.marks, 'mark')}")


@trust.command("remove")
@click.argument("number", type=int)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def remove_import(settings: Settings, number: int, yes: bool) -> None:
    """Remove the imported marks of file NUMBER.

    Marks of an earlier file that they replaced do not come back: remove that file, too, and import it again.
    """
    with writing(settings) as session:
        found = human_marks.load_import(session, number)
    if not yes:
        click.confirm(f"Remove {counted(found.marks, 'mark')} of {found.name}?", abort=True)
    with writing(settings) as session:
        found = human_marks.remove_import(session, number, "cli")
    click.echo(f"Removed {counted(found.marks, 'mark')} of {found.name}.")


def _say_unmapped(table: MarkTable) -> None:
    """Say what stands for nothing; refuse a table with lines that cannot be read."""
    if table.ignored:
        click.echo(f"⚠ ignored, as they are no criterion: {_listed(table.ignored)}")
    if table.problems:
        for line, said in table.problems[:SHOWN]:
            click.echo(f"line {line}: {said.message}", err=True)
        more = len(table.problems) - SHOWN
        if more > 0:
            click.echo(f"and {more} more", err=True)
        raise MarksUnreadable(_refusal(len(table.problems)))


def _refusal(count: int) -> str:
    marks = "One mark cannot" if count == 1 else f"{count} marks cannot"
    return f"{marks} be read, so nothing was imported. Correct them, or map them in the mapping."


def _say_done(done: Imported, table: MarkTable, *, dry_run: bool) -> None:
    if done.linked:
        click.echo(f"{done.linked} works of earlier files have a submission here now")
    if done.known:
        click.echo("This file was imported before with the same mapping; no mark changes.")
        return
    verb = "would be imported" if dry_run else "imported"
    click.echo(
        f"{done.marks} marks {verb}: {done.works} works, {len(done.markers)} markers "
        f"({_listed(done.markers)}), {table.missing} missing"
    )
    if done.replaced:
        click.echo(f"{done.replaced} of them change a mark of an earlier file")
    click.echo(f"{done.here} works have a submission here and are compared with automatic grading")
    if done.not_here:
        click.echo(f"⚠ no submission here, compared between people only: {_listed(done.not_here)}")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
