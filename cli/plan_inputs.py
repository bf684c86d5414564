"""What `grader plan` is given: machines of a file or of config.toml, courses, lengths of answers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import click
from pydantic import AfterValidator, Field, ValidationError, model_validator

from grading.broker.machine_status import MachineState, peer
from grading.config.machines import Name
from grading.config.settings import Config
from grading.domain.base_value import Value
from grading.domain.errors import ConfigError
from grading.domain.stages import STAGES, grading_stages
from grading.scheduling import cost_model
from grading.scheduling.capacity_plan import Machine, speed_profile_of
from grading.scheduling.cluster_view import Peer, SpeedProfile
from grading.scheduling.cost_model import Card, Size, Weights
from grading.scheduling.term import DAY_H, WEEK_H, Course, Rush

Positive = Annotated[float, Field(ge=1e-3, le=1e6)]
"""A figure of a machine, model or price: larger and smaller ones are mistakes of unit."""
SECONDS = 3600.0
MOST_SUBMISSIONS = 1_000_000
"""Of a term; so many take about 1 GB of memory."""
MOST_MACHINES, MOST_COURSES = 2_000, 5_000


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("use printable characters only")
    return text


def _deadline(text: str) -> str:
    if not re.fullmatch(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([01]\d|2[0-3]):[0-5]\d", text):
        raise ValueError(f"write a weekday and a time, such as 'Fri 18:00', not {text!r}")
    return text


Printable = Annotated[str, AfterValidator(_printable)]
Deadline = Annotated[str, AfterValidator(_deadline)]


class PlannedModel(Value):
    """A model's size (`grading.scheduling.cost_model.Weights`); what a step of one at once reads, in GB."""

    always_gb: Positive
    active_billions: Positive
    experts_gb: float = Field(default=0.0, ge=0, le=1e6)
    hit: float = Field(default=0.0, ge=0, le=1)
    cache_bytes_token: float = Field(default=100_000.0, ge=0, le=1e9)
    cache_fixed_gb: float = Field(default=0.0, ge=0, le=1e6)


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
    """A kind of machine; a card by name, or its bandwidth and arithmetic, where models are computed.

    What stands behind `stages` counts only for a term; without watts its energy is unknown.
    """

    name: Name
    count: int = Field(default=1, ge=1, le=100)
    slots: int = Field(default=16, ge=1, le=256)
    card: str | None = None
    bandwidth_gb_s: Positive | None = None
    tflops: Positive | None = None
    efficiency: float = Field(default=0.7, gt=0, le=1)
    stages: dict[str, PlannedStage] = Field(min_length=1)
    mtbf_hours: float | None = Field(default=None, ge=1, le=1e6)
    mttr_hours: float = Field(default=8.0, gt=0, le=8760)
    watts_idle: float | None = Field(default=None, ge=0, le=1e6)
    watts_busy: Positive | None = None
    price: Positive | None = None

    @model_validator(mode="after")
    def _both(self) -> PlannedMachine:
        if (self.watts_idle is None) != (self.watts_busy is None):
            raise ValueError("write both watts_idle and watts_busy, or neither")
        if self.watts_idle is not None and self.watts_busy is not None and self.watts_busy < self.watts_idle:
            raise ValueError("watts_busy is less than watts_idle")
        if strange := sorted(self.stages.keys() - grading_stages(STAGES)):
            known = ", ".join(grading_stages(STAGES))
            raise ValueError(f"the stage '{strange[0]}' is unknown. Use {known}")
        return self


class PlannedCourse(Value):
    """Courses that are alike; they take the deadlines in turn."""

    name: Printable = Field(min_length=1, max_length=80)
    count: int = Field(default=1, ge=1, le=2000)
    students: int = Field(ge=1, le=100_000)
    deadlines: tuple[Deadline, ...] = Field(min_length=1)
    every_weeks: int = Field(default=1, ge=1, le=52)
    first_week: int = Field(default=2, ge=1, le=52)
    last_week: int = Field(default=52, ge=1, le=52)
    taking_part: float = Field(default=0.85, gt=0, le=1)
    submissions: float = Field(default=1.5, ge=1, le=20)
    regraded: float = Field(default=0.0, ge=0, le=5)
    work: float = Field(default=1.0, ge=0.01, le=20)
    opens_days: float = Field(default=7.0, ge=0.01, le=60)
    rush_minutes: float = Field(default=10.0, ge=0.1, le=1440)

    @model_validator(mode="after")
    def _in_order(self) -> PlannedCourse:
        if self.last_week < self.first_week:
            raise ValueError(f"last_week {self.last_week} is before first_week {self.first_week}")
        return self


class PlanFile(Value):
    """Machines, models that are not known by name, and for a term its courses and what else is assumed."""

    machines: tuple[PlannedMachine, ...] = ()
    models: dict[str, PlannedModel] = Field(default_factory=dict)
    courses: tuple[PlannedCourse, ...] = ()
    weeks: int = Field(default=14, ge=1, le=52)
    target_hours: Positive = 4.0
    price_per_kwh: float | None = Field(default=None, ge=0, le=1e6)
    currency: Printable = Field(default="EUR", max_length=8)
    retried: float = Field(default=0.02, ge=0, lt=0.9)

    @model_validator(mode="after")
    def _apart(self) -> PlanFile:
        for names in ([one.name for one in self.machines], [one.name for one in self.courses]):
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"'{name}' is there twice; use count or another name")
        for key, counts, most in (
            ("machines", [one.count for one in self.machines], MOST_MACHINES),
            ("courses", [one.count for one in self.courses], MOST_COURSES),
        ):
            if sum(counts) > most:
                raise ValueError(f"{sum(counts):,} {key} are too many. A plan takes at most {most:,}")
        return self


