"""Heartbeats: what machines report of themselves and their runs, and the backlog that they are sent."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from redis import Redis

from grading.broker import lua_scripts
from grading.broker.lua_scripts import Script
from grading.domain.messages import Message
from grading.scheduling.cluster_view import RoutingFacts

HEARTBEAT_S = 3.0
DEAD_AFTER_S = 10.0
MOST_DRAFT = 4_000
"""Characters of a draft, so that leases stay small."""

Answer = Literal["granted", "superseded", "exhausted", "elsewhere"]


@dataclass(frozen=True)
class Claim:
    """The answer to a machine that asks for a run; `machine` is where the run belongs if elsewhere."""

    answer: Answer
    machine: str = ""


@dataclass(frozen=True)
class Lease:
    """A run in the hands of a machine's process; ages in seconds by Redis' clock.

    Phases: `waiting` for its turn on the machine, `starting`, `queued` in the engine, `loading` the model,
    `reading` the prompt, `generating`.
    """

    run_id: str
    machine: str
    process: str
    stage: str
    phase: str = "starting"
    tokens: int = 0
    since_s: float = 0.0
    round_id: str = ""
    prompt_tokens: int = 0
    """Estimated."""
    idle_s: float = 0.0
    """Since phase or tokens last changed."""
    draft: str = ""
    """What is written so far, made readable, where the student may see it; at most MOST_DRAFT characters."""


@dataclass(frozen=True)
class Heartbeat(RoutingFacts):
    """What a worker process says of itself every 3 s. `age_s` by Redis' clock."""

    process: str
    machine: str
    slots: int
    busy: int
    stages: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """stage -> {"engine", "model"; where known, the model digest as "digest" and where its engine has it from
    as "source", "none" of an engine that has no model}"""
    embeddings: Mapping[str, str] = field(default_factory=dict)
    """Model -> the engine in which it makes embeddings for the gateway."""
    role: str = "primary"
    age_s: float = 0.0
    drained: bool = False
    """It has heard that it was taken out, and takes nothing new."""
    engines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """engine -> what it counts, by names that `metrics` has."""
    metrics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """name -> {"kind": "counter" or "gauge", "help"}, as the machine's engines declare them."""
    limit: int = 0
    """Generations at once that it takes now, as it measured to be best; 0: all slots."""
    limit_why: str = ""
    """Why so many, in one sentence."""
    gateway_requests: int = 0
    """Requests of other tools in hand, beside `busy`; see docs/how-to/administrators/gateway.md."""
    speed_profiles: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """stage -> the fields of a `grading.scheduling.cluster_view.SpeedProfile`."""
    circuits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """engine -> {"state": "open" or "probing", "since_s", "stages" and the fields of `reason`}; none that is
    closed."""
    takes: Sequence[str] = ()
    """Queues it listens to now."""
    why: str = ""
    """Why these, in a few words of English."""
    why_code: str = ""
    """Which message that is."""
    why_params: Mapping[str, Any] = field(default_factory=dict)
    """Of the message, as JSON."""
    runs_at: str = ""
    """Computer and process id, for people."""
    folder: str = ""
    """Of its code."""

    @property
    def alive(self) -> bool:
        """Whether it sent a heartbeat within the last 10 s."""
        return self.age_s <= DEAD_AFTER_S

    @property
    def broken(self) -> frozenset[str]:
        """Stages it cannot do now, as their engine or model is away."""
        found: set[str] = set()
        for engine, circuit in self.circuits.items():
            if circuit.get("state", "closed") != "closed":
                all_of = [stage for stage, place in self.stages.items() if place.get("engine") == engine]
                found.update(circuit.get("stages", all_of))
        return frozenset(found)


def reason(why: Message) -> dict[str, Any]:
    """The fields that say why."""
    return {"why": why.message, "why_code": why.code, "why_params": why.model_dump(mode="json")["params"]}


@dataclass(frozen=True)
class Look:
    """The cluster at one moment; ages by Redis' clock."""

    heartbeats: Sequence[Heartbeat]
    lengths: Mapping[str, int]
    """queue -> messages that wait there."""
    oldest_s: Mapping[str, float]
    """queue -> seconds since its oldest message was sent; only where one waits and says so."""
    backlog: Mapping[tuple[str, str], int]
    """(stage, priority) -> runs that still wait in SQL; empty when nobody told it lately."""


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _all(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(fits, value.values()))


def _shape(annotation: Any) -> Callable[[Any], bool]:
    """Of a field of `RoutingFacts`, by its type."""
    if get_origin(annotation) is Mapping:
        _, of = get_args(annotation)
        return lambda value: _all(value, SHAPE_OF_TYPE[of])
    return SHAPE_OF_TYPE[annotation]


