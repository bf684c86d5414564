"""The keys in Redis that every process relies on: their types, and what to do about one of another type.

Machines' users cannot make one of another type; an operator or another program in the same Redis can. Whoever
reads it then gets an error, for ever, and nobody would be graded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from redis import Redis
from redis.exceptions import ResponseError

from grading.broker import celery_app
from grading.broker.canaries import CANARIES, PARTS
from grading.broker.gateway_requests import gateway_queues
from grading.broker.heartbeats import BACKLOG
from grading.broker.kept_digests import KEPT_DIGESTS
from grading.broker.leases import DRAINED, HEARTBEATS, LEASES, SPEED_PROFILES
from grading.broker.token_use import PENDING
from grading.config.settings import Config

PRIORITIES = ("", "\x06\x163", "\x06\x166", "\x06\x169")
"""What kombu adds to the name of a queue, for each priority a list."""
ASIDE = "grader:set-aside:"
ASIDE_S = 86_400
HANDED_OUT = ("unacked", "unacked_index")
"""What the server's own workers took and did not settle yet, by kombu's names."""


def expected(config: Config) -> dict[str, str]:
    """The type of each key of a fixed name, where the key is there."""
    names = [machine.name for machine in config.machines]
    stages = celery_app.stage_queues(list(config.stages))
    queues = [*stages, celery_app.STORE, *celery_app.SANDBOX_QUEUES]
    queues += [of(name) for name in names for of in (celery_app.own_queue, celery_app.inbox)]
    queues += [name for one in config.machines for name in gateway_queues(one.stages, one.embedders)]
    pairs = [HANDED_OUT, *(celery_app.handed_out(name) for name in names)]
    hashes = [
        DRAINED,
        BACKLOG,
        CANARIES,
        PARTS,
        PENDING,
        *(f + name for f in (LEASES, HEARTBEATS, SPEED_PROFILES, KEPT_DIGESTS) for name in names),
    ]
    return {
        **{f"{name}{priority}": "list" for name in queues for priority in PRIORITIES},
        **dict.fromkeys([*hashes, *(taken for taken, _ in pairs)], "hash"),
        **dict.fromkeys((times for _, times in pairs), "zset"),
    }


def of_another_type(client: Redis, types: Mapping[str, str]) -> dict[str, str]:
    """key -> its type, of those that have not the type they should have. Raises redis errors."""
    with client.pipeline(transaction=False) as pipe:
        for key in types:
            pipe.type(key)
        found = pipe.execute()
    return {key: kind for key, kind in zip(types, found, strict=True) if kind not in ("none", types[key])}


def set_aside(client: Redis, keys: Iterable[str]) -> None:
    """Give these other names, by which they are kept for a day. Raises redis errors."""
    for key in keys:
        try:
            client.rename(key, ASIDE + key)
        except ResponseError:
            if client.exists(key):
                raise
            continue  # another sweeper was first
        client.expire(ASIDE + key, ASIDE_S)


def forget_handed_out(client: Redis, machines: Iterable[str], older_s: float) -> int:
    """Forget what machines took so long ago and never settled: such runs are found by other means."""
    gone = 0
    for name in machines:
        taken, times = celery_app.handed_out(name)
        # by the clock of the machine, which kombu asks
        old = client.zrange(times, "-inf", f"{time.time() - older_s:.0f}", byscore=True)
        if old:
            with client.pipeline() as pipe:
                pipe.hdel(taken, *old)
                pipe.zrem(times, *old)
                gone += int(pipe.execute()[1])
    return gone
