"""Ranks under load for a minute: who joins, leaves and is lost changes no token of anybody else."""

from __future__ import annotations

import os
import random
import shlex
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from cli.dev.embedded_redis import free_port
from grading.domain.errors import Cancelled, EngineUnreachable
from tests.faults.harness.netns import HERE, THERE, permitted, running_link
from tests.support.engines import ENDLESS, SCHEMA, SYSTEM, Heard, ask, quiet
from tests.support.sharded import addresses, gone, group, kill, ranks
from workers.machine.engines import Request
from workers.machine.engines.base import Cancel
from workers.machine.engines.mlx.engine import MlxEngine
from workers.machine.engines.sharded.engine import ShardedEngine
from workers.machine.engines.sharded.rank_handle import PROGRAM

REQUESTS = 120
AT_ONCE = 7
"""Callers, for four slots."""
LOSSES = 3


def asked(model: str, rng: random.Random, number: int) -> Request:
    """A request of one of four classes."""
    bound = rng.random() < 0.3
    return ask(
        model,
        system=SYSTEM * rng.choice((1, 1, 2)) + f" class {rng.randrange(4)}",
        user=f"+ 1| work {number} " + "word " * rng.randrange(60),
        schema=SCHEMA if bound else {},
        max_output_tokens=60 if bound else rng.choice((3, 10, 25)),
        deadline_s=300.0,
    )


def outcome(pool: ShardedEngine, direct: MlxEngine, request: Request, cancel_s: float | None) -> str:
    """What comes of a request that is perhaps cancelled."""
    cancel = Cancel()
    timer = threading.Timer(cancel_s, cancel.cancel) if cancel_s is not None else None
    if timer is not None:
        timer.start()
    try:
        text = pool.generate(replace(request, cancel=cancel), quiet).text
    except Cancelled:
        return "cancelled"
    except EngineUnreachable:
        return "lost"
    finally:
        if timer is not None:
            timer.cancel()
    return "same" if text == direct.generate(request, quiet).text else "different"


def loaded(model: Path, count: int, work: Callable[[ShardedEngine, MlxEngine], Counter[str]]) -> Counter[str]:
    """What comes of some work on a pool whose prefix cache is soon full."""
    direct = MlxEngine(slots=4, prefill_step=64)
    try:
        with ranks(count, prefill_step=64, prefix_cache_tokens=1200) as pool:
            pool.load(str(model))
            return work(pool, direct)
    finally:
        direct.close()


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [2, 3])
def test_the_tokens_are_those_of_one_process_whoever_comes_and_goes(qwen2: Path, count: int) -> None:
    rng = random.Random(count)

    def work(pool: ShardedEngine, direct: MlxEngine) -> Counter[str]:
        plan = [
            (asked(str(qwen2), rng, number), 1.5 * rng.random() if rng.random() < 0.3 else None)
            for number in range(REQUESTS)
        ]
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return Counter(threads.map(lambda one: outcome(pool, direct, *one), plan))

    found = loaded(qwen2, count, work)
    print(dict(found))
    assert set(found) == {"same", "cancelled"}
    assert found["same"] > REQUESTS / 2


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_ranks_that_are_lost_again_and_again_come_back(qwen2: Path) -> None:
    rng = random.Random(5)

    def work(pool: ShardedEngine, direct: MlxEngine) -> Counter[str]:
        found = Counter[str]()
        for loss in range(LOSSES):
            plan = [(asked(str(qwen2), rng, number), None) for number in range(20)]
            with ThreadPoolExecutor(AT_ONCE) as threads:
                running = [threads.submit(outcome, pool, direct, *one) for one in plan]
                running[5].result(120)
                kill(pool, loss % 2)
                found.update(one.result(120) for one in running)
        return found

    found = loaded(qwen2, 2, work)
    print(dict(found))
    assert set(found) == {"same", "lost"}
    assert LOSSES <= found["lost"] <= LOSSES * (AT_ONCE + 1)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_cable_that_is_pulled_is_noticed_and_ranks_come_back_over_it(qwen2: Path) -> None:
    """Two network namespaces; where they are not permitted, a rank stands still instead."""
    request = ask(str(qwen2), schema={}, max_output_tokens=20, deadline_s=120.0)
    endless = replace(request, schema=ENDLESS, max_output_tokens=3000, temperature=1.0, seed=3)
    direct = MlxEngine(slots=1)
    expected = direct.generate(request, quiet).text
    direct.close()
    with ExitStack() as stack:
        link = stack.enter_context(running_link()) if permitted() else None
        hosts = [f"{HERE}:{free_port()}", f"{THERE}:{free_port()}"] if link else addresses(2)
        program = (*(link.prefix if link else ()), sys.executable, *PROGRAM)
        pool = stack.enter_context(ranks(hosts=hosts, remote=shlex.join(program), step_timeout=10.0))
        assert pool.generate(request, quiet).text == expected
        pids = group(pool).pids

        def cut() -> None:
            if link:
                link.down()
            else:
                os.kill(pids[1], signal.SIGSTOP)

        with pytest.raises(EngineUnreachable, match="took no step for 10 s"):
            pool.generate(endless, Heard(cut))
        gone(pids)
        if link:
            link.up()
        assert pool.generate(request, quiet).text == expected
