"""How many generations at once are best on a machine: the fewest that bring nearly all it can do.

It begins with all slots and tries one step at a time, under full load only, against what it measured just
before. With nothing measured, it stays at all slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

NEARLY = 0.97
"""Part of the best throughput that is enough: more at once would only make each slower."""
CLEARLY = 0.9
"""What was seen by chance to do less than this part is not tried."""
LOOK_S = 600.0
"""Under full load, before something else is tried: a try costs what it finds out."""
SOON = 0.3
"""After this part of it, where fewer were seen by chance to do as much."""
TRY_S = 60.0
"""Under full load, before a try is judged; a bad one after half of that."""
LONGEST_TRY_S = 240.0
"""Before it is judged even if fewer jobs' worth of work were done than there are at once."""
SETTLE_S = 10.0
"""At the beginning of a try the batch is not yet as it will be."""
GIVE_UP_S = 600.0
"""A try that does not come to an end, as there is too little work."""
AGAIN_S = 1800.0
"""Before a try is repeated; twice as long each time it brought nothing."""
LATEST_AGAIN_S = 4 * 3600.0
MEMORY_S = 300.0
"""Of so many seconds, throughput is the mean."""
CHANGED = 0.7
"""Throughput that fell to this part, or rose to its inverse, makes a try worth while at once."""


@dataclass
class _Rate:
    """Work a second at one concurrency."""

    work: float = 0.0
    seconds: float = 0.0
    at: float = -math.inf

    def add(self, now: float, work: float, seconds: float) -> None:
        keep = math.exp(-seconds / MEMORY_S)
        self.work, self.seconds, self.at = self.work * keep + work, self.seconds * keep + seconds, now

    @property
    def value(self) -> float:
        return self.work / self.seconds if self.seconds else 0.0


@dataclass
class Best:
    """The best number of generations at once between `least` and `slots`, as measured so far."""

    least: int
    slots: int
    limit: int = 0
    """As many it takes now."""
    _home: int = 0
    """What a try goes back to; 0: nothing is tried."""
    _rates: dict[int, _Rate] = field(default_factory=dict)
    _due: dict[int, float] = field(default_factory=dict)
    _wait: dict[int, float] = field(default_factory=dict)
    _full_s: float = 0.0
    _since: float = 0.0
    _settled: float = 0.0
    """Throughput when it was last compared with another."""
    _reference: float = 0.0
    """The best throughput of those that were left for fewer."""

    def __post_init__(self) -> None:
        self.least = min(self.least, self.slots)
        self.limit = self.slots
        self._steps = steps(self.least, self.slots)

    @property
    def why(self) -> str:
        """In one sentence."""
        if self._home:
            return f"{self.limit} of {self.slots}: tried, to see whether they do as much"
        if self.limit < self.slots:
            more = self._rates.get(self._beside(1))
            less = more is not None and more.value < NEARLY * self._rate(self.limit)
            return f"{self.limit} of {self.slots}: more {'do less' if less else 'bring nothing'}"
        if self.slots == self.least:
            return f"all {self.slots}: as set"
        return f"all {self.slots}: {'fewer do less' if self._wait else 'nothing else is measured yet'}"

    def restore(self, limit: int) -> None:
        """Begin with what was best earlier."""
        self.limit = max((s for s in self._steps if s <= limit), default=self.limit)

    @property
    def settled(self) -> int:
        """The best known, whatever is tried now."""
        return self._home or self.limit

    def saw(self, now: float, at_once: int, work: float, seconds: float) -> None:
        """In the last `seconds`, with so many in the batch of one model, so much work was done.

        The unit of work is a usual job.
        """
        step = next((s for s in self._steps if CLEARLY * s < at_once <= s), 0)
        if step == self.limit:
            self._full_s += seconds
        if step and not (self._home and step == self.limit and self._full_s <= SETTLE_S):
            self._rates.setdefault(step, _Rate()).add(now, work, seconds)
        if self._home:
            self._judge(now)
        elif self._full_s >= SOON * LOOK_S:
            self._consider(now)

    def _consider(self, now: float) -> None:
        rate = self._rate(self.limit)
        if rate <= 0:
            return
        down, up = self._beside(-1), self._beside(1)
        if self._settled and rate < CHANGED * self._settled:
            self._due[down], self._settled, self._reference = now, rate, 0.0
        elif self._settled and rate > self._settled / CHANGED:
            self._due[up], self._settled, self._reference = now, rate, 0.0
        self._settled = self._settled or rate
        for other in (down, up):
            if other == self.limit or self._due.get(other, 0.0) > now:
                continue
            seen = self._by_chance(now, other) / rate
            if 0 < seen < (CLEARLY if other == down else 1.0):
                self._put_off(now, other)
            elif self._full_s >= LOOK_S or seen >= (NEARLY if other == down else 1 / NEARLY):
                self._go(now, other, home=self.limit)
                self._rates[other] = _Rate()
                return

    def _by_chance(self, now: float, other: int) -> float:
        """What so many did, when there were so many; 0 when that is not known well."""
        seen = self._rates.get(other)
        known = seen is not None and seen.seconds >= TRY_S / 2 and now - seen.at < AGAIN_S
        return self._rate(other) if known else 0.0

    def _judge(self, now: float) -> None:
        tried, home = self.limit, self._home
        new, best = self._rates[tried], max(self._rate(home), self._reference)
        enough = new.seconds >= TRY_S and (new.work >= tried or new.seconds >= LONGEST_TRY_S)
        bad = new.seconds >= TRY_S / 2 and new.value < CLEARLY * best
        if not (enough or bad):
            if now - self._since >= GIVE_UP_S:
                self._due[tried] = now + AGAIN_S
                self._go(now, home)
        elif tried < home and new.value >= NEARLY * best:
            self._reference = best
            self._due[home] = now + self._wait.setdefault(home, AGAIN_S)
            self._go(now, tried)
        elif tried > home and new.value >= self._rate(home) / NEARLY:
            self._reference = 0.0
            self._due[home] = now + AGAIN_S
            self._wait.pop(tried, None)
            self._go(now, tried)
        else:
            self._put_off(now, tried)
            self._go(now, home)

    def _put_off(self, now: float, step: int) -> None:
        wait = self._wait.get(step, AGAIN_S)
        self._due[step], self._wait[step] = now + wait, min(LATEST_AGAIN_S, 2 * wait)

    def _go(self, now: float, to: int, home: int = 0) -> None:
        if not home:
            self._settled = 0.0
        self.limit, self._home, self._since, self._full_s = to, home, now, 0.0

    def _rate(self, step: int) -> float:
        rate = self._rates.get(step)
        return rate.value if rate else 0.0

    def _beside(self, by: int) -> int:
        """The next step down or up, or where it is when there is none."""
        at = self._steps.index(self.limit) + by
        return self._steps[min(max(0, at), len(self._steps) - 1)]


def steps(least: int, slots: int) -> tuple[int, ...]:
    """What is tried: 1, 2, 3, 4, 6, 8, 12, 16, … between the two, and both."""
    powers = [n for k in range(10) for n in (2**k, 3 * 2**k)]
    return tuple(sorted({n for n in powers if least < n < slots} | {least, slots}))
