"""What lives in Redis beside the queues: claims, leases and the machines' beats.

Redis' own clock is the only one used here; machines' clocks are not trusted. All of it may be lost at any
time: SQL decides what counts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, cast

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from grading import lua
from grading.backlog import BACKLOG, believed
from grading.queue import own_queue
from grading.withdrawal import withdrawn

LEASES = "grader:leases"
MACHINES = "grader:machines"
PACES = "grader:paces:"
"""And a machine's name: what it learned of its own speeds."""
DRAINED = "grader:drained"
WRITABLE = "grader:writable"
BEAT_S = 3.0
DEAD_AFTER_S = 10.0
MAX_DELIVERIES = 3
KEEP_S = 86_400
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
class Beat:
    """What a worker process says of itself every 3 s. `age_s` by Redis' clock."""

    process: str
    machine: str
    slots: int
    busy: int
    stages: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """stage -> {"engine", "model", and where it is known "digest" of the weights}"""
    role: str = "primary"
    age_s: float = 0.0
    drained: bool = False
    """It has heard that it was taken out, and takes nothing new."""
    engines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """engine -> what it counts, by the names in docs/observability.md."""
    limit: int = 0
    """Generations at once that it takes now, as it measured to be best; 0: all slots."""
    limit_why: str = ""
    """Why so many, in one sentence."""
    running: Mapping[str, int] = field(default_factory=dict)
    """stage -> runs in hand."""
    left: Mapping[str, float] = field(default_factory=dict)
    """stage -> jobs' worth of work that is left of those."""
    paces: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """stage -> the fields of a `grading.cluster.view.Pace`."""
    load_s: Mapping[str, float] = field(default_factory=dict)
    """stage -> seconds until its model is loaded."""
    circuits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """engine -> {"state": "open" or "probing", "why", "since_s", "stages"}; none that is closed."""
    reserved: str = ""
    joins_after_s: float = 0.0
    takes: Sequence[str] = ()
    """Queues it listens to now."""
    why: str = ""
    """Why these, in a few words."""

    @property
    def alive(self) -> bool:
        """Whether it beat within the last 10 s."""
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


@dataclass(frozen=True)
class Look:
    """The cluster at one moment; ages by Redis' clock."""

    beats: Sequence[Beat]
    lengths: Mapping[str, int]
    """queue -> messages that wait there."""
    oldest_s: Mapping[str, float]
    """queue -> seconds since its oldest message was sent; only where one waits and says so."""
    backlog: Mapping[tuple[str, str], int]
    """(stage, priority) -> runs that still wait in SQL; empty when nobody told it lately."""


def connect(url: str) -> Redis:
    """A client that gives up after seconds, not minutes. Connects at the first use."""
    return Redis.from_url(
        url,
        socket_connect_timeout=5,
        socket_timeout=5,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 3),
        retry_on_error=[RedisConnectionError, RedisTimeoutError],
        decode_responses=True,
    )


