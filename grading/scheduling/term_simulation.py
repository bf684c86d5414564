"""Simulates a term by events: submissions come, wait in fair order and are graded, machines are lost."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from grading.scheduling.flow import Cluster, Counts, Pace
from grading.scheduling.term import AN_HOUR, Work

BATCH_TURN = 8
"""One of so many submissions that begin is batch work even while others wait (`routing`)."""


@dataclass(frozen=True)
class Failures:
    """Of machines, a number a kind, and of grading."""

    mtbf_h: tuple[float, ...]
    """Mean hours between two failures of one machine of each kind; infinite: none."""
    mttr_h: tuple[float, ...]
    """Mean hours until it works again."""
    retried: float = 0.0
    """Share of the submissions that have to be graded once more, as a result was not valid."""


Change = tuple[float, int, int]
"""(second, kind, machines more or less)."""


def losses(counts: Counts, failures: Failures, hours: float, seed: int = 1) -> list[Change]:
    """When machines go and come back: both exponentially distributed, each machine from a seed of its own."""
    found: list[Change] = []
    for kind, count in enumerate(counts):
        if not math.isfinite(failures.mtbf_h[kind]):
            continue
        for number in range(count):
            rng, at_h = random.Random(f"{seed} {kind} {number}"), 0.0
            while (at_h := at_h + rng.expovariate(1 / failures.mtbf_h[kind])) < hours:
                found.append((at_h * AN_HOUR, kind, -1))
                at_h += rng.expovariate(1 / failures.mttr_h[kind]) if failures.mttr_h[kind] > 0 else 0.0
                found.append((at_h * AN_HOUR, kind, 1))
    return sorted(found)


class FairLine:
    """Who is next: courses take turns, within a course first submissions before further ones."""

    def __init__(self) -> None:
        self._turns: deque[int] = deque()
        self._first: dict[int, deque[int]] = {}
        self._further: dict[int, deque[int]] = {}
        self._waiting: dict[int, int] = {}
        self.length = 0

    def add(self, course: int, number: int, again: bool) -> None:
        """One more at the end of its course's line."""
        lines = self._further if again else self._first
        lines.setdefault(course, deque()).append(number)
        waiting = self._waiting.get(course, 0)
        if not waiting:
            self._turns.append(course)
        self._waiting[course] = waiting + 1
        self.length += 1

    def take(self) -> int:
        """The next one; there must be one."""
        course = self._turns.popleft()
        first = self._first.get(course)
        number = first.popleft() if first else self._further[course].popleft()
        self._waiting[course] -= 1
        if self._waiting[course]:
            self._turns.append(course)
        self.length -= 1
        return number


@dataclass(frozen=True)
class Played:
    """What came of a term."""

    graded_s: list[float]
    """When each submission was graded; infinite: never."""
    spent: dict[Counts, list[float]]
    """Machines that work -> seconds with so many submissions there, up to the last of its `Pace`."""
    lost: list[int]
    """Failures of each kind's machines."""
    retries: int

    @property
    def busy_s(self) -> float:
        """Seconds in which anything was there to be graded."""
        return sum(sum(seconds[1:]) for seconds in self.spent.values())


class Term:
    """One simulation of a term; `play` runs it to its end."""

    def __init__(
        self,
        work: Sequence[Work],
        cluster: Cluster,
        counts: Counts,
        changes: Sequence[Change] = (),
        retried: float = 0.0,
        seed: int = 1,
    ) -> None:
        self.work, self.cluster, self.changes, self.retried = work, cluster, changes, retried
        self.now = 0.0
        self._times = [one.at_s for one in work] + [math.inf]
        self._comes = 0
        self._clock = 0.0
        """Usual jobs' worth of progress that each one in hand has made since the beginning."""
        self._hands: list[tuple[float, int]] = []
        """(the clock at its end, submission), as a heap."""
        self._repeated: deque[int] = deque()
        self._interactive, self._batch = FairLine(), FairLine()
        self._taken = 0
        self._rng = random.Random(seed)
        self._graded = [math.inf] * len(work)
        self._spent: dict[Counts, list[float]] = {}
        self._lost = [0] * len(counts)
        self._retries = 0
        self._alive(counts)

    def play(self) -> Played:
        """Until everything is graded, or nothing more can be."""
        for change in self.changes:
            self._until(change[0])
            if self._comes == len(self.work) and not self._there:
                break
            self._change(change)
        self._until(math.inf)
        return Played(self._graded, self._spent, self._lost, self._retries)

    @property
    def _waiting(self) -> int:
        return len(self._repeated) + self._interactive.length + self._batch.length

    @property
    def _there(self) -> int:
        return len(self._hands) + self._waiting

    def _alive(self, counts: Counts) -> None:
        self.alive = counts
        self._pace: Pace = self.cluster.pace(counts)
        self._seconds = self._spent.setdefault(counts, [0.0] * len(self._pace.per_s))
        self._begin()

    def _until(self, limit: float) -> None:
        """Let submissions come and end up to a moment; the loop that has to be fast, hence local names."""
        hands, per_s, seconds, times = self._hands, self._pace.per_s, self._seconds, self._times
        top, now, clock = len(per_s) - 1, self.now, self._clock
        while True:
            at_once = len(hands)
            there = min(top, at_once + self._waiting)
            speed = per_s[there] / at_once if at_once else 0.0
            end = now + (hands[0][0] - clock) / speed if speed else math.inf
            arrival = times[self._comes]
            moment = min(arrival, end, limit)
            if moment == math.inf:
                break
            seconds[there] += moment - now
            clock += (moment - now) * speed
            now = moment
            if moment == limit:
                break
            self.now, self._clock = now, clock
            if end <= arrival:
                self._end()
            else:
                self._arrive()
        self.now, self._clock = now, clock

    def _arrive(self) -> None:
        one = self.work[self._comes]
        (self._batch if one.batch else self._interactive).add(one.course, self._comes, one.again)
        self._comes += 1
        if len(self._hands) < self._pace.graded_at_once:
            self._begin()

    def _begin(self) -> None:
        """Free slots take what is next."""
        while len(self._hands) < self._pace.graded_at_once and self._pace.per_s[-1] > 0 and self._waiting:
            number = self._next()
            heapq.heappush(self._hands, (self._clock + self.work[number].size, number))
            self._taken += 1

    def _next(self) -> int:
        if self._repeated:
            return self._repeated.popleft()
        if not self._batch.length:
            return self._interactive.take()
        turn = self._taken % BATCH_TURN == BATCH_TURN - 1 or not self._interactive.length
        return (self._batch if turn else self._interactive).take()

    def _end(self) -> None:
        _, number = heapq.heappop(self._hands)
        if self.retried and self._rng.random() < self.retried:
            self._retries += 1
            self._repeated.append(number)
        else:
            self._graded[number] = self.now
        self._begin()

    def _change(self, change: Change) -> None:
        """A machine goes, and what it had in hand begins anew; or it is back."""
        _, kind, by = change
        if by < 0:
            self._lost[kind] += 1
            slots = sum(n * one.peer.slots for n, one in zip(self.alive, self.cluster.kinds, strict=True))
            share = self.cluster.kinds[kind].peer.slots / slots
            gone = set(self._rng.sample(range(len(self._hands)), round(share * len(self._hands))))
            self._repeated.extend(number for i, (_, number) in enumerate(self._hands) if i in gone)
            self._hands = [one for i, one in enumerate(self._hands) if i not in gone]
            heapq.heapify(self._hands)
        self._alive(tuple(n + by * (k == kind) for k, n in enumerate(self.alive)))
