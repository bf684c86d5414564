"""`grader plan`: how long a class takes on the machines of config.toml, or on those of a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from cli.plan_inputs import OUTPUT, advice, from_config, from_file, in_words, outputs_of
from cli.settings import Settings
from cli.tables import show, table
from grading.broker.canaries import rate_of_checks
from grading.broker.dispatch import open_dispatch
from grading.domain.errors import ConfigError
from grading.domain.stages import grading_stages
from grading.execution.throughput import Rate, seconds_until_checked
from grading.scheduling import capacity_plan as planning
from grading.scheduling.cost_model import Size

SECONDS = 3600.0


@click.command("plan")
@click.argument("machines", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--submissions", default=400, show_default=True, type=click.IntRange(min=1), help="Class size.")
@click.option(
    "--prompt",
    default=5000,
    show_default=True,
    type=click.IntRange(min=0),
    help="Prompt tokens of a run.",
)
@click.option(
    "--shared",
    default=4000,
    show_default=True,
    type=click.IntRange(min=0),
    help="Of these, tokens that the class shares.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="STAGE=TOKENS",
    help="Output tokens of a run; repeatable.",
)
@click.option("--year", is_flag=True, help="Simulate a term: the courses of the file, else an example's.")
@click.option("--seed", default=1, show_default=True, help="Seed of a simulated term.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Also draw the weeks of a term as SVG, into this file.",
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
    year: bool,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Estimate how long a class takes and find the bottleneck.

    MACHINES is a file that describes machines. Without it, the machines of config.toml and their measured
    speeds are used. With --year, the file also describes courses, and a whole term is simulated; without a
    file, an example's. See docs/how-to/administrators/planning.md.
    """
    if year:
        from cli.commands.plan_year import Options, plan_year

        plan_year(settings, Options(machines, prompt, shared, outputs, seed, as_json, plot))
        return
    written = outputs_of(outputs)
    if machines is not None:
        shop = _of_file(machines, prompt, shared, written)
    else:
        shop = _of_cluster(settings, written)
    stations, stages, unknown, sandbox = shop.stations, shop.stages, shop.unknown, shop.sandbox
    if strange := sorted(written.keys() - stages):
        raise click.BadParameter(f"No machine has the stage {', '.join(strange)}.", param_hint="--output")
    try:
        found = planning.plan(stations, stages, submissions)
    except planning.NobodyDoes as error:
        raise ConfigError(advice(str(error), unknown)) from None
    if as_json:
        result = {**_as_dict(found, stations, unknown), "sandbox": _sandbox(found, sandbox)}
        click.echo(json.dumps(result, indent=2))
    else:
        _show(found, stations, unknown, sandbox)


@dataclass(frozen=True)
class _Cluster:
    """The machines that a plan is made for."""

    stations: list[planning.Machine]
    stages: list[str]
    unknown: list[str] = field(default_factory=list)
    sandbox: Rate | None = None


def _of_file(path: Path, prompt: int, shared: int, written: Mapping[str, int]) -> _Cluster:
    tokens = {**OUTPUT, **written}
    stations = from_file(path, {stage: Size(prompt, shared, n) for stage, n in tokens.items()})
    return _Cluster(stations, sorted({stage for one in stations for stage in one.peer.speed_profiles}))


def _of_cluster(settings: Settings, written: Mapping[str, int]) -> _Cluster:
    config = settings.running
    dispatch = open_dispatch(config)
    stations, unknown = from_config(config, dispatch.machines(), written)
    return _Cluster(stations, list(grading_stages(config.stages)), unknown, rate_of_checks(dispatch.parts()))


def _as_dict(found: planning.Plan, stations: list[planning.Machine], unknown: list[str]) -> dict[str, object]:
    rates = {one.name: {"rates_an_hour": _an_hour(one), "known": one.known} for one in stations}
    parts = [{**asdict(part), **rates[part.machine]} for part in found.parts]
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
    click.echo(
        f"{found.submissions:,} submissions at once: about {click.style(in_words(found.hours), bold=True)} "
        f"({found.an_hour:,.0f} per hour)."
    )
    click.echo(found.bottleneck)
    if sandbox := _sandbox(found, rate):
        slowest = "sandbox" if sandbox["hours"] > found.hours else "machines"
        click.echo(
            f"If code is run, the sandbox takes about {in_words(sandbox['hours'])} for all of them "
            f"({sandbox['slots']} at once, {sandbox['seconds']:.1f} s each): "
            f"the {slowest} limits the time."
        )
    parts = table("machine", "runs", "runs/h", "speed", "1 % faster\nsaves", fold=("speed",))
    for part, station in zip(found.parts, stations, strict=True):
        does = "\n".join(f"{stage}: {jobs:,.0f}" for stage, jobs in part.jobs.items() if jobs >= 0.5)
        rates = "\n".join(f"{stage}: {rate:,.0f}" for stage, rate in _an_hour(station).items())
        parts.add_row(part.machine, does or "none", rates, station.known, in_words(part.saves_s / SECONDS))
    show(parts)
    click.echo()
    more = table("time", "difference", "change")
    for kind, hours in sorted(found.more.items(), key=lambda item: item[1]):
        more.add_row(in_words(hours), f"{hours / found.hours - 1:+.0%}", f"one more {kind}")
    for words, fixed in (
        ("first stage of each machine only", found.own),
        ("best fixed stages", found.fixed),
    ):
        if fixed is not None:
            label = f"{words}: {_roles(fixed)}" if fixed is found.fixed else words
            more.add_row(in_words(fixed.hours), f"{fixed.hours / found.hours - 1:+.0%}", label)
    show(more)
    for one in unknown:
        click.echo(f"Not counted, speed unknown: {one}")


def _roles(fixed: planning.Fixed) -> str:
    return ", ".join(f"{name} {stage}" for name, stage in fixed.roles.items())
