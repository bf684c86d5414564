"""Redis with a successor: the primary dies, hangs and is cut off, again and again, under load."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import select

from grading.store import schema
from grading.store.tables import Run
from tests.faults.harness.cluster import Cluster, cluster
from tests.faults.harness.ledger import known_runs, moment
from tests.faults.harness.machines import MachineSpec
from tests.support.redis_sets import Node, RedisSet, cut, heal
from tests.support.services import SqliteDatabases
from tests.support.system import count_final, until

MACHINES = (MachineSpec("one", slots=4, seconds=2.0), MachineSpec("two", slots=4, seconds=2.0))
FAULTS = int(os.environ.get("GRADER_SOAK_COUNT", "20"))
IN_FLIGHT = 200
GOES_ON_S = 15.0
AWAY_S = 12.0
"""How long a primary stays dead, stopped or cut off; its successor is promoted meanwhile."""


@dataclass
class Fault:
    """One fault, and what came of it; times in seconds."""

    kind: str
    in_flight: int
    moment: datetime
    promoted_s: float = 0.0
    """Until the sentinels name another primary."""
    whole_s: float = 0.0
    """Until that one has a replica again."""
    began_s: float = 0.0
    """The longest time without a run that began."""
    recorded_s: float = 0.0
    """The longest time without a result that was recorded."""


def killed(node: Node) -> Callable[[], None]:
    """kill -9; it is started again on its files, as a primary, and learns that it is none."""
    node.signal(signal.SIGKILL)
    return node.start


def stopped(node: Node) -> Callable[[], None]:
    """It hangs, and goes on as if nothing had been: with what clients sent it, which is discarded."""
    node.signal(signal.SIGSTOP)
    return lambda: node.signal(signal.SIGCONT)


def cut_off(node: Node) -> Callable[[], None]:
    """Its sentinels and its replica do not reach it, its clients do: what they write is discarded."""
    cut(node)
    return lambda: heal(node)


KINDS = {"killed": killed, "stopped": stopped, "cut off": cut_off}


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_primary_that_goes_again_and_again_costs_seconds(
    tmp_path: Path, sqlite_databases: SqliteDatabases
) -> None:
    with cluster(tmp_path, MACHINES, sqlite_databases.fresh(schema.upgrade), successor=True) as running:
        assert running.redis_set is not None
        faults = [strike(running, running.redis_set, number) for number in range(FAULTS)]
        ended = moment()
        outcome = running.until_all_end(300)
    for fault, until_when in zip(faults, [*(one.moment for one in faults[1:]), ended], strict=True):
        fault.began_s, fault.recorded_s = pauses(running, fault.moment, until_when)
        print(json.dumps({**asdict(fault), "moment": fault.moment.isoformat()}))
    print(json.dumps({**outcome.row(), "runs": states_of_runs(running)}))
    assert outcome.clean, outcome
    assert outcome.states == {"graded": outcome.accepted}
    assert max(fault.recorded_s for fault in faults) <= GOES_ON_S


def strike(running: Cluster, redis: RedisSet, number: int) -> Fault:
    """One fault while so many are under way; of every fourth, a sentinel is dead, too."""
    top_up(running)
    kind = list(KINDS)[number % len(KINDS)]
    dead = redis.sentinels[number % 3] if number % 4 == 3 else None
    if dead:
        dead.signal(signal.SIGKILL)
    primary = redis.primary()
    fault = Fault(kind + (", a sentinel killed" if dead else ""), in_flight(running), moment())
    begun = time.monotonic()
    undo = KINDS[kind](primary)
    until(lambda: redis.primary() is not primary, 60, f"a successor is promoted, number {number}")
    fault.promoted_s = time.monotonic() - begun
    time.sleep(max(0.0, AWAY_S - fault.promoted_s))  # grading goes on without it
    undo()
    if dead:
        dead.start()
    redis.until_whole()
    fault.whole_s = time.monotonic() - begun
    return fault


def in_flight(running: Cluster) -> int:
    return len(running.ledger.accepted) - count_final(running.store)


def top_up(running: Cluster) -> None:
    """So that faults find as much work as that under way."""
    while (missing := IN_FLIGHT - in_flight(running)) > 0:
        first = len(running.ledger.attempted)
        running.submitted([f"s-{number}" for number in range(first, first + missing)])


def pauses(running: Cluster, fault: datetime, until_when: datetime) -> tuple[float, float]:
    """The longest times in which no run began, and in which none was recorded."""
    with running.store.read() as session:
        runs = list(session.scalars(select(Run).where(Run.accepted)))
    recorded = [run.finished_at for run in runs if run.finished_at is not None]
    began = [
        run.finished_at - timedelta(seconds=float(run.result["provenance"]["seconds"]))
        for run in runs
        if run.finished_at is not None and run.result
    ]
    return longest(began, fault, until_when), longest(recorded, fault, until_when)


def states_of_runs(running: Cluster) -> dict[str, int]:
    """How much was done for nothing: what is not accepted."""
    return dict(Counter("accepted" if run.accepted else run.state for run in known_runs(running.store)))


def longest(moments: list[datetime], fault: datetime, until_when: datetime) -> float:
    within = [fault, *sorted(one for one in moments if fault < one < until_when), until_when]
    return round(max((after - before).total_seconds() for before, after in pairwise(within)), 1)
