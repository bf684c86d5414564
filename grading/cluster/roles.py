"""Which stage each machine begins with, so that all is done earliest: what the plan of the router is.

A machine keeps to the stage of its role while some of it waits, then takes the stage with the longest jobs
that is left. What that leads to is reckoned ahead for several ways of giving roles. Unlike a linear program
this knows that changing models costs a mixed batch, and that long jobs at the end leave slots empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from grading.cluster.view import BATCH, Pace, Peer, View

CHANGE = 0.05
"""All must be done earlier by that part for each machine that changes to another model."""
MIXED = 0.3
"""By so much longer the old jobs take while a machine changes: each step reads both models."""
LAST = 1.6
"""So many times as long as a usual job takes the longest of a batch, for which all wait at the end."""
REUSED = 0.25
"""Of the new model's speed that a machine has meanwhile, beside filling the slots that come free."""
USUAL = 200.0
"""Jobs of each stage that a machine with nothing to do prepares for."""
STEADY = (0.7, 1.4)
"""Health between these is no reason to plan anew: over half a minute it is not known better."""
ENOUGH, DOUBT = 32.0, 0.25
"""A speed of fewer jobs is taken for slower, by up to that part: the first ones to end are short."""
PLANNED_JOBS = 0.3
"""A stage of which the plan gives a machine less than this is not meant for it."""
TINY = 1e-6


@dataclass(frozen=True)
class Roles:
    """The plan. Times are seconds from now."""

    first: Mapping[str, str]
    """machine -> the stage it begins with."""
    takes: Mapping[str, Mapping[str, float]]
    """machine -> stage -> jobs it would take of what waits."""
    makespan_s: float
    longest_s: float = 0.0
    """The same with the longest jobs of the last batches."""


@dataclass(frozen=True)
class _Station:
    """A machine as it is now."""

    name: str
    now: str
    """The stage in its batch; empty where there is none."""
    free: int
    """Slots it would fill at once."""
    busy_s: float
    """Of the work in hand."""
    rates: Mapping[str, float]
    """stage -> jobs a second with all slots."""
    lengths: Mapping[str, float]
    """stage -> seconds of a job among a full batch."""
    loads: Mapping[str, float]
    """stage -> seconds until its model is in memory."""


@dataclass
class _Lane:
    """A machine on its way through the work."""

    of: _Station
    order: Sequence[str]
    at: str = ""
    """The stage it takes from."""
    until: float = 0.0
    """When it will have changed its model."""
    slow: float = 0.0
    """Jobs a second that it takes until then."""
    ends: float = 0.0
    longest: float = 0.0
    takes: dict[str, float] = field(default_factory=dict)

    def begin(self, left: dict[str, float]) -> None:
        """It fills its free slots; what is left gets less."""
        self.turn(0.0, left)
        if self.at:
            self.takes[self.at] = min(float(self.of.free), left[self.at])
            left[self.at] -= self.takes[self.at]

    def turn(self, now: float, left: Mapping[str, float]) -> None:
        """It goes on with the first stage in its order of which something is left."""
        to = next((stage for stage in self.order if left[stage] > 0), "")
        if to == self.at:
            return
        empties, slow = now, 0.0
        if self.at:
            empties += self.of.lengths[self.at] * (1 + MIXED if to else 1)
            self.ends = max(self.ends, empties)
            self.longest = max(self.ends, now + self.of.lengths[self.at] * (1 + MIXED if to else LAST))
            slow = self.of.rates[self.at] / (1 + MIXED) + REUSED * self.of.rates.get(to, 0.0)
        self.until, self.slow = empties + self.of.loads.get(to, 0.0), slow
        self.at = to

    def rate(self, now: float) -> float:
        """Jobs a second that it takes now."""
        return self.slow if self.until > now + TINY else self.of.rates[self.at]


