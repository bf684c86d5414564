"""Watches in Redis how the product takes it when a machine is lost, comes back or becomes slow."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.cluster.measures import recognised_s, returned_s, returns
from bench.cluster.runs import Plan, Reacted
from bench.cluster.scenarios import Scenario
from grading.broker.heartbeats import Beat, Lease
from grading.broker.leases import Leases

LOOK_S = 0.04
"""Real seconds between two looks."""


@dataclass
class Watched:
    """What beats and leases showed so far; times in emulated seconds since the beginning."""

    scenario: Scenario
    factor: float
    healths: list[tuple[str, float, float]] = field(default_factory=list)
    """(machine, time, the smallest health it told)."""
    beaten: list[tuple[str, float]] = field(default_factory=list)
    """(machine, time) of beats of a machine's new worker."""
    begun: list[tuple[str, float]] = field(default_factory=list)
    """(machine, time) when that had runs in hand."""
    _old: set[str] = field(default_factory=set)
    """Processes that beat before the return."""

    def see(self, at: float, beats: Sequence[Beat], held: Sequence[Lease]) -> None:
        """One look at this time. Ages are real seconds."""
        for beat in beats:
            healths = [pace.get("health", 1.0) for pace in beat.paces.values()]
            if beat.alive and healths:
                self.healths.append((beat.machine, at - beat.age_s * self.factor, min(healths)))
        found = returns(self.scenario)
        if found is None:
            return
        name, back = found
        if at < back:
            self._old |= {beat.process for beat in beats}
            return
        new = {beat.process for beat in beats if beat.machine == name} - self._old
        if new and not self.beaten:
            self.beaten.append((name, at))
        if any(lease.machine == name and lease.process not in self._old for lease in held) and not self.begun:
            self.begun.append((name, at))

    def reacted(self) -> Reacted:
        """How soon each was seen."""
        return Reacted(
            returned_s(self.scenario, self.beaten),
            returned_s(self.scenario, self.begun),
            recognised_s(self.scenario, self.healths),
        )


@contextmanager
def watching(plan: Plan, leases: Leases, start: float) -> Iterator[Watched]:
    """Look all the while, if anything happens to machines; `start` is the monotonic time that counts as 0."""
    watched = Watched(plan.scenario, plan.factor)
    if not plan.scenario.setting.changes:
        yield watched
        return
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            beats, held = leases.beats(), leases.held()
            watched.see((time.monotonic() - start) * plan.factor, beats, held)

    thread = threading.Thread(target=look, name="watch", daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        over.set()
        thread.join()