SHAPE_OF_TYPE: dict[Any, Callable[[Any], bool]] = {
    str: _text,
    int: _number,
    float: _number,
    bool: lambda value: isinstance(value, bool),
}
SHAPES: dict[str, Callable[[Any], bool]] = {
    **{name: _shape(annotation) for name, annotation in get_type_hints(RoutingFacts).items()},
    **dict.fromkeys(
        ("process", "machine", "role", "limit_why", "why", "why_code", "runs_at", "folder"), _text
    ),
    **dict.fromkeys(("slots", "busy", "gateway_requests", "limit", "age_s"), _number),
    **dict.fromkeys(
        ("engines", "metrics", "speed_profiles"), lambda v: _all(v, lambda one: isinstance(one, dict))
    ),
    "stages": lambda v: _all(v, lambda one: _all(one, _text)),
    "embeddings": lambda v: _all(v, _text),
    "circuits": lambda v: _all(
        v, lambda one: isinstance(one, dict) and isinstance(one.get("stages", []), list | dict)
    ),
    "takes": lambda v: isinstance(v, list | dict),  # of an empty list Redis makes an empty object
    "drained": lambda v: isinstance(v, bool),
    "why_params": lambda v: isinstance(v, dict | list),  # of an empty object Redis may make an empty list
}
"""field -> whether a value of it makes sense."""
NEEDED = {"process", "machine", "slots", "busy"}
LEASE_SHAPES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("run_id", "machine", "process", "stage", "phase", "round_id", "draft"), _text),
    **dict.fromkeys(("tokens", "prompt_tokens"), lambda v: isinstance(v, int)),
    **dict.fromkeys(("since_s", "idle_s"), _number),
}
LEASE_NEEDED = {"process", "stage"}


def read_heartbeats(rows: Mapping[str, Iterable[str]], moment: float) -> list[Heartbeat]:
    """Of what makes no sense nothing is heard: one strange machine must not blind all who look.

    `rows` has what each machine wrote: it speaks for no other one, whatever it says.
    """
    found = (_heartbeat(machine, row, moment) for machine, theirs in rows.items() for row in theirs)
    return [heartbeat for heartbeat in found if heartbeat is not None]


def _heartbeat(machine: str, content: str, moment: float) -> Heartbeat | None:
    row = {**_object(content), "machine": machine}
    at = row.pop("at", 0.0)
    # a successor's clock may be behind: what a process of before left there is no younger for that
    age = abs(moment - at) if _number(at) else math.inf
    told = {
        key: value for key, value in _known(Heartbeat, {**row, "age_s": age}).items() if SHAPES[key](value)
    }
    return Heartbeat(**told) if told.keys() >= NEEDED else None


def read_lease(machine: str, run_id: str, content: str, moment: float) -> Lease | None:
    """Of a run in this machine's hands, as Redis keeps it; `moment` is Redis' time in seconds.

    None where it makes no sense.
    """
    row = _object(content)
    # machines of version 0.1 do not stamp movements: of them only the age is known
    since, moved = row.pop("since", moment), row.pop("moved", moment)
    told = {key: value for key, value in _known(Lease, row).items() if LEASE_SHAPES[key](value)}
    if not (told.keys() >= LEASE_NEEDED and _number(since) and _number(moved)):
        return None
    draft = told.get("draft", "")[:MOST_DRAFT]
    ages = {"since_s": abs(moment - since), "idle_s": abs(moment - moved)}
    return Lease(**{**told, "draft": draft, "run_id": run_id, "machine": machine, **ages})


def _object(content: str) -> dict[str, Any]:
    """Empty where it is none."""
    try:
        row = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _known(kind: type[Lease] | type[Heartbeat], row: Mapping[str, Any]) -> dict[str, Any]:
    """Only the fields of this version: while versions change, machines may already say more."""
    names = {one.name for one in fields(kind)}
    return {key: value for key, value in row.items() if key in names}


BACKLOG = "grader:backlog"
FRESH_S = 30.0
"""What was told longer ago is not believed: whoever releases work tells it every few seconds."""
KEEP_S = 300

Runs = Mapping[tuple[str, str], int]
"""(stage, priority) -> runs that wait in SQL and were not sent."""


class Backlog:
    """The backlog over one Redis client. Methods raise redis errors."""

    def __init__(self, client: Redis) -> None:
        self.redis = client
        self._tell = Script(client, lua_scripts.TELL_BACKLOG)

    def tell(self, runs: Runs) -> None:
        """Say how many runs of each stage and priority wait; it replaces what was said before."""
        told = [part for (stage, priority), n in runs.items() for part in (f"{stage} {priority}", n)]
        self._tell(keys=[BACKLOG], args=[KEEP_S, *told])

    def read(self) -> dict[tuple[str, str], int]:
        """What was told last; empty when that is too long ago."""
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hgetall(BACKLOG)
            (seconds, micro), rows = pipe.execute()
        return believed(cast("dict[str, str]", rows), seconds + micro / 1e6)


def believed(rows: Mapping[str, str], moment: float) -> dict[tuple[str, str], int]:
    """The hash as it lies in Redis, read at `moment` by Redis' clock; empty when it is old."""
    if not 0 <= moment - float(rows.get("at", "-inf")) <= FRESH_S:
        return {}
    found = {tuple(name.split(" ", 1)): int(count) for name, count in rows.items() if " " in name}
    return cast("dict[tuple[str, str], int]", found)
