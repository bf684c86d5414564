"""Simulates a term by events: submissions come, wait in fair order and are graded, machines are lost.

As in the product, a submission leaves the fair line with a run of each stage; each stage has queues of its
own, and the submission is graded when its last run ends.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from grading.scheduling.flow import Cluster, Counts, Pace, There
from grading.scheduling.term import AN_HOUR, Work

BATCH_TURN = 8
"""One of so many runs that begin is batch work even while others wait (`routing`)."""
FILLED, DEEPEST = 2, 8
"""Runs for each slot up to which queues are filled, and that no queue exceeds (`grading.broker.dispatch`)."""
GOLDEN, PLASTIC = 0.618034, 0.754878
"""Irrational numbers: their multiples are even over 0 to 1, so all machines have their part of the runs."""
EXACT_BITS = 7
"""Numbers of runs are looked up with so many binary digits: from 128 on to within 1 %."""


@dataclass(frozen=True)
class Failures:
    """Of machines, a number a kind, and of grading."""

    mtbf_h: tuple[float, ...]
    """Mean hours between two failures of one machine of each kind; infinite: none."""
    mttr_h: tuple[float, ...]
    """Mean hours until it works again."""
    retried: float = 0.0
    """Share of the runs that are repeated, as their result was not valid."""


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
    spent: dict[Counts, dict[There, float]]
    """Machines that work -> runs of each stage that were there -> for how many seconds."""
    lost: list[int]
    """Failures of each kind's machines."""
    retries: int
    """Runs that were repeated as their result was not valid."""

    @property
    def busy_s(self) -> float:
        """Seconds in which anything was there to be graded."""
        return sum(s for seconds in self.spent.values() for there, s in seconds.items() if any(there))


class _Stage:
    """Runs of one stage: those that wait, interactive and batch, and those in machines' hands."""

    __slots__ = ("clock", "hands", "queues", "speed", "taken", "there")

    def __init__(self) -> None:
        self.queues: tuple[deque[int], deque[int]] = (deque(), deque())
        self.hands: list[tuple[float, int]] = []
        """(the clock at its end, submission), as a heap."""
        self.clock = 0.0
        """Usual runs' worth of progress that each one in hand has made since the beginning."""
        self.speed = 0.0
        """Usual runs' worth a second that each one in hand makes."""
        self.there = 0
        """Runs in hand, in queues, and of submissions that have not left the fair line."""
        self.taken = 0

    def next(self) -> int | None:
        """The submission whose run begins next; one of `BATCH_TURN` is batch work."""
        people, batch = self.queues
        if not people and not batch:
            return None
        self.taken += 1
        turn = batch and (not people or self.taken % BATCH_TURN == 0)
        return (batch if turn else people).popleft()


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
        self._stages = [_Stage() for _ in cluster.stages]
        self._lines = [(FairLine(), [stage.queues[batch] for stage in self._stages]) for batch in (0, 1)]
        """Of interactive and of batch work: the fair line, and each stage's queue behind it."""
        self._open = bytearray([len(cluster.stages)]) * len(work)
        """Runs of each submission that have not ended."""
        self._rng = random.Random(seed)
        self._graded = [math.inf] * len(work)
        self._spent: dict[Counts, dict[There, float]] = {}
        self._lost = [0] * len(counts)
        self._retries = 0
        self._alive(counts)

    def play(self) -> Played:
        """Until everything is graded, or nothing more can be."""
        for change in self.changes:
            self._until(change[0])
            if self._comes == len(self.work) and not any(stage.there for stage in self._stages):
                break
            self._change(change)
        self._until(math.inf)
        return Played(self._graded, self._spent, self._lost, self._retries)

    def _alive(self, counts: Counts) -> None:
        self.alive = counts
        self._pace: Pace = self.cluster.pace(counts)
        self._seconds = self._spent.setdefault(counts, {})
        self._look()

    def _look(self) -> None:
        """The pace as it is now; free slots take what is next."""
        self._there = there = tuple([_exact(stage.there) for stage in self._stages])
        self._point = point = self._pace.at(there)
        for line, queues in self._lines:
            if line.length:
                self._leave(line, queues)
        for which, stage in enumerate(self._stages):
            hands, most = stage.hands, point.in_hand[which]
            while len(hands) < most and (number := stage.next()) is not None:
                heapq.heappush(hands, (stage.clock + self._length(number, which), number))

    def _length(self, number: int, which: int) -> float:
        """Of a run, as a factor of a usual one's: by its work, and by how fast its machine is."""
        sizes, spread = self.work[number].sizes, self._point.spread[which]
        by_machine = spread[int((number * GOLDEN + which * PLASTIC) % 1.0 * len(spread))]
        return (sizes[which] if sizes else 1.0) * by_machine

    def _leave(self, line: FairLine, queues: Sequence[deque[int]]) -> None:
        """Submissions leave their line while any stage's queue has room, and none is too long."""
        lengths = [len(queue) for queue in queues]
        slots = self._pace.slots
        room = min(FILLED * slots - min(lengths), DEEPEST * slots - max(lengths), line.length)
        for _ in range(room):
            number = line.take()
            for queue in queues:
                queue.append(number)

    def _until(self, limit: float) -> None:
        """Let submissions come and runs end up to a moment; what has to be fast, hence the plain loops."""
        stages, times = self._stages, self._times
        while True:
            now, end, ends = self.now, math.inf, stages[0]
            for which, stage in enumerate(stages):
                hands = stage.hands
                stage.speed = speed = self._point.per_s[which] / len(hands) if hands else 0.0
                if speed and (at := now + (hands[0][0] - stage.clock) / speed) < end:
                    end, ends = at, stage
            arrival = times[self._comes]
            moment = min(arrival, end, limit)
            if moment == math.inf:
                break
            span = moment - now
            self._seconds[self._there] = self._seconds.get(self._there, 0.0) + span
            for stage in stages:
                stage.clock += span * stage.speed
            self.now = moment
            if moment == limit:
                break
            if end <= arrival:
                self._end(ends)
            else:
                self._arrive()

    def _arrive(self) -> None:
        one = self.work[self._comes]
        self._lines[one.batch][0].add(one.course, self._comes, one.again)
        for stage in self._stages:
            stage.there += 1
        self._comes += 1
        self._look()

    def _end(self, stage: _Stage) -> None:
        _, number = heapq.heappop(stage.hands)
        if self.retried and self._rng.random() < self.retried:
            self._retries += 1
            self._again(stage, number)
        else:
            stage.there -= 1
            self._open[number] -= 1
            if not self._open[number]:
                self._graded[number] = self.now
        self._look()

    def _again(self, stage: _Stage, number: int) -> None:
        """A run that is repeated is the next that is taken."""
        stage.queues[self.work[number].batch].appendleft(number)

    def _change(self, change: Change) -> None:
        """A machine goes, and what it had in hand begins anew; or it is back."""
        _, kind, by = change
        if by < 0:
            self._lost[kind] += 1
            share = self.cluster.kinds[kind].peer.slots / self._pace.slots
            for stage in self._stages:
                gone = set(self._rng.sample(range(len(stage.hands)), round(share * len(stage.hands))))
                for i in sorted(gone, reverse=True):
                    self._again(stage, stage.hands[i][1])
                stage.hands = [one for i, one in enumerate(stage.hands) if i not in gone]
                heapq.heapify(stage.hands)
        self._alive(tuple(n + by * (k == kind) for k, n in enumerate(self.alive)))


def _exact(number: int) -> int:
    """A number with its first binary digits only, so that few paces are asked for."""
    more = number.bit_length() - EXACT_BITS
    return number if more <= 0 else number >> more << more
