"""The status of machines, as their heartbeats report it: for routing, pages, the API and commands."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ValidationError

from grading.broker.canaries import OVERDUE_S
from grading.broker.heartbeats import Heartbeat
from grading.domain.messages import Message, verbatim
from grading.domain.model_digests import Change, Difference, WeightsWarning, changes, claims, differing
from grading.domain.stages import grading_stages
from grading.scheduling.cluster_view import Peer, SpeedProfile

MAX_METRICS = 64
"""Of one machine; more are left out."""
METRIC_NAME = re.compile(r"(?!.*_(total|created|sum|count|bucket|info)$)[a-z][a-z0-9_]{0,59}")
MAX_HELP = 200


@dataclass(frozen=True)
class EngineMetric:
    """A number that an engine reports, as the engine declares it."""

    kind: Literal["counter", "gauge"]
    help: str


@dataclass(frozen=True)
class MachineState:
    """A machine of the configuration as its heartbeats tell."""

    name: str
    role: str
    slots: int
    stages: Mapping[str, Mapping[str, str]]
    """stage -> {"engine", "model", and, where known, the model digest as "digest"}"""
    alive: bool = False
    busy: int = 0
    gateway_requests: int = 0
    """Slots that requests of other tools have, beside those that are busy."""
    heartbeat_age_s: float | None = None
    drained: bool = False
    """It was taken out: it gets nothing new."""
    canary_age_s: float | None = None
    """How long its last canary waits for an answer; 0 when it was answered, nothing when none was sent."""
    engines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """engine -> what it counts, all live processes of the machine together."""
    metrics: Mapping[str, EngineMetric] = field(default_factory=dict)
    """What its engines may count, by name."""
    heartbeat: Heartbeat | None = None
    """The last word of its newest process, with speeds, circuits and what it listens to."""

    @property
    def hung(self) -> bool:
        """It sends heartbeats and has a free slot, but takes no work."""
        waits = (self.canary_age_s or 0.0) > OVERDUE_S
        return self.alive and not self.drained and waits and self.busy + self.gateway_requests < self.slots


def machines_that_differ(states: Sequence[MachineState]) -> tuple[Difference, ...]:
    """The models that live machines claim to share and have with different weights."""
    return differing(one for state in states if state.alive for one in claims(state.name, state.stages))


def changed_models(states: Sequence[MachineState]) -> tuple[Change, ...]:
    """The models of live machines that have other weights than before."""
    return tuple(one for state in states if state.alive for one in changes(state.name, state.stages))


def weights_warnings(states: Sequence[MachineState]) -> tuple[WeightsWarning, ...]:
    """All there is to say of live machines' weights, the worst first."""
    return (*changed_models(states), *machines_that_differ(states))


def with_heartbeats(machine: MachineState, heartbeats: Sequence[Heartbeat]) -> MachineState:
    """A machine of the configuration with what its processes said last."""
    mine = [one for one in heartbeats if one.machine == machine.name]
    if not mine:
        return machine
    newest = min(mine, key=lambda heartbeat: heartbeat.age_s)
    configured = [*machine.stages, *newest.stages]  # Redis keeps no order
    return MachineState(
        name=machine.name,
        role=machine.role,
        slots=newest.slots,
        stages={stage: newest.stages[stage] for stage in sorted(newest.stages, key=configured.index)},
        alive=newest.alive,
        busy=sum(heartbeat.busy for heartbeat in mine if heartbeat.alive),
        gateway_requests=sum(heartbeat.gateway_requests for heartbeat in mine if heartbeat.alive),
        heartbeat_age_s=newest.age_s,
        drained=newest.drained,
        engines=_counted([one for one in mine if one.alive]),
        metrics=_declared([one for one in mine if one.alive]),
        heartbeat=newest,
    )


def _declared(heartbeats: Sequence[Heartbeat]) -> dict[str, EngineMetric]:
    """Bounded in number and size: machines are not trusted."""
    found: dict[str, EngineMetric] = {}
    for name, said in sorted(
        (pair for heartbeat in heartbeats for pair in heartbeat.metrics.items()), key=lambda pair: pair[0]
    ):
        kind, text = said.get("kind"), said.get("help")
        fits = METRIC_NAME.fullmatch(name) and kind in ("counter", "gauge") and isinstance(text, str)
        if fits and len(found) < MAX_METRICS:
            found[name] = EngineMetric(
                "counter" if kind == "counter" else "gauge", " ".join(str(text).split())[:MAX_HELP]
            )
    return found


