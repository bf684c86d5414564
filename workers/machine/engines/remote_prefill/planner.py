"""Which way to the first token is the fastest: predicted from what was measured, never typed in.

Times in seconds, lengths in tokens. `PlannerStatistics` keeps what jobs teach, all else are pure values.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from grading.domain.messages import Message
from workers.machine.engines.estimators import AGAIN, FADES, NEARLY, PrefillSpeed, WeightedMean
from workers.machine.engines.remote_prefill.messages import (
    FEW_TOKENS,
    NO_READER,
    NOT_MEASURED,
    NOT_TAKEN,
    ON_PAUSED_READER,
    ON_READER,
    PREDICTED,
    READERS_PAUSED,
)

Strategy = Literal["direct", "disaggregated"]
LEAST_BUDGET_S = 1.0
LEAST_BYTES = 1 << 16
"""If less than this came, the reader had not begun."""
LEAST_TOKENS = 256
"""Shorter prompts are read where they are: there is nothing to win, and little to learn."""


@dataclass(frozen=True)
class WayStatistics:
    """What is known of one way."""

    reading: PrefillSpeed = field(default_factory=PrefillSpeed)
    byte_s: WeightedMean = field(default_factory=WeightedMean)
    """Seconds a byte on the link; nothing for what is read here."""
    extra_s: WeightedMean = field(default_factory=WeightedMean)
    """What it takes beside reading and sending."""
    queue_s: WeightedMean = field(default_factory=WeightedMean)
    """What it waited at the prefill machine lately."""
    error: WeightedMean = field(default_factory=lambda: WeightedMean(0.1, 1.0))
    """How far predictions were off, as the absolute logarithm of their ratio."""
    times: int = 0
    """How often this way was taken."""
    since: int = 0
    """Jobs since it was taken last."""

    @property
    def measured(self) -> bool:
        """Whether anything is known of it."""
        return self.times > 0 or self.reading.fit.points > 0

    def passed(self) -> WayStatistics:
        """After a job that went another way."""
        return replace(self, since=self.since + 1)


@dataclass(frozen=True)
class Work:
    """One prompt: what this machine would read, and what another one would read and send."""

    have: int
    """Tokens that are here already."""
    read: int
    """Tokens after them."""
    there: Mapping[str, int]
    """Tokens that each prefill machine knows already."""
    bytes: int
    """To send."""
    waits_s: float = 0.0
    """Until this machine begins to read."""
    step: int = 1024
    """Tokens read in one pass; then their part of the cache is sent."""


@dataclass(frozen=True)
class Choice:
    """A way, why it was taken, and the seconds until the first token that each way was expected to take."""

    strategy: Strategy
    reader: str
    why: Message
    expected_s: Mapping[str, float]
    ordered: bool = False
    """By config.toml, whatever it takes."""


HERE = "here"
"""How the direct way is called among the names of prefill machines."""


def expected(known: WayStatistics, name: str, work: Work) -> float:
    """Seconds until the first token by this way."""
    if name == HERE:
        return work.waits_s + known.reading.seconds(work.have, work.read) + known.extra_s.value
    cached = work.there.get(name, 0)
    total = work.have + work.read
    reading = known.reading.seconds(cached, total - cached)
    sending = work.bytes * known.byte_s.value
    # what was read before is sent at once; else the first piece comes after the first pass
    passes = max(1, math.ceil((total - cached) / work.step))
    first = 0.0 if cached else reading / passes
    # nobody knows how long it waits there now; what it waited then counts less each time
    queue = known.queue_s.value * FADES**known.since
    arrives = queue + max(reading + sending / passes, first + sending) + known.extra_s.value
    return max(arrives, work.waits_s)  # reading elsewhere does not need room here


def choose(
    known: Mapping[str, WayStatistics], work: Work, paused: Mapping[str, float] = MappingProxyType({})
) -> Choice:
    """The way that should be the fastest, one that should be tried, or direct where little can be won.

    `paused` are prefill machines that are left alone after an error, with the seconds until they are asked
    again: what is chosen without them says so.
    """
    readers = [name for name in known if name != HERE]
    times = {name: expected(one, name, work) for name, one in known.items() if one.measured}
    if not readers or work.read < LEAST_TOKENS:
        why = FEW_TOKENS(tokens=work.read) if readers else nobody(paused)
        return Choice("direct", "", why, times)
    best = min(times, key=lambda name: (times[name], name), default=HERE)
    for name in (*readers, HERE):
        near = name not in times or times[name] < NEARLY * times[best]
        if near and not known[name].times:
            return _way(name, NOT_MEASURED(), times)
        if near and known[name].since >= AGAIN:
            return _way(name, NOT_TAKEN(jobs=known[name].since), times)
    here = times[HERE]
    if best != HERE and times[best] * math.exp(_doubt(known[best])) >= here:
        best = HERE
    elsewhere = [ON_READER(reader=name, time=f"{times[name]:.2f} s") for name in readers]
    elsewhere += [ON_PAUSED_READER(reader=name) for name in paused]
    return _way(best, PREDICTED(here=f"{here:.2f} s", elsewhere=elsewhere), times)


def nobody(paused: Mapping[str, float]) -> Message:
    """Why no prefill machine can be asked."""
    if not paused:
        return NO_READER()
    seconds = math.ceil(min(paused.values()))
    return READERS_PAUSED(readers=sorted(paused), seconds=seconds)


def _doubt(known: WayStatistics) -> float:
    """By how much a prediction may be off before another way is better: half of what it usually was."""
    return min(0.5 * known.error.value, 0.1)


def _way(name: str, why: Message, times: Mapping[str, float]) -> Choice:
    return Choice("direct" if name == HERE else "disaggregated", "" if name == HERE else name, why, times)


def learned(
    known: Mapping[str, WayStatistics], name: str, work: Work, took: WayTimes, predicted: float | None
) -> dict[str, WayStatistics]:
    """What is known after a job that went this way and took so long."""
    made = {other: one.passed() for other, one in known.items()}
    one = known[name]
    reading = one.reading.seen(took.have, took.read, took.read_s)
    byte_s = one.byte_s.seen(took.send_s / took.bytes) if took.bytes else one.byte_s
    now = replace(one, reading=reading, byte_s=byte_s, times=one.times + 1, since=0)
    done = replace(work, waits_s=0.0, there={name: took.have})
    rest = (
        took.first_s
        - took.queued_s
        - expected(replace(now, extra_s=WeightedMean(), queue_s=WeightedMean()), name, done)
    )
    error = one.error
    if predicted and one.times:
        error = error.seen(abs(math.log(max(took.first_s - took.queued_s, 1e-6) / predicted)))
    made[name] = replace(
        now,
        extra_s=one.extra_s.seen(max(0.0, rest)),
        queue_s=one.queue_s.seen(took.queued_there_s),
        error=error,
    )
    return made


def budget_s(choice: Choice) -> float:
    """Seconds that reading elsewhere may take: as long as it should, and as reading here would on top.

    So what is lost by giving up is never more than what reading here takes.
    """
    times = choice.expected_s
    return (
        math.inf
        if choice.ordered
        else max(LEAST_BUDGET_S, times.get(choice.reader, 0.0) + times.get(HERE, 0.0))
    )


def slow(
    known: Mapping[str, WayStatistics], name: str, seconds: float, received: int
) -> dict[str, WayStatistics]:
    """What is known after a way took too long: `received` bytes came in `seconds`, or none."""
    one = replace(known[name], times=known[name].times + 1, since=0)
    if received < LEAST_BYTES:
        return {**known, name: replace(one, queue_s=one.queue_s.seen(seconds))}
    return {**known, name: replace(one, byte_s=one.byte_s.seen(seconds / received))}


@dataclass(frozen=True)
class WayTimes:
    """What a way took, measured: until the first token, and in parts."""

    first_s: float
    have: int
    read: int
    read_s: float
    queued_s: float = 0.0
    bytes: int = 0
    send_s: float = 0.0
    queued_there_s: float = 0.0


def names(readers: Sequence[str]) -> dict[str, WayStatistics]:
    """Nothing is known yet."""
    return {HERE: WayStatistics(), **{name: WayStatistics() for name in readers}}


FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0
KEEP_PREFIXES = 64
"""Prefixes of which it is remembered who knows them."""


class PlannerStatistics:
    """Thread-safe. `readers` are the names of the machines that read for this one."""

    def __init__(self, readers: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._readers = tuple(readers)
        self._clock = clock
        self._known: dict[str, Mapping[str, WayStatistics]] = {}
        self._there: OrderedDict[tuple[str, tuple[int, ...]], set[str]] = OrderedDict()
        self._pauses: dict[str, tuple[float, float]] = {}
        self._seconds = WeightedMean()
        self._lock = threading.Lock()

    def known(self, model: str) -> Mapping[str, WayStatistics]:
        """What is known of a model's ways, of those that can be taken now."""
        paused = self.paused()
        with self._lock:
            known = self._known.get(model) or names(self._readers)
            return {name: one for name, one in known.items() if name not in paused}

    def choose(self, model: str, work: Work) -> Choice:
        """The way for a prompt."""
        return choose(self.known(model), work, self.paused())

    def paused(self) -> Mapping[str, float]:
        """The readers that are left alone after an error, with the seconds until they are asked again."""
        now = self._clock()
        with self._lock:
            return {name: until - now for name, (until, _) in self._pauses.items() if until > now}

    def nearest(self, times: Mapping[str, float]) -> str:
        """The reader that should be the fastest, or was never asked; empty where all are away."""
        paused = self.paused()
        there = [name for name in self._readers if name not in paused]
        return min(there, key=lambda name: times.get(name, 0.0), default="")

    def there(self, model: str, prefix: tuple[int, ...]) -> Mapping[str, int]:
        """How many first tokens of a prefix each reader should know by now."""
        with self._lock:
            return dict.fromkeys(self._there.get((model, prefix), ()), len(prefix))

    def learn(self, model: str, name: str, work: Work, took: WayTimes, predicted: float | None) -> None:
        """A job went this way."""
        with self._lock:
            known = self._known.get(model) or names(self._readers)
            self._known[model] = learned(known, name, work, took, predicted)
            if name != HERE:
                self._pauses.pop(name, None)

    def took(self, seconds: float) -> None:
        """A generation took so long, from its coming to its end."""
        with self._lock:
            self._seconds = self._seconds.seen(seconds)

    def waits_s(self, counters: Mapping[str, float], slots: int) -> float:
        """How long somebody who comes now waits for room in the batch."""
        ahead = counters["waiting"] + 1
        return ahead * self._seconds.value / slots if counters["running"] >= slots else 0.0

    def probed(self, model: str, have: int, tokens: int, seconds: float) -> None:
        """So many tokens after `have` others were read here to know how fast it goes."""
        with self._lock:
            known = self._known.get(model) or names(self._readers)
            here = known[HERE]
            self._known[model] = {
                **known,
                HERE: replace(here, reading=here.reading.seen(have, tokens, seconds)),
            }

    def too_slow(self, model: str, name: str, seconds: float, received: int) -> None:
        """A way took too long; `received` bytes had come in `seconds`, or none."""
        with self._lock:
            self._known[model] = slow(self._known.get(model) or names(self._readers), name, seconds, received)

    def asked(self, model: str, prefix: tuple[int, ...], name: str) -> None:
        """A reader has read a prompt with this prefix."""
        with self._lock:
            self._there.setdefault((model, prefix), set()).add(name)
            self._there.move_to_end((model, prefix))
            while len(self._there) > KEEP_PREFIXES:
                self._there.popitem(last=False)

    def failed(self, name: str) -> None:
        """Leave a reader alone for a while, twice as long each time."""
        with self._lock:
            _, before = self._pauses.get(name, (0.0, 0.0))
            pause = min(max(2 * before, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            self._pauses[name] = (self._clock() + pause, pause)
            for key in list(self._there):
                self._there[key].discard(name)
