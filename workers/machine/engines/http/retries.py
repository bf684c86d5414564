"""Waits for a server that has no room just now, within bounds, and tries again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from grading.domain.errors import EngineBusy
from workers.machine.engines.base import Progress
from workers.machine.engines.http.watch import Watch

T = TypeVar("T")
SHARE = 0.25
"""The most of a job's time that is spent waiting for room."""
FIRST_S = 0.5
LONGEST_S = 10.0


class Patience:
    """Tries until a server has room: waits at most `most_s` and a quarter of the job's time in all.

    Waits grow and are drawn anew each time, so that those that were refused together do not come together.
    """

    def __init__(self, watch: Watch, progress: Progress, most_s: float) -> None:
        self._watch = watch
        self._progress = progress
        self._most = min(most_s, SHARE * watch.remaining)
        self._next = FIRST_S
        self.waited = 0.0
        """Seconds so far."""

    def until_room(self, attempt: Callable[[], T]) -> T:
        """What the attempt gives; EngineBusy when there is no room in time, and what ends the watch."""
        while True:
            try:
                return attempt()
            except EngineBusy as busy:
                self._wait(busy)

    def _wait(self, busy: EngineBusy) -> None:
        # drawn to spread requests out, not to be hard to guess
        wait = min(self._next * random.uniform(0.5, 1.0), self._most - self.waited)
        if wait <= 0:
            raise EngineBusy(
                f"{busy.message} It was asked again for {self.waited:.0f} s. Give the machine fewer slots, "
                "or let the server take more at once."
            ) from busy
        self._progress(0, "queued")
        self._watch.wait(wait)
        self._watch.again()
        self.waited += wait
        self._next = min(2 * self._next, LONGEST_S)
