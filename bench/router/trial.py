"""Plays one plan with one way of routing: the product, a client of our own, or other people's routers."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.router.competitors import Competitor, send
from bench.router.processes import EmulatedServers, Processes, children_cpu_s, start_servers
from bench.router.product import Product, product
from bench.router.results import OPINIONS, OURS, Outcome, Plan

Say = Callable[[str], None]
LOOK_S = 0.1


def run_product(plan: Plan, say: Say, way: str = OURS, *, tune: bool = False) -> Outcome:
    """The product, perhaps with second opinions; with `tune` it finds its slots by measurement."""
    with _servers(plan) as (folder, servers), product(folder, plan, servers, tune=tune) as system:
        before, since = children_cpu_s(), time.monotonic()
        system.start_all()
        now = [(n, one) for n, one in enumerate(plan.scenario.arrivals) if one.at <= 0]
        for number, one in now:
            system.arrival(number, one)
        system.until_queued(len(now))
        if way == OPINIONS:
            system.want_opinions()
        wall = time.monotonic()
        start = time.time()
        system.begin()
        for number, _ in now:
            system.came[number] = start
        with _changes(plan, servers, system, wall):
            _rest(system, plan, start)
            _until_over(system, plan, say)
            wall = time.monotonic() - wall
        ended, opinions = system.ended(start), _opinions(system, plan, start, say) if way == OPINIONS else ()
        done, sent = servers.ended(), system.opinion_runs(start)
        used = servers.cpu_s()
        system.processes.stop()
        cpu = (children_cpu_s() - before + used) / (time.monotonic() - since)
    return Outcome(way, ended, done, cpu, wall, opinions, *sent)


def run_competitor(competitor: Competitor, plan: Plan, say: Say) -> Outcome:
    """A client that sends everything itself, perhaps through a router."""
    with _servers(plan) as (folder, servers):
        before = children_cpu_s()
        with Processes(folder) as processes, competitor.ready(processes, servers, plan) as way:
            wall = time.monotonic()
            with _changes(plan, servers, None, wall):
                ended = send(processes, way, plan, servers, say)
            wall = time.monotonic() - wall
        done, used = servers.ended(), servers.cpu_s()
        cpu = (children_cpu_s() - before + used) / wall
    return Outcome(competitor.name, ended, done, cpu, wall)


@contextmanager
def _servers(plan: Plan) -> Iterator[tuple[Path, EmulatedServers]]:
    with tempfile.TemporaryDirectory(prefix="grader-router-") as name:
        folder = Path(name)
        with Processes(folder) as processes:
            cluster_model = plan.scenario.setting.cluster_model.name
            yield folder, start_servers(processes, plan.factor, plan.slots, cluster_model=cluster_model)


def _rest(system: Product, plan: Plan, start: float) -> None:
    """Submit what comes later, each at its time."""
    later = sorted((one.at, n) for n, one in enumerate(plan.scenario.arrivals) if one.at > 0)
    for at, number in later:
        time.sleep(max(0.0, start + at / plan.factor - time.time()))
        system.arrival(number, plan.scenario.arrivals[number])


def _until_over(system: Product, plan: Plan, say: Say) -> None:
    count, told, changed = len(plan.scenario.arrivals) + plan.learn, 0, time.monotonic()
    while (over := system.over()) < count:
        if over > told:
            told, changed = over, time.monotonic()
        elif time.monotonic() - changed > plan.stuck_s:
            say(f"stuck at {over} of {count}; logs are in {system.folder}")
            break
        time.sleep(LOOK_S)


def _opinions(system: Product, plan: Plan, start: float, say: Say) -> list[float]:
    """When each second opinion came, in emulated seconds; waits for all of them."""
    told, changed = -1, time.monotonic()
    while (left := system.opinions_left()) and time.monotonic() - changed < plan.stuck_s:
        if left != told:
            told, changed = left, time.monotonic()
        time.sleep(LOOK_S)
    if left:
        say(f"{left} second opinions never came; logs are in {system.folder}")
    return system.opinions_at(start)


@contextmanager
def _changes(plan: Plan, servers: EmulatedServers, system: Product | None, start: float) -> Iterator[None]:
    """Machines that die, come back or get slower meanwhile; with a dead one dies its worker.

    `start` is the monotonic time that counts as 0.
    """
    over = threading.Event()
    due = sorted(
        (at, name, speed) for name, all_ in plan.scenario.setting.changes.items() for at, speed in all_
    )

    def change() -> None:
        for at, name, speed in due:
            if over.wait(max(0.0, start + at / plan.factor - time.monotonic())):
                return
            if system is not None and not speed:
                system.processes.kill(name)
            servers.change(name, speed)
            if system is not None and speed == 1 and name not in system.processes.running:
                system.start(name, "worker", name)

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
