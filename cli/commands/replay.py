"""`grader replay`: hand-ins that were given up, and trying them again."""

from __future__ import annotations

import click

from cli.commands.admin import writing
from cli.settings import Settings
from grading.domain.errors import NotFound
from grading.store.bulk import chunks
from grading.store.rounds import retry as given_up_rounds
from grading.store.rounds.retry import DeadRound

BY = "cli"
AT_ONCE = 200
"""Rounds of one transaction: those who hand in wait for it where the database has one writer."""


@click.command()
@click.argument("submissions", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that were given up.")
@click.option("--error", "code", help="Only those with a stage that ended with this error code.")
@click.pass_obj
def replay(settings: Settings, submissions: tuple[str, ...], everything: bool, code: str | None) -> None:
    """Try again what was given up: SUBMISSIONS by id, or --all; without either, list it.

    Parts that are done stay done, and students keep what they have handed in.
    """
    with writing(settings) as session:
        listed = [one for one in given_up_rounds.list_dead_rounds(session, limit=None) if _has(one, code)]
    if submissions:
        known = {one.submission_id for one in listed}
        unknown = [one for one in submissions if one not in known]
        if unknown:
            raise NotFound(f"Not among those that were given up: {', '.join(unknown)}.")
    elif not everything:
        return _show(listed)
    chosen = [one for one in listed if everything or one.submission_id in submissions]
    done = 0
    for some in chunks(chosen, AT_ONCE):
        with writing(settings) as session:
            done += sum(given_up_rounds.retry_round(session, one.round_id, BY) for one in some)
    click.echo(f"{done} of {len(chosen)} are tried again; the sweeper sets them going within seconds.")


def _has(one: DeadRound, code: str | None) -> bool:
    return code is None or any(stage.error == code for stage in one.stages)


def _show(listed: list[DeadRound]) -> None:
    if not listed:
        click.echo("Nothing was given up.")
        return
    for one in listed:
        click.echo(f"{one.submission_id}  {one.state}  {one.assignment}, {one.student}, hand-in {one.number}")
        for s in one.stages:
            click.echo(
                f"    {s.stage}: {s.error} after {s.runs} run{'' if s.runs == 1 else 's'}. {s.message}"
            )
        if not one.stages:
            click.echo(f"    {one.failure}")
    click.echo("Try again: grader replay SUBMISSION…, or grader replay --all [--error CODE]")
