"""Thousands of short generations by the mlx engine in one process: memory stays, and it ends in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GENERATIONS = 3000
WARM_UP = 600
SCRIPT = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor

from grading.domain.errors import OutputEmpty, OutputTruncated
from tests.support.engines import ask, quiet
from workers.machine.engines.mlx.engine import MlxEngine
from workers.machine.engines.mlx.decode_loop import IDLE_S

model, generations, warm_up = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
engine = MlxEngine(slots=8, prefix_cache_gb=0.002)


def resident() -> int:
    time.sleep(IDLE_S + 0.5)  # idle engines give back what they hold in reserve
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def once(n: int, largest: bool = False) -> None:
    # a new class every 20 submissions, so prefixes come and go all the time
    times, more, most = (12, 30, 12) if largest else (4 + n // 20 % 9, 1 + n % 30, 2 + n % 11)
    system = f"Class {n // 20}: look at what is named in the task, and say why. " * times
    request = ask(
        model, schema={}, system=system, user=f"+ 1| work {n} " * more, max_output_tokens=most,
        temperature=1.0, seed=n,
    )
    try:
        engine.generate(request, quiet)
    except (OutputEmpty, OutputTruncated):
        pass  # a random model may well begin with its end


with ThreadPoolExecutor(8) as pool:
    # the heap grows to what eight of the largest need at once, and stays so
    list(pool.map(lambda n: once(n, largest=n % 4 == 0 or n < 200), range(warm_up)))
    before = resident()
    list(pool.map(once, range(warm_up, generations)))
    after = resident()
print(json.dumps({"before": before, "after": after, **engine.counters()}))
"""


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_three_thousand_short_generations_leave_memory_as_it_was(tiny: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tiny), str(GENERATIONS), str(WARM_UP)],
        # what is looked for are leaks, not how many arenas the C library opens for threads
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = json.loads(ran.stdout)
    assert told["requests"] == GENERATIONS
    assert told["prefix_hits"] > GENERATIONS / 2
    assert told["prefix_lookups"] - told["prefix_hits"] >= GENERATIONS / 20 - 8
    assert told["cache_bytes"] <= 2_000_000
    assert told["after"] < 1.1 * told["before"], told
