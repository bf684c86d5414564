"""The long runs: 1,000 submissions under random faults, take-over times, memory. `make soak` runs them.

GRADER_SOAK_SEED repeats a run; GRADER_SOAK_COUNT changes how many submissions; GRADER_SOAK_REPORT names a
JSON file that gets the figures.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from grading.store import schema
from tests.faults.harness.chaos import Chaos, Loss
from tests.faults.harness.cluster import Cluster, cluster
from tests.faults.harness.ledger import Verdict, known_runs, moment, take_overs
from tests.faults.harness.machines import MachineSpec
from tests.faults.harness.netns import permitted, running_link
from tests.faults.machine import test_machines
from tests.support.services import SqliteDatabases, own_postgres
from tests.support.system import until

pytestmark = pytest.mark.soak

COUNT = int(os.environ.get("GRADER_SOAK_COUNT", "1000"))
EVERY_S = (1.0, 5.0)
"""Seconds between two strikes."""
A_SECOND = 2.5
"""Submissions."""
MACHINES = (
    MachineSpec("one", slots=6, seconds=3.0),
    MachineSpec("two", slots=4, seconds=4.0, behind_proxy=True),
    MachineSpec("three", slots=4, seconds=2.0, behind_proxy=True),
    MachineSpec("fast-clock", slots=4, seconds=3.0, clock="+1h"),
    MachineSpec("slow-clock", slots=4, seconds=3.0, clock="-1h", role="spare"),
)
FAR = MachineSpec("far", slots=4, seconds=3.0)
FAR_AWAY = MachineSpec("far", slots=2, seconds=3.0)


def report(name: str, figures: dict[str, Any]) -> None:
    """Print figures as a table and add them to GRADER_SOAK_REPORT."""
    print(f"\n{name}")
    for key, value in figures.items():
        print(f"  {key:34} {value}")
    path = os.environ.get("GRADER_SOAK_REPORT")
    if path:
        file = Path(path)
        known = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps({**known, name: figures}, indent=1) + "\n")


def spread(values: Sequence[float]) -> dict[str, Any]:
    """How many, the middle one and the longest, in seconds."""
    if not values:
        return {"n": 0}
    return {"n": len(values), "p50": round(statistics.median(values), 1), "max": round(max(values), 1)}


# --- 1,000 submissions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a soak runs."""

    running: Cluster
    chaos: Chaos


@contextmanager
def place(kind: str, folder: Path, sqlite_databases: SqliteDatabases, seed: int) -> Iterator[Place]:
    """A system on this kind of database, with a machine behind a link where that is permitted."""
    with ExitStack() as stack:
        postgres = stack.enter_context(own_postgres(durable=True)) if kind == "postgresql" else None
        url = postgres.url if postgres else sqlite_databases.fresh(schema.upgrade)
        link = stack.enter_context(running_link()) if permitted() else None
        machines = MACHINES if link is None else (*MACHINES, FAR)
        links = {} if link is None else {FAR.name: link}
        running = stack.enter_context(cluster(folder, machines, url, links=links))
        yield Place(running, Chaos(running, seed, postgres))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_nothing_is_lost_or_counted_twice_under_random_faults(
    kind: str, tmp_path: Path, sqlite_databases: SqliteDatabases
) -> None:
    seed = int(os.environ.get("GRADER_SOAK_SEED", random.SystemRandom().randrange(10**6)))
    print(f"\nGRADER_SOAK_SEED={seed}")
    with place(kind, tmp_path, sqlite_databases, seed) as there:
        begun = time.monotonic()
        under_faults(there)
        there.chaos.heal_all()
        verdict = there.running.until_all_end(180)
        seconds = time.monotonic() - begun
        figures = {"seed": seed, "seconds": round(seconds), **verdict.row(), **measures(there)}
        report(f"soak on {kind}", figures)
        assert verdict.accepted == COUNT
        assert verdict.clean, verdict
        replayed = replay(there.running, verdict.ungraded)
        report(f"soak on {kind}", {**figures, "graded after replay": replayed.states["graded"]})
        assert replayed.states == {"graded": COUNT}
        assert replayed.clean, replayed


def under_faults(there: Place) -> None:
    """Submit at a steady pace while faults strike, until all are accepted."""
    running, choose = there.running, random.Random(there.chaos.seed)
    uploads: list[Future[str]] = []
    begun = next_strike = time.monotonic()
    while len(uploads) < COUNT or not all(upload.done() for upload in uploads):
        due = min(COUNT, int((time.monotonic() - begun) * A_SECOND) + 1)
        uploads += running.submit([f"s-{number}" for number in range(len(uploads), due)])
        if time.monotonic() >= next_strike:
            there.chaos.step()
            next_strike = time.monotonic() + choose.uniform(*EVERY_S)
        there.chaos.heal_due()
        time.sleep(0.1)
    for upload in uploads:
        upload.result()


def measures(there: Place) -> dict[str, Any]:
    """Faults, take-overs and what was done for nothing."""
    runs = known_runs(there.running.store)
    answers = sum(run.answered for run in runs)
    waits = there.running.ledger.waits
    return {
        "faults": sum(there.chaos.strikes.values()),
        "kinds": dict(there.chaos.strikes),
        "taken over": spread(taken_over(there.running, there.chaos.losses)),
        "runs": len(runs),
        "answered more than once": answers - len({(run.round_id, run.stage) for run in runs if run.answered}),
        "upload to 2xx": spread(waits),
    }