def _truth_value(values: object) -> str:
    """The key of the first true or false, which pydantic would read as a number; else empty."""
    named = (
        values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    )
    for key, value in named:
        if isinstance(value, bool):
            return str(key)
        if below := _truth_value(value):
            return f"{key}.{below}"
    return ""


def parse(text: str, where: str) -> PlanFile:
    """A file's text. Raises ConfigError with the key."""
    try:
        values = tomllib.loads(text)
        if key := _truth_value(values):
            raise ConfigError(f"{where}: {key}: write a number or a text, not true or false.")
        return PlanFile.model_validate(values)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where}: {error}.") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = "".join(f"{part}." for part in first["loc"])[:-1]
        problem = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{where}: {key}: {problem}." if key else f"{where}: {problem}.") from None


def read(path: Path) -> PlanFile:
    """A file. Raises ConfigError with the key."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}.") from None


def from_file(path: Path, sizes: Mapping[str, Size]) -> list[Machine]:
    """The machines of a file, at least one. Raises ConfigError with the key."""
    if not (found := machines_of(read(path), sizes)):
        raise ConfigError(f"{path}: machines: there is none. Add [[machines]].")
    return found


def machines_of(plan_file: PlanFile, sizes: Mapping[str, Size]) -> list[Machine]:
    """Machines with their speeds. Raises ConfigError with the key."""
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
    return SpeedProfile(alone_s, full_s, machine.slots, tokens=size.output)


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


DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def courses_of(plan_file: PlanFile) -> list[Course]:
    """Every course of a term by itself, with its deadlines in hours since the first Monday.

    Raises ConfigError where one has no deadline in the term, two have one name, or there is too much to play.
    """
    found = [
        _course(one, number, plan_file.weeks) for one in plan_file.courses for number in range(one.count)
    ]
    names: set[str] = set()
    for course in found:
        if not course.deadlines_h:
            raise ConfigError(
                f"The course {course.name} has no deadline within {plan_file.weeks} weeks. "
                "Change its first_week or every_weeks, or weeks of the term."
            )
        if course.name in names:
            raise ConfigError(f"Two courses are named {course.name}, one by its count. Change a name.")
        names.add(course.name)
    if (submissions := sum(map(expected_submissions, found))) > MOST_SUBMISSIONS:
        raise ConfigError(
            f"The courses have about {submissions:,.0f} submissions in the term. A plan takes at most "
            f"{MOST_SUBMISSIONS:,}: plan a part of the courses with a part of the machines."
        )
    return found


def expected_submissions(course: Course) -> float:
    """In the term, on average, those that are regraded included."""
    each = course.students * course.taking_part * course.submissions * (1 + course.regraded)
    return each * len(course.deadlines_h)


def _course(one: PlannedCourse, number: int, weeks: int) -> Course:
    day, time = one.deadlines[number % len(one.deadlines)].split(" ")
    hours, minutes = time.split(":")
    at_h = DAYS.index(day) * DAY_H + int(hours) + int(minutes) / 60
    # courses that share a day and have a deadline every few weeks do not all have it in the same week
    first = one.first_week + number // len(one.deadlines) % one.every_weeks
    return Course(
        one.name if one.count == 1 else f"{one.name} {number + 1}",
        one.students,
        tuple(
            (week - 1) * WEEK_H + at_h
            for week in range(first, min(one.last_week, weeks) + 1, one.every_weeks)
        ),
        one.taking_part,
        one.submissions,
        one.regraded,
        one.work,
        Rush(one.opens_days * DAY_H, one.rush_minutes / 60),
    )


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


def outputs_of(options: tuple[str, ...]) -> dict[str, int]:
    """Stage -> output tokens, of the option --output."""
    found = {}
    for one in options:
        stage, _, tokens = one.partition("=")
        if not re.fullmatch(r"[1-9][0-9]{0,5}", tokens):
            raise click.BadParameter(
                f"Write STAGE=TOKENS, such as analysis=1200, not '{one}'.", param_hint="--output"
            )
        found[stage] = int(tokens)
    return found


def advice(problem: str, unknown: list[str]) -> str:
    """Why there is no plan, and what to do."""
    if not unknown:
        return f"No plan: {problem}."
    return (
        f"No plan: {problem} at a known speed. Unknown: {'; '.join(unknown)}. Speeds are measured while "
        "machines work. Before that, set jobs_per_hour beside the model in config.toml, or describe machines "
        "in a file: see docs/how-to/administrators/planning.md."
    )


def in_words(hours: float) -> str:
    """A time in words."""
    if hours < 1 / 60:
        return f"{3600 * hours:.0f} s"
    return f"{60 * hours:.0f} min" if hours < 2 else f"{hours:.1f} h"
