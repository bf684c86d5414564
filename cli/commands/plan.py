"""`grader plan`: how long a class takes on the machines of config.toml, or on those of a file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import click
from pydantic import Field, ValidationError, model_validator

from cli.settings import Settings
from cli.tables import show, table
from grading.broker.canaries import rate_of_checks
from grading.broker.dispatch import open_dispatch
from grading.broker.machine_status import MachineState, peer
from grading.config.machines import Name
from grading.config.settings import Config
from grading.domain.base_value import Value
from grading.domain.errors import ConfigError
from grading.domain.stages import STAGES, grading_stages
from grading.execution.throughput import Rate, seconds_until_checked
from grading.scheduling import capacity_plan as planning
from grading.scheduling import cost_model
from grading.scheduling.capacity_plan import Machine, speed_profile_of
from grading.scheduling.cluster_view import Peer, SpeedProfile
from grading.scheduling.cost_model import Card, Size, Weights

Positive = Annotated[float, Field(gt=0)]
SECONDS = 3600.0


class PlannedModel(Value):
    """A model's size (`grading.scheduling.cost_model.Weights`); what a step of one at once reads, in GB."""

    always_gb: Positive
    active_billions: Positive
    experts_gb: float = Field(default=0.0, ge=0)
    hit: float = Field(default=0.0, ge=0, le=1)
    cache_bytes_token: float = Field(default=100_000.0, ge=0)
    cache_fixed_gb: float = Field(default=0.0, ge=0)


class PlannedStage(Value):
    """Either a rate with all slots in use, or a model whose cost is computed."""

    jobs_per_hour: Positive | None = None
    model: str | None = None

    @model_validator(mode="after")
    def _one(self) -> PlannedStage:
        if (self.jobs_per_hour is None) == (self.model is None):
            raise ValueError("write either jobs_per_hour or model")
        return self


class PlannedMachine(Value):
    """A kind of machine; a card by name, or its bandwidth and arithmetic, where models are computed."""

    name: Name
    count: int = Field(default=1, ge=1, le=100)
    slots: int = Field(default=16, ge=1, le=256)
    card: str | None = None
    bandwidth_gb_s: Positive | None = None
    tflops: Positive | None = None
    efficiency: float = Field(default=0.7, gt=0, le=1)
    stages: dict[str, PlannedStage] = Field(min_length=1)


class PlanFile(Value):
    """A file that describes machines; models that are not known by name stand under [models]."""

    machines: tuple[PlannedMachine, ...] = Field(min_length=1)
    models: dict[str, PlannedModel] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _apart(self) -> PlanFile:
        names = [machine.name for machine in self.machines]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"'{name}' is there twice; use count or another name")
        return self


def from_file(path: Path, sizes: Mapping[str, Size]) -> list[Machine]:
    """The machines of a file. Raises ConfigError with the key."""
    try:
        plan_file = PlanFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}.") from None
    models = dict(cost_model.MODELS) | {
        name: Weights(**one.model_dump()) for name, one in plan_file.models.items()
    }
    return [
        Machine(
            Peer(
                machine.name if machine.count == 1 else f"{machine.name} {number}",
                machine.slots,
                tuple(machine.stages),
                speed_profiles={
                    stage: _speed_profile(machine, stage, models, sizes) for stage in machine.stages
                },
            ),
            kind=machine.name,
            known=_source(machine),
            own=next(iter(machine.stages)),
        )
        for machine in plan_file.machines
        for number in range(1, machine.count + 1)
    ]


def _source(machine: PlannedMachine) -> str:
    computed = [stage for stage, place in machine.stages.items() if place.model]
    return (
        "computed" if len(computed) == len(machine.stages) else "given" if not computed else "given, computed"
    )


def _speed_profile(
    machine: PlannedMachine, stage: str, models: Mapping[str, Weights], sizes: Mapping[str, Size]
) -> SpeedProfile:
    place = machine.stages[stage]
    if place.jobs_per_hour is not None:
        return speed_profile_of(place.jobs_per_hour / SECONDS, machine.slots)
    where = f"machine {machine.name}, stages.{stage}"
    if place.model is None or place.model not in models:
        known = ", ".join(sorted(models))
        raise ConfigError(
            f"{where}: model '{place.model}' is unknown. Use {known}, or add it under [models]."
        )
    card, model, size = _card(machine), models[place.model], sizes.get(stage, Size())
    alone_s, full_s = (n / cost_model.rate(card, model, size, n) for n in (1, machine.slots))
    return SpeedProfile(alone_s, full_s, machine.slots)


def _card(machine: PlannedMachine) -> Card:
    if machine.card is not None:
        if machine.card not in cost_model.CARDS:
            names = ", ".join(sorted(cost_model.CARDS))
            raise ConfigError(f"machine {machine.name}: card '{machine.card}' is unknown. Use {names}.")
        return cost_model.CARDS[machine.card]
    if machine.bandwidth_gb_s is None or machine.tflops is None:
        raise ConfigError(
            f"machine {machine.name}: to calculate a model's speed, set card, or bandwidth_gb_s and tflops."
        )
    return Card(machine.bandwidth_gb_s, machine.tflops, machine.efficiency, machine.efficiency)


