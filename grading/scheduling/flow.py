"""A cluster as one server whose pace depends on how many submissions are there (flow-equivalent server).

The pace is what the rule of routing gives in `forecast.throughput`, with always so many there (Chandy, Herzog
and Woo, 1975). Of large clusters a small one of the same kinds is played, and its pace scaled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from grading.scheduling.capacity_plan import Machine
from grading.scheduling.forecast import Flow, throughput

MOST_PLAYED = 8
"""Machines that are played; larger clusters are scaled from so many."""
LEAST_ENDED = 30
"""Submissions over which a pace is measured, at least."""
DEEPEST = 8
"""Submissions for each that is being graded, from which on more that wait change nothing."""

Counts = tuple[int, ...]
"""Machines of each kind that work."""


@dataclass(frozen=True)
class Pace:
    """Of a cluster, by how many submissions are there."""

    graded_at_once: int
    """Submissions in machines' hands at most; the others wait."""
    per_s: tuple[float, ...]
    """Submissions a second with so many there; the last one also for more."""
    busy: tuple[tuple[float, ...], ...]
    """The share of each kind's machines that work, likewise."""


@dataclass
class Cluster:
    """Machines by kind, and the pace of every number of them, each played when first asked for."""

    kinds: Sequence[Machine]
    """One machine of each kind."""
    stages: Sequence[str]
    _known: dict[Counts, Pace] = field(default_factory=dict)
    _flows: dict[Counts, list[tuple[int, Flow]]] = field(default_factory=dict)

    def pace(self, counts: Counts) -> Pace:
        """With so many machines of each kind."""
        if counts not in self._known:
            self._known[counts] = self._scaled(counts)
        return self._known[counts]

    def weight(self, counts: Counts) -> float:
        """What machines are worth beside each other: submissions a second if each did all stages."""
        return sum(n * self._alone(kind) for n, kind in zip(counts, self.kinds, strict=True))

    def at_once(self, counts: Counts) -> int:
        """Submissions in machines' hands at most: each has a run of every stage there."""
        slots = sum(n * kind.peer.slots for n, kind in zip(counts, self.kinds, strict=True))
        return max(1, slots // max(1, len(self.stages)))

    def _alone(self, kind: Machine) -> float:
        known = [rate for stage, rate in kind.rates.items() if stage in self.stages and rate > 0]
        return 1.0 / sum(1.0 / rate for rate in known) if known else 0.0

    def _played(self, counts: Counts) -> Counts:
        """Counts of a small cluster with these kinds in about this proportion."""
        total = sum(counts)
        if total <= MOST_PLAYED:
            return counts
        return tuple(max(1, round(n * MOST_PLAYED / total)) if n else 0 for n in counts)

    def _scaled(self, counts: Counts) -> Pace:
        played = self._played(counts)
        weight = self.weight(played)
        factor = self.weight(counts) / weight if weight else 0.0
        if not factor:
            return Pace(1, (0.0, 0.0), (self._nobody, self._nobody))
        if played not in self._flows:
            self._flows[played] = [(n, self._flow(played, n)) for n in _points(self.at_once(played))]
        points, flows = zip(*self._flows[played], strict=True)
        at = [n / factor for n in range(1, max(1, round(points[-1] * factor)) + 1)]
        per_s = [factor * _between(points, [flow.per_s for flow in flows], n) for n in at]
        busy = [
            [_between(points, [self._busy(flow, k) for flow in flows], n) for n in at]
            for k in range(len(self.kinds))
        ]
        return Pace(self.at_once(counts), (0.0, *per_s), (self._nobody, *zip(*busy, strict=True)))

    @property
    def _nobody(self) -> tuple[float, ...]:
        return (0.0,) * len(self.kinds)

    def _flow(self, counts: Counts, at_once: int) -> Flow:
        peers = {
            f"{k} {i}": replace(kind.peer, name=f"{k} {i}")
            for k, (n, kind) in enumerate(zip(counts, self.kinds, strict=True))
            for i in range(n)
        }
        return throughput(peers, self.stages, at_once, max(LEAST_ENDED, at_once))

    @staticmethod
    def _busy(flow: Flow, kind: int) -> float:
        shares = [share for name, share in flow.busy.items() if name.split(" ")[0] == str(kind)]
        return sum(shares) / len(shares) if shares else 0.0


def _points(graded: int) -> list[int]:
    """Numbers of submissions at which the pace is measured: ever more apart."""
    found = {graded, 3 * graded // 2, DEEPEST * graded, 1}
    at = 2
    while at < DEEPEST * graded:
        found.add(at)
        at *= 2
    return sorted(found)


def _between(points: Sequence[int], values: Sequence[float], at: float) -> float:
    """Linear between two measured points; below the first in proportion, beyond the last constant."""
    if at <= points[0]:
        return values[0] * at / points[0]
    after = bisect_left(points, at)
    if after == len(points):
        return values[-1]
    (n1, v1), (n2, v2) = (points[after - 1], values[after - 1]), (points[after], values[after])
    return v1 + (v2 - v1) * (at - n1) / (n2 - n1)


def kinds_of(machines: Sequence[Machine]) -> tuple[list[Machine], Counts]:
    """One machine of each kind, and how many there are."""
    kinds: dict[str, list[Machine]] = {}
    for machine in machines:
        kinds.setdefault(machine.kind or machine.name, []).append(machine)
    return [of[0] for of in kinds.values()], tuple(len(of) for of in kinds.values())
