"""`grader machines`: load, speed and health."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from cli.settings import Settings
from grading.broker.dispatch import open_dispatch
from grading.broker.machine_status import Condition, MachineState, an_hour, condition, machines_that_differ
from grading.domain.errors import GraderError
from grading.domain.model_digests import short


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_obj
def machines(settings: Settings, as_json: bool) -> None:
    """Each machine: alive, busy, stages, models and how fast, what it takes now and why."""
    dispatch = open_dispatch(settings.running)
    states, backlog = dispatch.machines(), dispatch.backlog()
    differences = machines_that_differ(states)
    if backlog is None:
        raise GraderError("Redis does not answer, so nothing is known of the machines.")
    if as_json:
        rows = [{**asdict(state), "condition": _as_dict(condition(state))} for state in states]
        warnings = [f"{one.message}: {one.remedy}." for one in differences]
        click.echo(json.dumps({"machines": rows, "queues": backlog, "warnings": warnings}, indent=2))
        return
    Console().print(_table(states))
    for state in states:
        _say_more(state)
    click.echo("queues: " + ", ".join(f"{name} {length}" for name, length in backlog.items()))
    for one in differences:
        click.echo(f"! {one.message}\n  → {one.remedy}")


def _as_dict(how: Condition) -> dict[str, object]:
    return {**asdict(how), "health": how.health, "notes": how.notes}


def _table(states: list[MachineState]) -> Table:
    table = Table("machine", "role", "alive", "busy", "slots", "stages", "jobs an hour")
    for state in states:
        how = condition(state)
        speeds = {one.stage: one for one in how.speeds}
        stages = "\n".join(f"{name}: {_model(place)}" for name, place in state.stages.items())
        rates = "\n".join(
            "?"
            if name not in speeds
            else f"{an_hour(speeds[name].jobs_per_hour)}{'' if speeds[name].measured else ' ?'}"
            for name in state.stages
        )
        alive = "hung" if state.hung else "no" if not state.alive else "out" if state.drained else "yes"
        slots = f"{how.limit} of {state.slots}" if 0 < how.limit < state.slots else str(state.slots)
        table.add_row(state.name, state.role, alive, str(state.busy), slots, stages, rates)
    return table


def _say_more(state: MachineState) -> None:
    how = condition(state)
    for note in how.notes:
        click.echo(f"{state.name}: {note}")
    if how.guests:
        click.echo(f"{state.name} has {how.guest_words}: requests by the gateway, beside its runs")
    if how.takes or how.why:
        takes = f"listens to {', '.join(how.takes)}" if how.takes else "takes nothing now"
        click.echo(f"{state.name} {takes}" + (f": {how.why}" if how.why else ""))
    for engine, counted in state.engines.items():
        if counted.get("prompt_tokens") and "cached_tokens" in counted:
            cached, prompt = counted["cached_tokens"], counted["prompt_tokens"]
            click.echo(f"{state.name}, {engine}: {cached:,.0f} of {prompt:,.0f} prompt tokens from the cache")


def _model(place: Mapping[str, str]) -> str:
    digest = f", {short(place['digest'])}" if place.get("digest") else ""
    return f"{place['model']} ({place['engine']}{digest})"
