"""`grader replay`: hand-ins that were given up, and trying them again."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from cli.admin import writing
from cli.settings import Settings
from grading.errors import NotFound
from grading.store import replay as given_up_rounds
from grading.store.replay import GivenUp

BY = "cli"


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
        listed = [one for one in given_up_rounds.given_up(session, limit=10_000) if _has(one, code)]
        if submissions:
            known = {one.submission_id for one in listed}
            unknown = [one for one in submissions if one not in known]
            if unknown:
                raise NotFound(f"Not among those that were given up: {', '.join(unknown)}.")
        elif not everything:
            return _show(listed)
        chosen = [one for one in listed if everything or one.submission_id in submissions]
        done = sum(given_up_rounds.replay(session, one.round_id, BY) for one in chosen)
    click.echo(f"{done} of {len(chosen)} are tried again; the sweeper sets them going within seconds.")


def _has(one: GivenUp, code: str | None) -> bool:
    return code is None or any(stage.error == code for stage in one.stages)


def _show(listed: list[GivenUp]) -> None:
    if not listed:
        click.echo("Nothing was given up.")
        return
    table = Table("submission", "assignment", "student", "state", "what did not work")
    for one in listed:
        why = "\n".join(f"{s.stage}: {s.error} after {s.runs} runs. {s.message}" for s in one.stages)
        table.add_row(one.submission_id, one.assignment, one.student, one.state, why or one.failure)
    Console(soft_wrap=True).print(table)
    click.echo("Try again: grader replay SUBMISSION…, or grader replay --all [--error CODE]")
