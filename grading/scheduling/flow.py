"""A cluster as one server whose pace depends on how many runs of each stage are there.

Such a server is called flow-equivalent (Chandy, Herzog and Woo, 1975). Its pace is what the rule of routing
gives in `forecast.throughput`, with always so many there. Of large clusters a small one of the same kinds is
played, and its pace scaled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from grading.scheduling.capacity_plan import Machine
from grading.scheduling.forecast import Flow, no_flow, throughput

MOST_PLAYED = 8
"""Machines that are played; larger clusters are scaled from so many."""
LEAST_ENDED = 40
"""Runs over which a pace is measured, at least; else twice as many as have slots."""
DEEPEST = 4
"""Runs of a stage for each slot, from which on only the proportion of the stages changes the pace."""

Counts = tuple[int, ...]
"""Machines of each kind that work."""
There = tuple[int, ...]
"""Runs of each stage that are there: in machines' hands, or waiting."""


@dataclass(frozen=True, slots=True)
class Point:
    """The pace of a cluster with so many runs there."""

    per_s: tuple[float, ...]
    """Usual runs of each stage that end a second."""
    in_hand: tuple[int, ...]
    """Runs of each stage in machines' hands at most; the others wait."""
    busy: tuple[float, ...]
    """The share of each kind's machines that work."""
    spread: tuple[tuple[float, ...], ...]
    """Of each stage, equally frequent times of a run over their mean."""


class Pace:
    """Of a cluster; each point is played when first asked for."""

    def __init__(self, cluster: Cluster, counts: Counts) -> None:
        self.slots = cluster.slots(counts)
        self._cluster, self._played = cluster, cluster.played(counts)
        weight = cluster.weight(self._played)
        self._factor = cluster.weight(counts) / weight if weight else 0.0
        self._top = _above(DEEPEST * cluster.slots(self._played))
        self._known: dict[There, Point] = {}

    def at(self, there: There) -> Point:
        """With so many runs of each stage there; between measured numbers it is interpolated."""
        if there not in self._known:
            self._known[there] = self._between(there)
        return self._known[there]

    def _between(self, there: There) -> Point:
        stages, kinds = range(len(there)), range(len(self._played))
        if not self._factor or not any(there):
            still = no_flow(len(stages), len(kinds))
            return Point(still.per_s, (0,) * len(stages), still.busy, still.spread)
        scaled = [n / self._factor for n in there]
        deep = max(1.0, max(scaled) / self._top)
        flows = [
            (math.prod(weight for _, weight in corner), self._flow(tuple(n for n, _ in corner)))
            for corner in itertools.product(*(list(_around(n / deep)) for n in scaled))
        ]
        hands = [self._factor * sum(weight * flow.in_hand[s] for weight, flow in flows) for s in stages]
        return Point(
            tuple(self._factor * sum(weight * flow.per_s[s] for weight, flow in flows) for s in stages),
            # a run that is alone is in hand, however seldom that was so in the play
            tuple(min(n, max(1, math.ceil(hand - 1e-9))) for n, hand in zip(there, hands, strict=True)),
            tuple(sum(weight * flow.busy[k] for weight, flow in flows) for k in kinds),
            # not their means, which would be narrower than each
            max(flows, key=lambda corner: corner[0])[1].spread,
        )

    def _flow(self, there: There) -> Flow:
        return self._cluster.flow(self._played, there)


@dataclass
class Cluster:
    """Machines by kind, and the pace of every number of them."""

    kinds: Sequence[Machine]
    """One machine of each kind."""
    stages: Sequence[str]
    _paces: dict[Counts, Pace] = field(default_factory=dict)
    _flows: dict[tuple[Counts, There], Flow] = field(default_factory=dict)

    def pace(self, counts: Counts) -> Pace:
        """With so many machines of each kind."""
        if counts not in self._paces:
            self._paces[counts] = Pace(self, counts)
        return self._paces[counts]

    def slots(self, counts: Counts) -> int:
        """Runs at once at most."""
        return sum(n * kind.peer.slots for n, kind in zip(counts, self.kinds, strict=True))

    def weight(self, counts: Counts) -> float:
        """What machines are worth beside each other: submissions a second if each did all stages."""
        return sum(n * self._alone(kind) for n, kind in zip(counts, self.kinds, strict=True))

    def played(self, counts: Counts) -> Counts:
        """Counts of a small cluster with these kinds in about this proportion."""
        total = sum(counts)
        if total <= MOST_PLAYED:
            return counts
        return tuple(max(1, round(n * MOST_PLAYED / total)) if n else 0 for n in counts)

    def flow(self, counts: Counts, there: There) -> Flow:
        """What the rule does with always so many runs of each stage there."""
        key = counts, there
        if key not in self._flows:
            self._flows[key] = self._measured(counts, there)
        return self._flows[key]

    def _alone(self, kind: Machine) -> float:
        known = [rate for stage, rate in kind.rates.items() if stage in self.stages and rate > 0]
        return 1.0 / sum(1.0 / rate for rate in known) if known else 0.0

    def _measured(self, counts: Counts, there: There) -> Flow:
        if not any(there):
            return no_flow(len(there), len(counts))
        of_kind = [
            [replace(kind.peer, name=f"{k} {i}") for i in range(n)]
            for k, (n, kind) in enumerate(zip(counts, self.kinds, strict=True))
        ]
        ended = max(LEAST_ENDED, 2 * min(sum(there), self.slots(counts)))
        named = dict(zip(self.stages, there, strict=True))
        if sum(map(bool, there)) == 1:
            return throughput(of_kind, named, ended)
        return _slower(throughput(of_kind, named, ended), throughput(of_kind, named, ended, apt=True))


def _slower(one: Flow, other: Flow) -> Flow:
    """Each stage as it goes on after the beginning that is worse for it.

    Machines change their stage only for a clear gain, so who does what depends on what was before, for hours.
    """
    worse = [min((one, other), key=lambda flow: flow.per_s[s]) for s in range(len(one.per_s))]
    return Flow(
        tuple(flow.per_s[s] for s, flow in enumerate(worse)),
        tuple(flow.in_hand[s] for s, flow in enumerate(worse)),
        tuple(map(max, one.busy, other.busy)),
        tuple(flow.spread[s] for s, flow in enumerate(worse)),
    )


def _above(number: int) -> int:
    """The power of two that is not smaller."""
    return 1 << max(0, number - 1).bit_length()


def _around(number: float) -> Iterator[tuple[int, float]]:
    """0 or powers of two below and above a number, each with its part in a linear interpolation."""
    if number == int(number) and _above(int(number)) in (number, 1):
        yield int(number), 1.0
        return
    below = 0 if number < 1 else 1 << (int(number).bit_length() - 1)
    above = max(1, 2 * below)
    part = (number - below) / (above - below)
    yield from ((below, 1.0 - part), (above, part))


def kinds_of(machines: Sequence[Machine]) -> tuple[list[Machine], Counts]:
    """One machine of each kind, and how many there are."""
    kinds: dict[str, list[Machine]] = {}
    for machine in machines:
        kinds.setdefault(machine.kind or machine.name, []).append(machine)
    return [of[0] for of in kinds.values()], tuple(len(of) for of in kinds.values())
