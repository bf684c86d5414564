"""What tests of sharded models share: engines whose ranks are processes of this computer."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from cli.dev import embedded_redis
from tests.support.rank_server import forked
from tests.support.system import alive, until
from workers.machine.engines.sharded import rank_group
from workers.machine.engines.sharded.engine import ShardedEngine
from workers.machine.engines.sharded.rank_group import RankGroup


def addresses(ranks: int, *last: str) -> list[str]:
    """Free addresses for so many ranks here, and ranks with these addresses."""
    ports = set[int]()
    while len(ports) < ranks + len(last):
        ports.add(embedded_redis.free_port())
    hosts = [*("127.0.0.1" for _ in range(ranks)), *last]
    return [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]


@contextmanager
def ranks(count: int = 3, hosts: Sequence[str] = (), **settings: Any) -> Iterator[ShardedEngine]:
    """An engine of so many ranks, or of those at `hosts`; none of them is left afterwards."""
    with mock.patch.object(rank_group, "command", forked):
        engine = ShardedEngine(hosts=hosts or addresses(count), **{"slots": 4, **settings})
        try:
            yield engine
        finally:
            pids = engine.group.pids if engine.group else ()
            engine.close()
            gone(pids)


def group(engine: ShardedEngine) -> RankGroup:
    """Its ranks, which are there."""
    found = engine.group
    assert found is not None
    assert found.pids
    return found


def kill(engine: ShardedEngine, rank: int) -> tuple[int, ...]:
    """kill -9 of a rank; the process ids of all of them."""
    pids = group(engine).pids
    os.kill(pids[rank], signal.SIGKILL)
    return pids


def gone(pids: Sequence[int]) -> None:
    """Wait until none of these processes is there."""
    until(lambda: not any(map(alive, pids)), 60, f"processes {pids} end")