class Leases:
    """Claims, leases and beats over one Redis client. Methods raise redis errors."""

    def __init__(self, client: Redis) -> None:
        self.redis = client
        self._claim = client.register_script(lua.CLAIM)
        self._progress = client.register_script(lua.PROGRESS)
        self._finish = client.register_script(lua.FINISH)
        self._beat = client.register_script(lua.BEAT)
        self._waiting = client.register_script(lua.WAITING)
        self._look = client.register_script(lua.LOOK)

    def make_current(self, runs: Mapping[tuple[str, str], str]) -> float:
        """Say which run of each (round, stage) counts from now on. Returns Redis' time in seconds."""
        with self.redis.pipeline(transaction=False) as pipe:
            for (round_id, stage), run_id in runs.items():
                pipe.set(_current(round_id, stage), run_id, ex=KEEP_S)
            pipe.time()
            seconds, micro = pipe.execute()[-1]
        return float(seconds + micro / 1e6)

    def claim(
        self,
        lease: Lease,
        round_id: str,
        *,
        hand_on: bool = False,
        avoid: Sequence[str] = (),
        alone: bool = False,
    ) -> Claim:
        """Ask for a run before working on it.

        With `hand_on` the answer may be that it belongs elsewhere, if a live machine could do it: this one
        is to be avoided or was drained, or has another stage of the round while that one has a free slot. A
        run that will be `alone` belongs where it has to wait for least.
        """
        run_id, stage = lease.run_id, lease.stage
        answer = self._claim(
            keys=[
                LEASES,
                _current(round_id, stage),
                f"grader:deliveries:{run_id}",
                f"grader:places:{round_id}",
                MACHINES,
                DRAINED,
            ],
            args=[
                run_id,
                json.dumps({**asdict(lease), "round_id": round_id, "claim": uuid.uuid4().hex}),
                MAX_DELIVERIES,
                KEEP_S,
                int(hand_on),
                DEAD_AFTER_S,
                own_queue(""),
                "grader:handed:",
                json.dumps(list(avoid)),
                int(alone),
            ],
        )
        word, _, machine = cast(str, answer).partition(" ")
        return Claim(cast(Answer, word), machine)

    def progress(self, lease: Lease) -> bool:
        """Tell how far a run is; False when its lease was taken away. A Redis that forgot it learns it."""
        return self.tell([lease])[0]

    def tell(self, leases: Sequence[Lease]) -> list[bool]:
        """`progress` of many runs of one process in one round trip; what did not change is not written."""
        if not leases:
            return []
        known = ((_current(one.round_id, one.stage), withdrawn(one.run_id)) for one in leases)
        keys = [LEASES, *(key for pair in known for key in pair)]
        told = [part for one in leases for part in (one.run_id, json.dumps(asdict(one)))]
        return [bool(held) for held in cast("list[int]", self._progress(keys=keys, args=[KEEP_S, *told]))]

    def finish(self, lease: Lease) -> None:
        """End the lease of a run whose result was sent; its message may come again, it is not begun again."""
        keys = [LEASES, _current(lease.round_id, lease.stage)]
        self._finish(keys=keys, args=[lease.run_id, KEEP_S])

    def give_back(self, run_id: str) -> None:
        """End the lease of a run that is not done."""
        self.redis.hdel(LEASES, run_id)

    def unclaim(self, run_id: str) -> None:
        """As if the run had never been claimed: others begin it, and this beginning does not count."""
        with self.redis.pipeline() as pipe:
            pipe.hdel(LEASES, run_id)
            pipe.decr(f"grader:deliveries:{run_id}")
            pipe.expire(f"grader:deliveries:{run_id}", KEEP_S)
            pipe.execute()

    def hand_back(self, process: str, run_ids: Sequence[str]) -> None:
        """A process ends and others begin its runs: all in one step, and its own beginnings do not count."""
        with self.redis.pipeline() as pipe:
            pipe.hdel(MACHINES, process)
            for run_id in run_ids:
                pipe.hdel(LEASES, run_id)
                pipe.decr(f"grader:deliveries:{run_id}")
                pipe.expire(f"grader:deliveries:{run_id}", KEEP_S)
            pipe.execute()

    def drain(self, machines: Iterable[str]) -> None:
        """These machines get nothing new, all others do."""
        with self.redis.pipeline() as pipe:
            pipe.delete(DRAINED)
            for name in machines:
                pipe.hset(DRAINED, name, "1")
            pipe.execute()

    def beat(self, beat: Beat) -> bool:
        """Say that a worker process is alive. True when its machine was drained."""
        content = {
            **asdict(beat),
            "stages": {k: dict(v) for k, v in beat.stages.items()},
            "engines": {k: dict(v) for k, v in beat.engines.items()},
        }
        args = [beat.process, json.dumps(content), beat.machine]
        return bool(self._beat(keys=[MACHINES, DRAINED], args=args))

    def leave(self, process: str) -> None:
        """A worker process ends, or is found dead."""
        self.redis.hdel(MACHINES, process)

    def held(self) -> list[Lease]:
        """All leases."""
        moment = self.time()
        rows = cast("dict[str, str]", self.redis.hgetall(LEASES))
        return [_lease(run_id, json.loads(row), moment) for run_id, row in rows.items()]

    def held_of(self, run_ids: Sequence[str]) -> dict[str, Lease]:
        """The leases of these runs, where there are any."""
        if not run_ids:
            return {}
        moment = self.time()
        rows = cast("list[str | None]", self.redis.hmget(LEASES, list(run_ids)))
        return {r: _lease(r, json.loads(row), moment) for r, row in zip(run_ids, rows, strict=True) if row}

    def beats(self) -> list[Beat]:
        """The last beat of every worker process that did not end in order."""
        return self.load([])[1]

    def load(self, queues: Sequence[str]) -> tuple[dict[str, int], list[Beat]]:
        """Messages that wait in each queue, and the last beats, in one round trip."""
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hgetall(MACHINES)
            for queue in queues:
                pipe.llen(queue)
            (seconds, micro), rows, *lengths = pipe.execute()
        return dict(zip(queues, lengths, strict=True)), _beats(rows.values(), seconds + micro / 1e6)

    def look(self, queues: Sequence[str], mine: Container[str] | None = None) -> Look:
        """Beats, queues and the backlog in one round trip; for machines, which look every second.

        The oldest message is looked at in those queues that are `mine` (nothing: in all); a machine may not
        read the others.
        """
        args = [part for name in queues for part in (name, int(mine is None or name in mine))]
        answer = cast("list[Any]", self._look(keys=[MACHINES, BACKLOG], args=args))
        seconds, micro, rows, told, *found = answer
        moment = int(seconds) + int(micro) / 1e6
        known = dict(zip(queues, found, strict=True))
        return Look(
            beats=_beats(rows, moment),
            lengths={name: int(length) for name, (length, _) in known.items()},
            oldest_s={name: max(0.0, moment - float(sent)) for name, (_, sent) in known.items() if sent},
            backlog=believed(dict(zip(told[::2], told[1::2], strict=True)), moment),
        )

    def require_writable(self) -> None:
        """Raise redis errors when Redis answers but takes nothing: its memory or its disk may be full.

        Then machines cannot beat, either, and nothing that is begun could be sent.
        """
        self.redis.set(WRITABLE, 1, ex=60)

    def time(self) -> float:
        """Redis' clock in seconds."""
        seconds, micro = self.redis.time()
        return seconds + micro / 1e6

    def uptime_s(self) -> float:
        """How long Redis has been up."""
        return float(self.redis.info("server")["uptime_in_seconds"])

    def lengths(self, queues: Sequence[str]) -> dict[str, int]:
        """Messages that wait in each queue."""
        with self.redis.pipeline(transaction=False) as pipe:
            for queue in queues:
                pipe.llen(queue)
            return dict(zip(queues, pipe.execute(), strict=True))

    def waiting(self, queues: Sequence[str]) -> set[str]:
        """Task ids that wait in the queues."""
        return set(cast("list[str]", self._waiting(keys=list(queues), args=[])))


