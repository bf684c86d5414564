"""`grader machines`: load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from cli.settings import Settings
from grading.cluster.weights import short
from grading.dispatch import machines_that_differ, open_dispatch
from grading.errors import GraderError


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_obj
def machines(settings: Settings, as_json: bool) -> None:
    """Each machine: alive, busy, stages and models."""
    dispatch = open_dispatch(settings.running)
    states, backlog = dispatch.machines(), dispatch.backlog()
    differences = machines_that_differ(states)
    if backlog is None:
        raise GraderError("Redis does not answer, so nothing is known of the machines.")
    if as_json:
        rows = [asdict(state) for state in states]
        warnings = [f"{one.message}: {one.remedy}." for one in differences]
        click.echo(json.dumps({"machines": rows, "queues": backlog, "warnings": warnings}, indent=2))
        return
    table = Table("machine", "role", "alive", "busy", "slots", "stages")
    for state in states:
        stages = "\n".join(f"{name}: {_model(place)}" for name, place in state.stages.items())
        alive = "hung" if state.hung else "no" if not state.alive else "out" if state.drained else "yes"
        table.add_row(state.name, state.role, alive, str(state.busy), str(state.slots), stages)
    Console().print(table)
    for state in states:
        for engine, counted in state.engines.items():
            if counted.get("prompt_tokens") and "cached_tokens" in counted:
                cached, prompt = counted["cached_tokens"], counted["prompt_tokens"]
                click.echo(
                    f"{state.name}, {engine}: {cached:,.0f} of {prompt:,.0f} prompt tokens from the cache"
                )
    click.echo("queues: " + ", ".join(f"{name} {length}" for name, length in backlog.items()))
    for one in differences:
        click.echo(f"! {one.message}\n  → {one.remedy}")


def _model(place: Mapping[str, str]) -> str:
    digest = f", {short(place['digest'])}" if place.get("digest") else ""
    return f"{place['model']} ({place['engine']}{digest})"