def _counted(heartbeats: Sequence[Heartbeat]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for heartbeat in heartbeats:
        for engine, counters in heartbeat.engines.items():
            sums = found.setdefault(engine, {})
            for name, value in counters.items():
                if isinstance(value, int | float):  # a heartbeat is a stranger's word
                    sums[name] = sums.get(name, 0.0) + value
    return found


def takes_part(heartbeat: Heartbeat) -> bool:
    """Whether this machine may take work."""
    return heartbeat.alive and not heartbeat.drained


def read_speed_profile(told: Mapping[str, float]) -> SpeedProfile | None:
    """A speed as a heartbeat tells it; nothing where that makes no sense."""
    try:
        values = {name: float(value) for name, value in told.items()}
        full = int(values.pop("full"))
        profile = SpeedProfile(full=full, **values)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None  # a heartbeat is a stranger's word, perhaps of another version
    return profile if _sane(profile) else None


def _sane(profile: SpeedProfile) -> bool:
    figures = (profile.alone_s, profile.full_s, profile.health)
    return profile.full >= 1 and all(math.isfinite(f) and f > 0 for f in figures)


def peer(heartbeat: Heartbeat) -> Peer:
    """A machine as its heartbeat tells; one of an earlier version tells no speeds, they are guessed."""
    able = grading_stages(s for s in heartbeat.stages if s not in heartbeat.broken)
    running = heartbeat.running
    if heartbeat.busy and not running and able:
        running = {able[0]: heartbeat.busy}  # an earlier version does not say at what, but it is busy
    profiles = {
        s: profile
        for s in able
        if (profile := read_speed_profile(heartbeat.speed_profiles.get(s, {}))) is not None
    }
    return Peer(
        name=heartbeat.machine,
        slots=heartbeat.limit or heartbeat.slots,
        stages=able,
        speed_profiles=profiles,
        # what machines do in the background makes room at once
        **{**heartbeat.facts(), "running": {stage: running[stage] for stage in grading_stages(running)}},
    )


USUAL = 0.1
"""A speed so near to the usual one is not worth a word."""
RESERVED = {"batch": "Accepts batch work only.", "testing": "Accepts only work that is sent to it directly."}
MOST_AN_HOUR = 10_000
"""Beyond that no model is at work, and the figure says nothing."""
FEW_AN_HOUR = 10
WORDS = 200
"""Of what a machine says in its own words."""


@dataclass(frozen=True)
class StageSpeed:
    """How fast a machine does a stage, as it measured itself."""

    stage: str
    jobs_per_hour: float
    """With as many at once as it takes now, as fast as it is now."""
    alone_s: float
    """Seconds of a job by itself, at usual speed."""
    full_s: float
    """Seconds of a job among `full` at once."""
    full: int
    health: float
    """Speed of the last half minute over what is usual."""
    tokens: float
    """Written for a usual job; 0: not known."""
    measured: bool
    """Else it is a first guess."""


@dataclass(frozen=True)
class CircuitTold:
    """An engine that gets no work for now."""

    engine: str
    state: str
    why: Message
    stages: tuple[str, ...]
    since_s: float | None

    @property
    def words(self) -> str:
        """As a sentence."""
        what = f" ({', '.join(self.stages)})" if self.stages else ""
        doing = "is being tried" if self.state == "probing" else "gets no work"
        why = self.why.message.rstrip(".")
        since = f" for {span(self.since_s)}" if self.since_s and self.state == "open" else ""
        return f"{self.engine}{what} {doing}{since}" + (f": {why}." if why else ".")


@dataclass(frozen=True)
class Condition:
    """What a machine's heartbeat says beside its load. Empty for one that sends no heartbeats."""

    limit: int = 0
    """Generations at once that it takes now; 0: not told."""
    reserved: str = ""
    joins_after_s: float = 0.0
    speeds: tuple[StageSpeed, ...] = ()
    loading_s: dict[str, float] = field(default_factory=dict)
    """stage -> about so long its model takes to load; only where it is not loaded."""
    circuits: tuple[CircuitTold, ...] = ()
    takes: tuple[str, ...] = ()
    """Queues it listens to now."""
    why: Message = field(default_factory=Message)
    """Why these."""
    gateway_requests: int = 0
    """Requests of other tools in hand."""

    @property
    def gateway_words(self) -> str:
        """Only where there are any."""
        return (
            ""
            if not self.gateway_requests
            else "1 gateway request"
            if self.gateway_requests == 1
            else f"{self.gateway_requests} gateway requests"
        )

    @property
    def health(self) -> float | None:
        """Of the machine as a whole; nothing as long as it has measured nothing."""
        return min((one.health for one in self.speeds if one.measured), default=None)

    @property
    def health_words(self) -> str:
        """Only where there is something to say."""
        health = self.health
        if health is None or abs(health - 1.0) <= USUAL:
            return ""
        return f"Runs at {100 * health:.0f} % of its usual speed."

    @property
    def notes(self) -> tuple[str, ...]:
        """What is out of the ordinary, a sentence each."""
        return tuple(filter(None, self._notes()))

    def _notes(self) -> Iterator[str]:
        yield self.health_words
        yield from (one.words for one in self.circuits)
        for stage, seconds in self.loading_s.items():
            yield f"The model of {stage} is not loaded; that takes about {span(seconds)}."
        yield RESERVED.get(self.reserved, "")


def condition(state: MachineState) -> Condition:
    """Of a machine; what makes no sense in its heartbeat is left out."""
    heartbeat = state.heartbeat
    if heartbeat is None or not state.alive:
        return Condition()
    limit = min(max(0, heartbeat.limit), heartbeat.slots)
    return Condition(
        limit=limit,
        reserved=heartbeat.reserved,
        joins_after_s=heartbeat.joins_after_s,
        speeds=_speeds(heartbeat, limit or heartbeat.slots),
        loading_s={stage: seconds for stage, seconds in heartbeat.load_s.items() if seconds >= 1},
        circuits=_circuits(heartbeat),
        takes=tuple(str(name) for name in heartbeat.takes),
        why=_coded(heartbeat.why, heartbeat.why_code, heartbeat.why_params),
        gateway_requests=state.gateway_requests if state.gateway_requests > 0 else 0,
    )


def _speeds(heartbeat: Heartbeat, at_once: int) -> tuple[StageSpeed, ...]:
    told = {stage: read_speed_profile(profile) for stage, profile in heartbeat.speed_profiles.items()}
    return tuple(
        StageSpeed(
            stage=stage,
            jobs_per_hour=3600 * profile.rate(at_once),
            alone_s=profile.alone_s,
            full_s=profile.full_s,
            full=profile.full,
            health=profile.health,
            tokens=profile.tokens,
            measured=profile.seen >= 1,
        )
        for stage, profile in told.items()
        if profile is not None
    )


def _circuits(heartbeat: Heartbeat) -> tuple[CircuitTold, ...]:
    return tuple(
        CircuitTold(
            engine[:WORDS],
            str(one.get("state", "open")),
            _coded(one.get("why"), one.get("why_code"), one.get("why_params")),
            tuple(str(stage) for stage in one.get("stages", ())),
            float(one["since_s"]) if isinstance(one.get("since_s"), int | float) else None,
        )
        for engine, one in heartbeat.circuits.items()
        if one.get("state") != "closed"
    )


def _coded(english: object, code: object, params: object) -> Message:
    """What a machine says; without a code where that or the parameters make no sense."""
    words = str(english or "")[:WORDS]
    try:
        return Message.model_validate(
            {"code": code or "", "params": params if isinstance(params, dict) else {}, "message": words}
        )
    except ValidationError:
        return verbatim(words)


def an_hour(rate: float) -> str:
    """Jobs an hour, no finer and no further than anybody can want to know."""
    if rate > MOST_AN_HOUR:
        return f"over {MOST_AN_HOUR:,}"
    return f"{rate:,.0f}" if rate >= FEW_AN_HOUR else f"{rate:.1f}"


def duration(seconds: float) -> str:
    """Whole seconds of a job, without their unit."""
    return f"{seconds:,.0f}" if seconds >= 1 else "under 1"


def span(seconds: float) -> str:
    """Seconds in a few characters."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.0f} h"