def _current(round_id: str, stage: str) -> str:
    return f"grader:current:{round_id}:{stage}"


def _number(value: Any) -> bool:
    return isinstance(value, int | float)


def _all(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(fits, value.values()))


SHAPES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        ("process", "machine", "role", "limit_why", "reserved", "why"), lambda v: isinstance(v, str)
    ),
    **dict.fromkeys(("slots", "busy", "limit", "joins_after_s", "age_s"), _number),
    **dict.fromkeys(("running", "left", "load_s"), lambda v: _all(v, _number)),
    **dict.fromkeys(("stages", "engines", "paces"), lambda v: _all(v, lambda one: isinstance(one, dict))),
    "circuits": lambda v: _all(
        v, lambda one: isinstance(one, dict) and isinstance(one.get("stages", []), list | dict)
    ),
    "takes": lambda v: isinstance(v, list | dict),  # of an empty list Redis makes an empty object
    "drained": lambda v: isinstance(v, bool),
}
"""field -> whether a value of it makes sense."""
NEEDED = {"process", "machine", "slots", "busy"}


def _beats(rows: Iterable[str], moment: float) -> list[Beat]:
    """Of what makes no sense nothing is heard: one strange machine must not blind all who look."""
    return [beat for row in rows if (beat := _beat(json.loads(row), moment)) is not None]


def _beat(row: dict[str, Any], moment: float) -> Beat | None:
    age = max(0.0, moment - row.pop("at", 0.0))
    told = {
        key: value
        for key, value in _known(Beat, {**row, "age_s": age}).items()
        if key not in SHAPES or SHAPES[key](value)
    }
    return Beat(**told) if told.keys() >= NEEDED else None


def _lease(run_id: str, row: dict[str, Any], moment: float) -> Lease:
    since = row.pop("since", moment)
    # machines of version 0.1 do not stamp movements: of them only the age is known
    ages = {"since_s": max(0.0, moment - since), "idle_s": max(0.0, moment - row.pop("moved", moment))}
    return Lease(**_known(Lease, {**row, "run_id": run_id, **ages}))


def _known(kind: type[Lease] | type[Beat], row: Mapping[str, Any]) -> dict[str, Any]:
    """Only the fields of this version: while versions change, machines may already say more."""
    names = {one.name for one in fields(kind)}
    return {key: value for key, value in row.items() if key in names}
