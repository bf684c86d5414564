"""The best schedule an offline search finds: it knows every job and its length before anything begins.

Each machine has a list of jobs a stage, longest first, and does one stage after the other. Annealing moves
jobs between machines, turns a machine's order of stages, and says how far it drains its batch between them.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench.cluster.asking import Request
from bench.cluster.bound import bound_s, missing_s, rates, works_of
from bench.cluster.cards import Card, Work
from bench.cluster.costs import Box
from bench.cluster.shares import shares
from bench.cluster.world import HandIn
from bench.cluster.worlds import World

CHOICES = (2, 3, 4, 6, 8, 10, 12, 14, 16, 24, 32)
"""Jobs at once that are tried on a machine, as far as it has slots."""
Jobs = tuple[int, ...]
"""Output tokens of jobs, longest first."""


@dataclass(frozen=True)
class Lane:
    """What one machine does: stages in order, with their jobs."""

    order: tuple[str, ...]
    jobs: Mapping[str, Jobs]
    drain: int
    """The next stage begins when no more than so many of the one before are in slots."""
    at_once: int
    """Jobs in slots at the most."""

    @property
    def key(self) -> tuple[object, ...]:
        """For remembering how long it takes."""
        return (self.order, self.drain, self.at_once, *(self.jobs[s] for s in self.order))


@dataclass(frozen=True)
class Found:
    """The best schedule found."""

    makespan_s: float
    lanes: Mapping[str, Lane]
    tries: int


def lane_s(
    card: Card, works: Mapping[str, Work], lane: Lane, changes: Iterable[tuple[float, float]] = ()
) -> float:
    """When a machine is done with its lane. What is lost with its power it begins again when it is back."""
    models = tuple({work.model.name: work.model for work in works.values()}.values())
    box = Box(card, lane.at_once, changes=changes, models=models)
    plan = deque((stage, output) for stage in lane.order for output in lane.jobs[stage])
    running, begun, last = dict.fromkeys(lane.order, 0), dict[str, tuple[str, int]](), 0.0
    while plan or any(running.values()):
        while plan and box.speed and sum(running.values()) < lane.at_once:
            stage, output = plan[0]
            others = sum(n for s, n in running.items() if s != stage)
            if others > lane.drain:
                break
            work, name = works[stage], f"{stage} {len(begun)}"
            box.submit(box.now, Request(name, work.model.name, work.prompt, output, "class", work.shared))
            begun[name] = plan.popleft()
            running[stage] += 1
        for event in box.advance(box.next_event()):
            if event.kind in ("done", "lost"):
                running[begun[event.id][0]] -= 1
                last = event.at
            if event.kind == "lost":
                plan.appendleft(begun[event.id])
    return last


@dataclass
class Search:
    """Annealing from the plan of the linear program."""

    world: World
    slots: int
    hand_ins: Sequence[HandIn]
    seed: int = 1
    changes: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """machine -> (time, speed)s, as in `Box`."""
    _known: dict[tuple[object, ...], float] = field(default_factory=dict, init=False)

    def run(self, tries: int = 2000, seconds: float = 60.0) -> Found:
        """Ends after so many tries or seconds; the same seed and tries give the same schedule."""
        rng, began = random.Random(self.seed), time.monotonic()
        lanes = self._first()
        ends = {m: self._ends(m, lane) for m, lane in lanes.items()}
        best, best_lanes, done = max(ends.values()), dict(lanes), 0
        for done in range(1, tries + 1):
            if time.monotonic() - began > seconds:
                break
            heat = 0.002 * best * (1 - done / tries)
            changed = self._changed(rng, lanes, ends)
            after = ends | {m: self._ends(m, lane) for m, lane in changed.items()}
            worse = _cost(after) - _cost(ends)
            if worse <= 0 or rng.random() < math.exp(-worse / max(heat, 1e-9)):
                lanes, ends = lanes | changed, after
            if max(ends.values()) < best:
                best, best_lanes = max(ends.values()), dict(lanes)
        return Found(best, best_lanes, done)

    def _first(self) -> dict[str, Lane]:
        """As many jobs a machine as the linear program says; lengths are dealt out evenly."""
        works = works_of(self.hand_ins, self.world.works)
        outputs = {
            s: sorted((h.output[s] for h in self.hand_ins if s in h.output), reverse=True) for s in works
        }
        speed = rates(self.world.cards, self.slots, works)
        least = bound_s(self.world.cards, self.slots, self.hand_ins, self.changes, usual=self.world.works)
        missing = {m: missing_s(of, least) for m, of in self.changes.items()}
        plan = shares(speed, {s: float(len(of)) for s, of in outputs.items()}, missing)
        jobs: dict[str, dict[str, list[int]]] = {m: {s: [] for s in works} for m in self.world.cards}
        for stage, of in outputs.items():
            want = {m: plan.seconds[m][stage] * speed[m][stage] for m in self.world.cards}
            want = {m: n for m, n in want.items() if n > 0.3}
            turns = [(1 / n, m) for m, n in want.items()]
            heapq.heapify(turns)
            for output in of:
                at, machine = heapq.heappop(turns)
                jobs[machine][stage].append(output)
                heapq.heappush(turns, (at + 1 / want[machine], machine))
        return {
            m: Lane(tuple(works), {s: tuple(of) for s, of in stages.items()}, self.slots, self.slots)
            for m, stages in jobs.items()
        }

    def _ends(self, machine: str, lane: Lane) -> float:
        card, changes = self.world.cards[machine], tuple(self.changes.get(machine, ()))
        key = (card, changes, *lane.key)
        if key not in self._known:
            self._known[key] = lane_s(card, self.world.works, lane, changes)
        return self._known[key]

    def _changed(
        self, rng: random.Random, lanes: Mapping[str, Lane], ends: Mapping[str, float]
    ) -> dict[str, Lane]:
        kind = rng.random()
        latest = max(ends, key=lambda m: ends[m]) if rng.random() < 0.7 else rng.choice(list(lanes))
        lane = lanes[latest]
        if kind < 0.1:
            return {latest: replace(lane, order=lane.order[::-1])}
        if kind < 0.15:
            return {latest: replace(lane, at_once=rng.choice([n for n in CHOICES if n <= self.slots]))}
        if kind < 0.22:
            return {latest: replace(lane, drain=rng.choice([0, 2, 4, 8, 12, self.slots]))}
        other = rng.choice([m for m in lanes if m != latest])
        stage = rng.choice([s for s in lane.jobs if lane.jobs[s]] or list(lane.jobs))
        count = 1 if rng.random() < 0.7 else rng.randint(2, 8)
        if kind < 0.6:
            return _moved(rng, lanes, latest, other, {stage: (count, 0)})
        if kind < 0.8:
            return _moved(rng, lanes, latest, other, {stage: (count, count)})
        back = rng.choice(list(lane.jobs))
        return _moved(rng, lanes, latest, other, {stage: (count, 0)} | {back: (0, rng.randint(1, count + 1))})


def _cost(ends: Mapping[str, float]) -> float:
    """The makespan above all; a little of the others' ends, so that room is made."""
    return max(ends.values()) + 0.05 * sum(ends.values()) / len(ends)


def _moved(
    rng: random.Random, lanes: Mapping[str, Lane], one: str, other: str, counts: Mapping[str, tuple[int, int]]
) -> dict[str, Lane]:
    """Two lanes after (there, back) jobs of each stage changed sides."""
    mine, theirs = dict(lanes[one].jobs), dict(lanes[other].jobs)
    for stage, (there, back) in counts.items():
        gone = rng.sample(range(len(mine[stage])), min(there, len(mine[stage])))
        come = rng.sample(range(len(theirs[stage])), min(back, len(theirs[stage])))
        left = [o for i, o in enumerate(mine[stage]) if i not in gone]
        kept = [o for i, o in enumerate(theirs[stage]) if i not in come]
        given, taken = [mine[stage][i] for i in gone], [theirs[stage][i] for i in come]
        mine[stage] = tuple(sorted(left + taken, reverse=True))
        theirs[stage] = tuple(sorted(kept + given, reverse=True))
    return {one: replace(lanes[one], jobs=mine), other: replace(lanes[other], jobs=theirs)}
