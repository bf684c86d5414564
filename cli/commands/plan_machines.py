"""The machines `grader plan` reckons with: those of config.toml as they measured themselves, or a file's."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from grading.broker.machine_status import MachineState, peer
from grading.config.machines import Name
from grading.config.settings import Config
from grading.domain.errors import ConfigError
from grading.domain.value import Value
from grading.scheduling import cost_model
from grading.scheduling.capacity_plan import Machine, pace_of
from grading.scheduling.cluster_view import Pace, Peer
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
    """Either a rate with all slots in use, or a model whose cost is reckoned."""

    jobs_per_hour: Positive | None = None
    model: str | None = None

    @model_validator(mode="after")
    def _one(self) -> PlannedStage:
        if (self.jobs_per_hour is None) == (self.model is None):
            raise ValueError("write either jobs_per_hour or model")
        return self


class PlannedMachine(Value):
    """A kind of machine; a card by name, or its bandwidth and arithmetic, where models are reckoned."""

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
                raise ValueError(f"'{name}' stands there twice; write count, or another name")
        return self


def from_file(path: Path, sizes: Mapping[str, Size]) -> list[Machine]:
    """The machines of a file. Raises ConfigError with the key."""
    try:
        told = PlanFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}.") from None
    models = dict(cost_model.MODELS) | {
        name: Weights(**one.model_dump()) for name, one in told.models.items()
    }
    return [
        Machine(
            Peer(
                machine.name if machine.count == 1 else f"{machine.name} {number}",
                machine.slots,
                tuple(machine.stages),
                paces={stage: _pace(machine, stage, models, sizes) for stage in machine.stages},
            ),
            kind=machine.name,
            known=_known(machine),
            own=next(iter(machine.stages)),
        )
        for machine in told.machines
        for number in range(1, machine.count + 1)
    ]


def _known(machine: PlannedMachine) -> str:
    reckoned = [stage for stage, place in machine.stages.items() if place.model]
    return (
        "reckoned" if len(reckoned) == len(machine.stages) else "given" if not reckoned else "given, reckoned"
    )


def _pace(
    machine: PlannedMachine, stage: str, models: Mapping[str, Weights], sizes: Mapping[str, Size]
) -> Pace:
    place = machine.stages[stage]
    if place.jobs_per_hour is not None:
        return pace_of(place.jobs_per_hour / SECONDS, machine.slots)
    where = f"machine {machine.name}, stages.{stage}"
    if place.model is None or place.model not in models:
        known = ", ".join(sorted(models))
        raise ConfigError(
            f"{where}: model '{place.model}' is not known; known: {known}. Add it under [models]."
        )
    card, model, size = _card(machine), models[place.model], sizes.get(stage, Size())
    alone_s, full_s = (n / cost_model.rate(card, model, size, n) for n in (1, machine.slots))
    return Pace(alone_s, full_s, machine.slots)


def _card(machine: PlannedMachine) -> Card:
    if machine.card is not None:
        if machine.card not in cost_model.CARDS:
            known = ", ".join(sorted(cost_model.CARDS))
            raise ConfigError(f"machine {machine.name}: card '{machine.card}' is not known; known: {known}.")
        return cost_model.CARDS[machine.card]
    if machine.bandwidth_gb_s is None or machine.tflops is None:
        raise ConfigError(
            f"machine {machine.name}: a model's cost needs a card, or bandwidth_gb_s and tflops."
        )
    return Card(machine.bandwidth_gb_s, machine.tflops, machine.efficiency, machine.efficiency)


def from_config(
    config: Config, states: list[MachineState], outputs: Mapping[str, int]
) -> tuple[list[Machine], list[str]]:
    """The machines of config.toml by what they measured, else by jobs_per_hour; and what is not known."""
    told = {state.name: peer(state.beat) for state in states if state.beat is not None}
    machines, unknown = [], []
    for machine in config.machines:
        beat = told.get(machine.name)
        slots = beat.slots if beat is not None else machine.slots
        paces, known = {}, set()
        for stage, place in machine.stages.items():
            pace = beat.paces.get(stage) if beat is not None else None
            if beat is not None and pace is not None and pace.seen >= 1:
                paces[stage] = _longer(pace, outputs.get(stage))
                known.add("measured")
            elif place.jobs_per_hour is not None:
                paces[stage] = pace_of(place.jobs_per_hour / SECONDS, slots)
                known.add("first guess")
            else:
                unknown.append(f"{machine.name}: {stage}")
        machines.append(
            Machine(
                Peer(machine.name, slots, tuple(machine.stages), paces=paces),
                kind=machine.name,
                known=", ".join(sorted(known)),
                own=next(iter(machine.stages)),
            )
        )
    return machines, unknown


def _longer(pace: Pace, output: int | None) -> Pace:
    """The speed for another length of answers than those that were measured."""
    by = output / pace.tokens if output and pace.tokens else 1.0
    return replace(pace, alone_s=pace.alone_s * by, full_s=pace.full_s * by)