def roles(view: View) -> Roles:
    """Who begins with what: from the roles of now on, each time the change that helps most, while one does.

    With less waiting than there are slots, no machine that is at work changes.
    """
    stations = [_station(view, peer) for peer in view.peers.values() if peer.paces]
    stages = {stage for one in stations for stage in one.rates}
    work = {stage: float(view.count(stage)) for stage in stages}
    if view.little:
        work = dict.fromkeys(stages, USUAL)
    best = _reckoned(stations, work, {one.name: one.now or _longest(one) for one in stations})
    free = [one for one in stations if not (view.little and one.now)]
    for _ in range(2 * len(stations)):  # two measures may disagree for ever
        gains = [
            (_gain(stations, one, best, found), found)
            for one in free
            for stage in one.rates
            if stage != best.first[one.name]
            for found in [_reckoned(stations, work, {**best.first, one.name: stage})]
        ]
        gain, next_ = max(gains, key=lambda pair: pair[0], default=(0.0, best))
        if gain < TINY:
            break
        best = next_
    return best


def _longest(one: _Station) -> str:
    return max(one.lengths, key=one.lengths.__getitem__)


def _gain(stations: Iterable[_Station], one: _Station, best: Roles, found: Roles) -> float:
    """Seconds by which all are done earlier where this machine has another role.

    One that begins looks at the end of it all, so that equal ways are told apart; one at work changes only
    for what is gained before.
    """
    if not one.now:
        return best.longest_s - found.longest_s
    return _cost(stations, best) - _cost(stations, found)


def _cost(stations: Iterable[_Station], found: Roles) -> float:
    """Seconds, with what changes must be worth."""
    changes = sum(bool(one.now) and one.now != found.first[one.name] for one in stations)
    return found.makespan_s * (1 + CHANGE * changes)


def _station(view: View, peer: Peer) -> _Station:
    may = {
        stage: pace
        for stage, pace in peer.paces.items()
        if peer.reserved != BATCH or view.count(stage, (BATCH,)) or not view.count(stage)
    } or peer.paces
    lengths = {stage: steady(pace, peer.slots) for stage, pace in may.items()}
    rates = {stage: peer.slots / length for stage, length in lengths.items()}
    busy = sum(left / rates[stage] for stage, left in peer.left.items() if stage in rates)
    now = peer.now if peer.now in rates else ""
    return _Station(peer.name, now, peer.free, busy, rates, lengths, peer.load_s)


def steady(pace: Pace, at_once: int) -> float:
    """Seconds of a job among so many, as far as they are known: health only where that says something."""
    low, high = STEADY
    seconds = pace.seconds(at_once) * (pace.health if low < pace.health < high else 1.0)
    # what is only guessed is not doubted, so that it is tried
    return seconds * (1 + DOUBT * max(0.0, 1 - pace.seen / ENOUGH)) if pace.seen else seconds


def _reckoned(stations: Iterable[_Station], work: Mapping[str, float], first: Mapping[str, str]) -> Roles:
    """What comes of these roles. Jobs flow here and can be divided at will."""
    lanes = [_lane(one, first[one.name]) for one in stations]
    left, now = dict(work), 0.0
    for lane in lanes:
        lane.begin(left)
    while True:
        for lane in lanes:
            lane.turn(now, left)
        going = [(lane, lane.rate(now)) for lane in lanes if lane.at]
        if not going:
            break
        speed = dict.fromkeys(left, 0.0)
        for lane, rate in going:
            speed[lane.at] += rate
        gone = [left[stage] / rate for stage, rate in speed.items() if rate]
        passed = min([*gone, *(lane.until - now for lane, _ in going if lane.until > now + TINY)])
        now += passed
        for lane, rate in going:
            lane.takes[lane.at] = lane.takes.get(lane.at, 0.0) + rate * passed
        left = {s: n if (n := had - speed[s] * passed) > TINY else 0.0 for s, had in left.items()}
    ends = max((lane.ends for lane in lanes), default=0.0)
    longest = max((max(lane.ends, lane.longest) for lane in lanes), default=0.0)
    return Roles(first, {lane.of.name: lane.takes for lane in lanes}, ends, longest)


def _lane(one: _Station, first: str) -> _Lane:
    order = sorted(one.rates, key=lambda stage: (stage != first, -one.lengths[stage]))
    return _Lane(one, order, one.now, ends=one.busy_s)
