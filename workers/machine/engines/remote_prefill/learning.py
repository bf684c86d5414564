"""What the planner has learned so far, by model; and which readers are left alone for a while."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from workers.machine.engines.remote_prefill.planner import (
    HERE,
    Choice,
    Faded,
    Known,
    Took,
    Work,
    choose,
    learned,
    names,
    slow,
)

FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0
KEEP_PREFIXES = 64
"""Prefixes of which it is remembered who knows them."""


class Learning:
    """Thread-safe. `readers` are the names of the machines that read for this one."""

    def __init__(self, readers: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._readers = tuple(readers)
        self._clock = clock
        self._known: dict[str, Mapping[str, Known]] = {}
        self._there: OrderedDict[tuple[str, tuple[int, ...]], set[str]] = OrderedDict()
        self._pauses: dict[str, tuple[float, float]] = {}
        self._seconds = Faded()
        self._lock = threading.Lock()

    def known(self, model: str) -> Mapping[str, Known]:
        """What is known of a model's ways, of those that can be taken now."""
        now = self._clock()
        with self._lock:
            away = {name for name, (until, _) in self._pauses.items() if until > now}
            known = self._known.get(model) or names(self._readers)
            return {name: one for name, one in known.items() if name not in away}

    def choose(self, model: str, work: Work) -> Choice:
        """The way for a prompt."""
        return choose(self.known(model), work)

    def nearest(self, times: Mapping[str, float]) -> str:
        """The reader that should be the fastest, or was never asked; empty where all are away."""
        now = self._clock()
        with self._lock:
            there = [name for name in self._readers if self._pauses.get(name, (0.0, 0.0))[0] <= now]
        return min(there, key=lambda name: times.get(name, 0.0), default="")

    def there(self, model: str, prefix: tuple[int, ...]) -> Mapping[str, int]:
        """How many first tokens of a prefix each reader should know by now."""
        with self._lock:
            return dict.fromkeys(self._there.get((model, prefix), ()), len(prefix))

    def learn(self, model: str, name: str, work: Work, took: Took, predicted: float | None) -> None:
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
