"""`grader plan`: how long a class takes on given machines, and what would help."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from cli.commands.plan_machines import from_config, from_file
from cli.settings import Settings
from grading.broker.canaries import rate_of_checks
from grading.broker.dispatch import open_dispatch
from grading.domain.errors import ConfigError
from grading.domain.stages import STAGES
from grading.execution.throughput import Rate, seconds_until_checked
from grading.scheduling import capacity_plan as planning
from grading.scheduling.cost_model import Size

OUTPUT = {row.name: row.max_output_tokens for row in STAGES.values()}


@click.command("plan")
@click.argument("machines", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--submissions", default=400, show_default=True, type=click.IntRange(min=1), help="Class size.")
@click.option(
    "--prompt",
    default=5000,
    show_default=True,
    type=click.IntRange(min=0),
    help="Prompt tokens of a job, all together.",
)
@click.option(
    "--shared",
    default=4000,
    show_default=True,
    type=click.IntRange(min=0),
    help="Of these, what the whole class shares.",
)
@click.option(
    "--output", "outputs", multiple=True, metavar="STAGE=TOKENS", help="Tokens written; once a stage."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_obj
def plan(
    settings: Settings,
    machines: Path | None,
    submissions: int,
    prompt: int,
    shared: int,
    outputs: tuple[str, ...],
    as_json: bool,
) -> None:
    """How long a class takes: hours, who does what, the bottleneck, and what one more machine would bring.

    Without MACHINES, a file that describes some, it plans with those of config.toml as they measured
    themselves. See docs/planning.md.
    """
    written = _outputs(outputs)
    unknown: list[str] = []
    sandbox: Rate | None = None
    if machines is not None:
        tokens = {**OUTPUT, **written}
        stations = from_file(machines, {s: Size(prompt, shared, n) for s, n in tokens.items()})
        stages = sorted({stage for one in stations for stage in one.peer.paces})
    else:
        config = settings.running
        dispatch = open_dispatch(config)
        stations, unknown = from_config(config, dispatch.machines(), written)
        sandbox = rate_of_checks(dispatch.parts())
        stages = list(config.stages)
    if strange := sorted(written.keys() - stages):
        raise click.BadParameter(f"no machine does {', '.join(strange)}", param_hint="--output")
    try:
        found = planning.plan(stations, stages, submissions)
    except planning.NobodyDoes as error:
        raise ConfigError(_advice(str(error), unknown)) from None
    if as_json:
        told = {**_as_dict(found, stations, unknown), "sandbox": _sandbox(found, sandbox)}
        click.echo(json.dumps(told, indent=2))
    else:
        _show(found, stations, unknown, sandbox)


def _outputs(told: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for one in told:
        stage, _, tokens = one.partition("=")
        if not tokens.isdecimal() or not int(tokens):
            raise click.BadParameter(
                f"'{one}' is not STAGE=TOKENS, such as analysis=1200", param_hint="--output"
            )
        found[stage] = int(tokens)
    return found


def _advice(problem: str, unknown: list[str]) -> str:
    if not unknown:
        return f"There is nothing to plan: {problem}."
    return (
        f"There is nothing to plan: {problem} at a speed that is known. Not known: {'; '.join(unknown)}. "
        "Speeds are measured while machines work; before that, write jobs_per_hour beside the model in "
        "config.toml, or describe machines in a file: see docs/planning.md."
    )


def _as_dict(found: planning.Plan, stations: list[planning.Machine], unknown: list[str]) -> dict[str, object]:
    known = {one.name: {"rates_an_hour": _an_hour(one), "known": one.known} for one in stations}
    parts = [{**asdict(part), **known[part.machine]} for part in found.parts]
    more = {"submissions_an_hour": found.an_hour, "bottleneck": found.bottleneck, "not_known": unknown}
    return {**asdict(found), "parts": parts, **more}


def _an_hour(station: planning.Machine) -> dict[str, float]:
    return {stage: 3600 * rate for stage, rate in station.rates.items()}


def _sandbox(found: planning.Plan, rate: Rate | None) -> dict[str, float] | None:
    """What an assignment whose work is run needs beside: the machines grade what has run meanwhile."""
    if rate is None:
        return None
    hours = seconds_until_checked(found.submissions, rate.slots, rate.seconds) / 3600
    return {"slots": rate.slots, "seconds": rate.seconds, "hours": hours}


def _show(
    found: planning.Plan, stations: list[planning.Machine], unknown: list[str], rate: Rate | None
) -> None:
    console = Console()
    console.print(
        f"{found.submissions:,} hand-ins at once: about [bold]{_hours(found.hours)}[/bold] "
        f"({found.an_hour:,.0f} an hour)."
    )
    console.print(found.bottleneck)
    if sandbox := _sandbox(found, rate):
        slowest = "sandbox" if sandbox["hours"] > found.hours else "machines"
        console.print(
            f"Where work is run, the sandbox takes about {_hours(sandbox['hours'])} for all of them "
            f"({sandbox['slots']} at once, {sandbox['seconds']:.1f} s each): "
            f"the {slowest} would be the bottleneck."
        )
    table = Table("machine", "does of them", "jobs an hour, all slots", "speeds are", "1 % faster saves")
    for part, station in zip(found.parts, stations, strict=True):
        does = "\n".join(f"{stage}: {jobs:,.0f}" for stage, jobs in part.jobs.items() if jobs >= 0.5)
        rates = "\n".join(f"{stage}: {rate:,.0f}" for stage, rate in _an_hour(station).items())
        table.add_row(part.machine, does or "nothing", rates, station.known, f"{part.saves_s:.1f} s")
    console.print(table)
    more = Table("change", "hours", "beside now")
    for kind, hours in sorted(found.more.items(), key=lambda item: item[1]):
        more.add_row(f"one more {kind}", _hours(hours), f"{hours / found.hours - 1:+.0%}")
    for words, fixed in (("each at its first stage only", found.own), ("best fixed roles", found.fixed)):
        if fixed is not None:
            label = f"{words}: {_roles(fixed)}" if fixed is found.fixed else words
            more.add_row(label, _hours(fixed.hours), f"{fixed.hours / found.hours - 1:+.0%}")
    console.print(more)
    for one in unknown:
        console.print(f"Not counted, as its speed is not known: {one}")


def _roles(fixed: planning.Fixed) -> str:
    return ", ".join(f"{name} {stage}" for name, stage in fixed.roles.items())


def _hours(hours: float) -> str:
    if hours < 1 / 60:
        return f"{3600 * hours:.0f} s"
    return f"{60 * hours:.0f} min" if hours < 2 else f"{hours:.1f} h"
