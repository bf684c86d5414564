"""How fast the sandbox runs submissions, and how long one waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

NEWEST = 0.2
"""Weight of the newest run in the mean, so that about the last ten count."""


@dataclass(frozen=True)
class Rate:
    """Slots of sandbox workers, and the wall seconds of one run."""

    slots: int
    seconds: float


class Mean:
    """Exponentially weighted mean of runs' wall seconds. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds = 0.0

    def learn(self, seconds: float) -> None:
        """One more run."""
        with self._lock:
            known = self._seconds
            self._seconds = seconds if known == 0.0 else known + NEWEST * (seconds - known)

    @property
    def seconds(self) -> float:
        """Of one run; 0 as long as there was none."""
        with self._lock:
            return self._seconds


def together(rates: Iterable[Rate]) -> Rate | None:
    """Of several processes; None when none has run anything."""
    known = [rate for rate in rates if rate.slots > 0 and rate.seconds > 0]
    if not known:
        return None
    slots = sum(rate.slots for rate in known)
    return Rate(slots, slots / sum(rate.slots / rate.seconds for rate in known))


def seconds_until_checked(waiting: int, slots: int, seconds_per_run: float) -> float:
    """Until the last of `waiting` submissions has run, itself included.

    All slots together end `slots / seconds_per_run` runs a second, and no run is over before its own time:
    `max(waiting / slots, 1) * seconds_per_run`; 0 when nothing waits.
    """
    return max(waiting / slots, 1.0) * seconds_per_run if waiting > 0 else 0.0
