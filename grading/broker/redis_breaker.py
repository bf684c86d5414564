"""Not asking again at once what just did not answer, so that those who look do not wait for it in turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LEAST_S = 1.0
MOST_S = 15.0


class Breaker:
    """Closed while answers come. After a failure it is open for as long as that took, 1 to 15 s; then one
    caller tries, and all others are told at once that there is no answer. `clock` in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open_until = 0.0
        self._failed = False
        self._probing = False

    def admits(self) -> bool:
        """Whether to ask now; who may, tells the outcome by `succeeded` or `failed`."""
        with self._lock:
            if not self._failed:
                return True
            if self._probing or self._clock() < self._open_until:
                return False
            self._probing = True
            return True

    def succeeded(self) -> None:
        """There was an answer."""
        with self._lock:
            self._failed = self._probing = False

    def failed(self, after_s: float) -> None:
        """There was none, after so many seconds."""
        with self._lock:
            self._failed, self._probing = True, False
            self._open_until = self._clock() + min(max(after_s, LEAST_S), MOST_S)
