"""What lives in Redis beside the queues: claims, leases and the machines' beats.

Redis' own clock is the only one used here; machines' clocks are not trusted. All of it may be lost at any
time: SQL decides what counts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from redis import Redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from grading import lua
from grading.backlog import BACKLOG, believed
from grading.beats import DEAD_AFTER_S, Answer, Beat, Claim, Lease, Look, read_beats, read_lease
from grading.queue import own_queue
from grading.withdrawal import withdrawn

LEASES = "grader:leases"
MACHINES = "grader:machines"
PACES = "grader:paces:"
"""And a machine's name: what it learned of its own speeds."""
DRAINED = "grader:drained"
WRITABLE = "grader:writable"
MAX_DELIVERIES = 3
KEEP_S = 86_400


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
        self._give_back = client.register_script(lua.GIVE_BACK)
        self._unclaim = client.register_script(lua.UNCLAIM)
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
        self._finish(keys=keys, args=[lease.run_id, KEEP_S, lease.process])

    def give_back(self, run_id: str, process: str) -> None:
        """End this process's lease of a run that is not done; one that another has by now stays."""
        self._give_back(keys=[LEASES], args=[process, run_id])

    def unclaim(self, run_id: str, process: str) -> bool:
        """As if this process had never claimed the run: others begin it, and its beginning does not count.

        False when another process has the run by now: then nothing changes.
        """
        return run_id in self._let_go(process, [run_id], going=False)

    def hand_back(self, process: str, run_ids: Sequence[str]) -> set[str]:
        """A process ends and others begin its runs: all in one step, and its own beginnings do not count.

        Returns those that are in nobody's hands now; others may have taken some of them already.
        """
        return self._let_go(process, run_ids, going=True)

    def _let_go(self, process: str, run_ids: Sequence[str], *, going: bool) -> set[str]:
        deliveries = [f"grader:deliveries:{run_id}" for run_id in run_ids]
        keys = [LEASES, MACHINES, *deliveries]
        free = cast("list[int]", self._unclaim(keys=keys, args=[process, int(going), KEEP_S, *run_ids]))
        return {run_id for run_id, one in zip(run_ids, free, strict=True) if one}

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
        return [read_lease(run_id, row, moment) for run_id, row in rows.items()]

    def held_of(self, run_ids: Sequence[str]) -> dict[str, Lease]:
        """The leases of these runs, where there are any."""
        if not run_ids:
            return {}
        moment = self.time()
        rows = cast("list[str | None]", self.redis.hmget(LEASES, list(run_ids)))
        return {r: read_lease(r, row, moment) for r, row in zip(run_ids, rows, strict=True) if row}

    def holders(self, run_id: str) -> frozenset[str]:
        """The machines that hold a lease of this run."""
        return frozenset(lease.machine for lease in self.held_of([run_id]).values())

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
        return dict(zip(queues, lengths, strict=True)), read_beats(rows.values(), seconds + micro / 1e6)

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
            beats=read_beats(rows, moment),
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