def from_config(
    config: Config, states: list[MachineState], outputs: Mapping[str, int]
) -> tuple[list[Machine], list[str]]:
    """The machines of config.toml by what they measured, else by jobs_per_hour; and what is not known."""
    peers = {state.name: peer(state.heartbeat) for state in states if state.heartbeat is not None}
    machines, unknown = [], []
    for machine in config.machines:
        heartbeat = peers.get(machine.name)
        slots = heartbeat.slots if heartbeat is not None else machine.slots
        profiles, measured = {}, set()
        for stage, place in machine.stages.items():
            profile = heartbeat.speed_profiles.get(stage) if heartbeat is not None else None
            if heartbeat is not None and profile is not None and profile.seen >= 1:
                profiles[stage] = _longer(profile, outputs.get(stage))
                measured.add("measured")
            elif place.jobs_per_hour is not None:
                profiles[stage] = speed_profile_of(place.jobs_per_hour / SECONDS, slots)
                measured.add("configured")
            else:
                unknown.append(f"{machine.name}: {stage}")
        machines.append(
            Machine(
                Peer(machine.name, slots, tuple(machine.stages), speed_profiles=profiles),
                kind=machine.name,
                known=", ".join(sorted(measured)),
                own=next(iter(machine.stages)),
            )
        )
    return machines, unknown


def _longer(profile: SpeedProfile, output: int | None) -> SpeedProfile:
    """The speed for another length of answers than those that were measured."""
    by = output / profile.tokens if output and profile.tokens else 1.0
    return replace(profile, alone_s=profile.alone_s * by, full_s=profile.full_s * by)


OUTPUT = {row.name: row.max_output_tokens for row in STAGES.values() if not row.background}


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
    """Estimate how long a class takes and find the bottleneck.

    MACHINES is a file that describes machines. Without it, the machines of config.toml and their measured
    speeds are used. See docs/how-to/administrators/planning.md.
    """
    written = _outputs(outputs)
    unknown: list[str] = []
    sandbox: Rate | None = None
    if machines is not None:
        tokens = {**OUTPUT, **written}
        stations = from_file(machines, {s: Size(prompt, shared, n) for s, n in tokens.items()})
        stages = sorted({stage for one in stations for stage in one.peer.speed_profiles})
    else:
        config = settings.running
        dispatch = open_dispatch(config)
        stations, unknown = from_config(config, dispatch.machines(), written)
        sandbox = rate_of_checks(dispatch.parts())
        stages = list(grading_stages(config.stages))
    if strange := sorted(written.keys() - stages):
        raise click.BadParameter(f"No machine has the stage {', '.join(strange)}.", param_hint="--output")
    try:
        found = planning.plan(stations, stages, submissions)
    except planning.NobodyDoes as error:
        raise ConfigError(_advice(str(error), unknown)) from None
    if as_json:
        result = {**_as_dict(found, stations, unknown), "sandbox": _sandbox(found, sandbox)}
        click.echo(json.dumps(result, indent=2))
    else:
        _show(found, stations, unknown, sandbox)


def _outputs(options: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for one in options:
        stage, _, tokens = one.partition("=")
        if not tokens.isdecimal() or not int(tokens):
            raise click.BadParameter(
                f"Write STAGE=TOKENS, such as analysis=1200, not '{one}'.", param_hint="--output"
            )
        found[stage] = int(tokens)
    return found


def _advice(problem: str, unknown: list[str]) -> str:
    if not unknown:
        return f"No plan: {problem}."
    return (
        f"No plan: {problem} at a known speed. Unknown: {'; '.join(unknown)}. Speeds are measured while "
        "machines work. Before that, set jobs_per_hour beside the model in config.toml, or describe machines "
        "in a file: see docs/how-to/administrators/planning.md."
    )


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
        f"{found.submissions:,} submissions at once: about {click.style(_hours(found.hours), bold=True)} "
        f"({found.an_hour:,.0f} per hour)."
    )
    click.echo(found.bottleneck)
    if sandbox := _sandbox(found, rate):
        slowest = "sandbox" if sandbox["hours"] > found.hours else "machines"
        click.echo(
            f"If code is run, the sandbox takes about {_hours(sandbox['hours'])} for all of them "
            f"({sandbox['slots']} at once, {sandbox['seconds']:.1f} s each): "
            f"the {slowest} limits the time."
        )
    parts = table("machine", "runs", "runs/h", "speed", "1 % faster\nsaves", fold=("speed",))
    for part, station in zip(found.parts, stations, strict=True):
        does = "\n".join(f"{stage}: {jobs:,.0f}" for stage, jobs in part.jobs.items() if jobs >= 0.5)
        rates = "\n".join(f"{stage}: {rate:,.0f}" for stage, rate in _an_hour(station).items())
        parts.add_row(part.machine, does or "none", rates, station.known, _hours(part.saves_s / SECONDS))
    show(parts)
    click.echo()
    more = table("time", "difference", "change")
    for kind, hours in sorted(found.more.items(), key=lambda item: item[1]):
        more.add_row(_hours(hours), f"{hours / found.hours - 1:+.0%}", f"one more {kind}")
    for words, fixed in (
        ("first stage of each machine only", found.own),
        ("best fixed stages", found.fixed),
    ):
        if fixed is not None:
            label = f"{words}: {_roles(fixed)}" if fixed is found.fixed else words
            more.add_row(_hours(fixed.hours), f"{fixed.hours / found.hours - 1:+.0%}", label)
    show(more)
    for one in unknown:
        click.echo(f"Not counted, speed unknown: {one}")


def _roles(fixed: planning.Fixed) -> str:
    return ", ".join(f"{name} {stage}" for name, stage in fixed.roles.items())


def _hours(hours: float) -> str:
    if hours < 1 / 60:
        return f"{3600 * hours:.0f} s"
    return f"{60 * hours:.0f} min" if hours < 2 else f"{hours:.1f} h"
