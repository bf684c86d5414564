"""`grader machines`: load."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

from cli.settings import Settings
from grading.dispatch import open_dispatch
from grading.errors import GraderError


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_obj
def machines(settings: Settings, as_json: bool) -> None:
    """Each machine: alive, busy, stages and models."""
    dispatch = open_dispatch(settings.running)
    states, backlog = dispatch.machines(), dispatch.backlog()
    if backlog is None:
        raise GraderError("Redis does not answer, so nothing is known of the machines.")
    if as_json:
        rows = [{**vars(s), "stages": {k: dict(v) for k, v in s.stages.items()}} for s in states]
        click.echo(json.dumps({"machines": rows, "queues": backlog}, indent=2))
        return
    table = Table("machine", "role", "alive", "busy", "slots", "stages")
    for state in states:
        stages = "\n".join(f"{name}: {s['model']} ({s['engine']})" for name, s in state.stages.items())
        alive = "hung" if state.hung else "no" if not state.alive else "out" if state.drained else "yes"
        table.add_row(state.name, state.role, alive, str(state.busy), str(state.slots), stages)
    Console().print(table)
    click.echo("queues: " + ", ".join(f"{name} {length}" for name, length in backlog.items()))
