"""Claims and leases of runs in Redis, with the heartbeats that machines leave there.

Redis' own clock is the only one used here; machines' clocks are not trusted. All of it may be lost at any
time: SQL decides what counts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, cast

from redis import Redis
from redis.exceptions import RedisError

from grading.broker import lua_scripts
from grading.broker.canaries import ANSWER
from grading.broker.celery_app import own_queue
from grading.broker.erasure import withdrawn
from grading.broker.heartbeats import (
    BACKLOG,
    DEAD_AFTER_S,
    Answer,
    Claim,
    Heartbeat,
    Lease,
    Look,
    believed,
    read_heartbeats,
    read_lease,
)
from grading.broker.lua_scripts import Script
from grading.broker.sentinels import connected_to, sentinels_of
from grading.config import redis_url

LEASES = "grader:leases:"
HEARTBEATS = "grader:heartbeats:"
DELIVERIES = "grader:deliveries:"
PLACES = "grader:places:"
OVER = "grader:over:"
HANDED = "grader:handed:"
CURRENT = "grader:current:"
SPEED_PROFILES = "grader:speed_profiles:"
"""And a machine's name: what belongs to that machine, which no other one may write.
`DELIVERIES` and `OVER` go on with a run, `PLACES` with a round, `HANDED` with another machine."""
RESULTS = "grader:results:"
DRAINED = "grader:drained"
WRITABLE = "grader:writable"
MAX_DELIVERIES = 3
KEEP_S = 86_400


class Leases:
    """Claims, leases and heartbeats over one Redis client, of these machines. Methods raise redis errors."""

    def __init__(self, client: Redis, machines: Iterable[str] = ()) -> None:
        self.redis = client
        self._names = dict.fromkeys(machines)
        self._claim = Script(client, lua_scripts.CLAIM)
        self._progress = Script(client, lua_scripts.PROGRESS)
        self._finish = Script(client, lua_scripts.FINISH)
        self._give_back = Script(client, lua_scripts.GIVE_BACK)
        self._take_away = Script(client, lua_scripts.TAKE_AWAY)
        self._unclaim = Script(client, lua_scripts.UNCLAIM)
        self._heartbeat = Script(client, lua_scripts.HEARTBEAT)
        self._waiting = Script(client, lua_scripts.WAITING)
        self._look = Script(client, lua_scripts.LOOK)

    @property
    def machines(self) -> list[str]:
        """All that are known: those of the configuration, and whoever this process speaks for."""
        return list(self._names)

    def seek(self) -> None:
        """Know of those, too, that send heartbeats without being in the configuration. Not for machines'
        users.
        """
        for key in self.redis.scan_iter(f"{HEARTBEATS}*", count=1000):
            self._names.setdefault(str(key).removeprefix(HEARTBEATS))

    def _with_others(self, machine: str) -> list[str]:
        """All machines, this one first."""
        self._names.setdefault(machine)
        return [machine, *(name for name in self._names if name != machine)]

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
        run_id, names = lease.run_id, self._with_others(lease.machine)
        answer = self._claim(
            keys=[
                _current(round_id, lease.stage),
                withdrawn(run_id),
                DRAINED,
                *(key for name in names for key in _of_claim(name, run_id, round_id, names)),
            ],
            args=[
                run_id,
                json.dumps({**asdict(lease), "round_id": round_id, "claim": uuid.uuid4().hex}),
                MAX_DELIVERIES,
                KEEP_S,
                int(hand_on),
                DEAD_AFTER_S,
                json.dumps(list(avoid)),
                int(alone),
                *names,
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
        self._names.setdefault(leases[0].machine)
        keys = [LEASES + leases[0].machine, *(key for pair in known for key in pair)]
        told = [part for one in leases for part in (one.run_id, json.dumps(asdict(one)))]
        return [bool(held) for held in cast("list[int]", self._progress(keys=keys, args=told))]

    def finish(self, lease: Lease) -> None:
        """End the lease of a run whose result was sent; its message may come again, it is not begun again."""
        keys = [LEASES + lease.machine, f"{OVER}{lease.machine}:{lease.run_id}"]
        self._finish(keys=keys, args=[lease.run_id, KEEP_S, lease.process])

    def give_back(self, lease: Lease) -> None:
        """End a process's lease of a run that is not done; one that another has by now stays."""
        self._give_back(keys=[LEASES + lease.machine], args=[lease.process, lease.run_id])

    def take_away(self, lease: Lease) -> None:
        """End a lease for the machine: it hears so when it tells of the run, and begins it no more."""
        keys = [LEASES + lease.machine, withdrawn(lease.run_id)]
        self._take_away(keys=keys, args=[lease.process, lease.run_id, KEEP_S])

    def unclaim(self, machine: str, process: str, run_id: str) -> bool:
        """As if this process had never claimed the run: others begin it, and its beginning does not count.

        False when another process has the run by now: then nothing changes.
        """
        return run_id in self._let_go(machine, process, [run_id], going=False)

    def hand_back(self, machine: str, process: str, run_ids: Sequence[str]) -> set[str]:
        """A process ends and others begin its runs: all in one step, and its own beginnings do not count.

        Returns those that are in nobody's hands now; others may have taken some of them already.
        """
        return self._let_go(machine, process, run_ids, going=True)

    def _let_go(self, machine: str, process: str, run_ids: Sequence[str], *, going: bool) -> set[str]:
        deliveries = [f"{DELIVERIES}{machine}:{run_id}" for run_id in run_ids]
        others = [LEASES + name for name in self._with_others(machine)[1:]]
        keys = [LEASES + machine, HEARTBEATS + machine, *deliveries, *others]
        free = cast("list[int]", self._unclaim(keys=keys, args=[process, int(going), KEEP_S, *run_ids]))
        return {run_id for run_id, one in zip(run_ids, free, strict=True) if one}

    def drain(self, machines: Iterable[str]) -> None:
        """These machines get nothing new, all others do.

        A name of `stage_out` is that of one stage of a machine, which it takes itself out of.
        """
        with self.redis.pipeline() as pipe:
            pipe.delete(DRAINED)
            for name in machines:
                pipe.hset(DRAINED, name, "1")
            pipe.execute()

    def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Say that a worker process is alive. True when its machine was drained."""
        content = {
            **asdict(heartbeat),
            "stages": {k: dict(v) for k, v in heartbeat.stages.items()},
            "engines": {k: dict(v) for k, v in heartbeat.engines.items()},
        }
        args = [heartbeat.process, json.dumps(content), heartbeat.machine]
        self._names.setdefault(heartbeat.machine)
        return bool(self._heartbeat(keys=[HEARTBEATS + heartbeat.machine, DRAINED], args=args))

    def stages_out(self, machine: str) -> frozenset[str]:
        """The stages that this machine does no more, while it does its others."""
        names = cast("list[str]", self.redis.hkeys(DRAINED))
        mine = stage_out(machine, "")
        return frozenset(name.removeprefix(mine) for name in names if name.startswith(mine))

    def leave(self, machine: str, process: str) -> None:
        """A worker process ends, or is found dead."""
        self.redis.hdel(HEARTBEATS + machine, process)

    def held(self) -> list[Lease]:
        """All leases."""
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            for name in self.machines:
                pipe.hgetall(LEASES + name)
            (seconds, micro), *found = pipe.execute()
        moment = seconds + micro / 1e6
        rows = ((name, *row) for name, of in zip(self.machines, found, strict=True) for row in of.items())
        return [lease for name, run, row in rows if (lease := read_lease(name, run, row, moment))]

    def held_of(self, run_ids: Sequence[str]) -> dict[str, Lease]:
        """The leases of these runs, where there are any."""
        if not run_ids:
            return {}
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            for name in self.machines:
                pipe.hmget(LEASES + name, list(run_ids))
            (seconds, micro), *found = pipe.execute()
        moment, held = seconds + micro / 1e6, {}
        for name, rows in zip(self.machines, found, strict=True):
            for run_id, row in zip(run_ids, rows, strict=True):
                if row and (lease := read_lease(name, run_id, row, moment)):
                    held[run_id] = lease
        return held

    def holders(self, run_id: str) -> frozenset[str]:
        """The machines that hold a lease of this run."""
        with self.redis.pipeline(transaction=False) as pipe:
            for name in self.machines:
                pipe.hexists(LEASES + name, run_id)
            return frozenset(name for name, held in zip(self.machines, pipe.execute(), strict=True) if held)

    def heartbeats(self) -> list[Heartbeat]:
        """The last heartbeat of every worker process that did not end in order."""
        return self.load([])[1]

    def load(
        self, queues: Sequence[str], *, writable: bool = False
    ) -> tuple[dict[str, int], list[Heartbeat]]:
        """Messages that wait in each queue, and the last heartbeats, in one round trip.

        With `writable`, raises redis errors when Redis answers but takes nothing, as `require_writable`.
        """
        names = self.machines
        with self.redis.pipeline(transaction=False) as pipe:
            if writable:
                pipe.set(WRITABLE, 1, ex=60)
            pipe.time()
            for name in names:
                pipe.hvals(HEARTBEATS + name)
            for queue in queues:
                pipe.llen(queue)
            (seconds, micro), *answers = pipe.execute()[int(writable) :]
        rows = dict(zip(names, answers, strict=False))
        lengths = dict(zip(queues, answers[len(names) :], strict=True))
        return lengths, read_heartbeats(rows, seconds + micro / 1e6)

    def look(self, queues: Sequence[str], mine: Container[str] | None = None) -> Look:
        """Heartbeats, queues and the backlog in one round trip; for machines, which look every second.

        The oldest message is looked at in those queues that are `mine` (nothing: in all); a machine may not
        read the others.
        """
        args = [part for name in queues for part in (name, int(mine is None or name in mine))]
        names = self.machines
        answer = cast(
            "list[Any]", self._look(keys=[BACKLOG, *(HEARTBEATS + name for name in names)], args=args)
        )
        seconds, micro, rows, told, *found = answer
        moment = int(seconds) + int(micro) / 1e6
        known = dict(zip(queues, found, strict=True))
        return Look(
            heartbeats=read_heartbeats(dict(zip(names, rows, strict=True)), moment),
            lengths={name: int(length) for name, (length, _) in known.items()},
            oldest_s={name: max(0.0, moment - float(sent)) for name, (_, sent) in known.items() if sent},
            backlog=believed(dict(zip(told[::2], told[1::2], strict=True)), moment),
        )

    def require_writable(self) -> None:
        """Raise redis errors when Redis answers but takes nothing: its memory or its disk may be full.

        Then machines cannot send heartbeats, either, and nothing that is begun could be sent.
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