def taken_over(running: Cluster, losses: list[Loss]) -> list[float]:
    """Seconds from each fault to the moment at which each run it had in hand was sent to another machine."""
    return [one.sent_s for loss in losses for one in take_overs(running.store, loss.at, set(loss.runs))]


def replay(running: Cluster, ungraded: list[str]) -> Verdict:
    """What the log says after `grader replay --all`, if anything is dead."""
    if ungraded:
        running.grader("replay", "--all")
        until(lambda: not running.until_all_end(120).ungraded, 120, "what was dead is graded")
    return running.until_all_end(10)


# --- taking over --------------------------------------------------------------------------------------

REPEATS = 5
EVERY_SWEEP_S = 5.0
CUT_S = 60.0


def test_how_long_taking_over_takes(tmp_path: Path, sqlite_databases: SqliteDatabases) -> None:
    """8 jobs in flight when a machine is killed, 2 when one is stopped, 2 when one is cut off; repeated."""
    sent: dict[str, list[float]] = {name: [] for name in test_machines.GONE}
    begun: dict[str, list[float]] = {name: [] for name in test_machines.GONE}
    for number in range(REPEATS):
        database = sqlite_databases.fresh(schema.upgrade)
        outcome = test_machines.play(
            tmp_path / str(number), database, later_s=number * EVERY_SWEEP_S / REPEATS
        )
        assert outcome.verdict.clean, outcome.verdict
        assert outcome.after == outcome.before
        for name, taken in outcome.taken_over.items():
            assert len(taken) == len(outcome.lost[name])
            sent[name] += [one.sent_s for one in taken]
            begun[name] += [one.begun_s for one in taken if one.begun_s is not None]
    figures = {f"{name}, sent again": spread(sent[name]) for name in sent}
    figures |= {f"{name}, begun again": spread(begun[name]) for name in begun}
    report("taking over", figures)
    for name, most in (("killed", 30.0), ("stopped", 75.0), ("cut", 60.0)):
        assert max(sent[name]) <= most


def test_a_machine_whose_cable_is_pulled_is_taken_over_and_comes_back(
    tmp_path: Path, sqlite_databases: SqliteDatabases
) -> None:
    with ExitStack() as stack:
        link = stack.enter_context(running_link()) if permitted() else None
        machines = (FAR_AWAY, MachineSpec("near", slots=4, seconds=0.5))
        if link is None:
            machines = (replace(FAR_AWAY, behind_proxy=True), machines[1])
        links = {} if link is None else {FAR_AWAY.name: link}
        database = sqlite_databases.fresh(schema.upgrade)
        running = stack.enter_context(cluster(tmp_path, machines, database, links=links))
        cut, heal = (
            (link.down, link.up) if link else (running.proxies["far"].cut, running.proxies["far"].heal)
        )
        uploads = running.submit([f"s-{number}" for number in range(12)])
        running.until_busy("far", 2)
        cut()
        fault = moment()
        lost = {lease.run_id for lease in running.held_by("far")}
        for upload in uploads:
            upload.result()
        assert running.until_all_end(60).states == {"graded": 12}
        before = test_machines.grades(running.store)
        time.sleep(CUT_S)
        heal()
        running.broker.listen()
        test_machines.await_answers(running, lost, 120)
        taken = take_overs(running.store, fault, lost)
        known = [run for run in known_runs(running.store) if run.id in lost]
        assert {run.state for run in known} == {"duplicate"}
        assert test_machines.grades(running.store) == before
        assert running.until_all_end(10).clean
    begun = [one.begun_s for one in taken if one.begun_s is not None]
    report("cable pulled", {"for s": CUT_S, "a link": link is not None, "begun again": spread(begun)})
    assert len(begun) == len(lost) == 2
    assert max(begun) <= 60.0


# --- memory -------------------------------------------------------------------------------------------

FAILURES = 2000
WARM = 300
GROWTH = 0.10


def test_memory_does_not_grow_over_2000_failing_tasks(
    tmp_path: Path, sqlite_databases: SqliteDatabases
) -> None:
    # Empty answers: they fail, and yet the engine works, so its circuit stays closed.
    machines = (MachineSpec("one", slots=4, seconds=0.05, silent=True),)
    with cluster(tmp_path, machines, sqlite_databases.fresh(schema.upgrade)) as running:
        fail(running, WARM)
        before = memory(running)
        failed = fail(running, WARM + FAILURES)
        after = memory(running)
    growth = {name: round(after[name] / before[name] - 1, 3) for name in before}
    report("memory", {"failed": failed, "MiB before": before, "MiB after": after, "growth": growth})
    assert all(growth[name] < GROWTH for name in ("one", "store"))


def fail(running: Cluster, count: int) -> int:
    """Submit until so many runs have failed."""

    def failed() -> int:
        return sum(run.state == "failed" for run in known_runs(running.store))

    while failed() < count:
        first = len(running.ledger.accepted)
        running.submitted([f"s-{number}" for number in range(first, first + 40)])
        until(lambda: waiting(running) < 40, 60, "the failures keep up")
    return failed()


def waiting(running: Cluster) -> int:
    """Submissions that have no run yet."""
    begun = {run.round_id for run in known_runs(running.store)}
    return len(running.ledger.accepted) - len(begun)


def memory(running: Cluster) -> dict[str, float]:
    """Resident MiB of each part."""
    found = {}
    for name, process in running.site.parts.running.items():
        said = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(process.pid)], capture_output=True, text=True, check=True
        )
        found[name] = round(int(said.stdout) / 1024, 1)
    return found