def load_scripts(client: Redis) -> int:
    """Load what machines call, which may not load it; how many were missing. Raises redis errors."""
    called = (
        lua_scripts.CLAIM,
        lua_scripts.PROGRESS,
        lua_scripts.FINISH,
        lua_scripts.GIVE_BACK,
        lua_scripts.UNCLAIM,
        lua_scripts.HEARTBEAT,
        lua_scripts.LOOK,
        ANSWER,
    )
    return lua_scripts.load(client, called)


def load_scripts_on_replicas(url: str) -> int:
    """The same on each replica that answers and may be promoted: Redis replicates no scripts."""
    if not redis_url.watched(url):
        return 0
    address, loaded = redis_url.parse(url), 0
    for place in sentinels_of(address).replicas():
        with suppress(RedisError), connected_to(address, place) as client:
            loaded += load_scripts(client)
    return loaded


def stage_out(machine: str, stage: str) -> str:
    """How `Leases.drain` is told of one stage of a machine; no machine has a name with a space."""
    return f"{machine} {stage}"


def result_key(machine: str, run_id: str) -> str:
    """Where a machine leaves a result until the server has written it down."""
    return f"{RESULTS}{machine}:{run_id}"


def _current(round_id: str, stage: str) -> str:
    return f"{CURRENT}{round_id}:{stage}"


def _of_claim(machine: str, run_id: str, round_id: str, names: Sequence[str]) -> list[str]:
    """The keys of one machine that a claim looks at, as `lua_scripts.CLAIM` has them."""
    return [
        LEASES + machine,
        HEARTBEATS + machine,
        f"{DELIVERIES}{machine}:{run_id}",
        f"{PLACES}{machine}:{round_id}",
        f"{OVER}{machine}:{run_id}",
        own_queue(machine),
        *(f"{HANDED}{machine}:{name}" for name in names),
    ]
