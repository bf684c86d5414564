"""A least-recently-used cache, bounded in weight and age, with keys made of the content.

A key holds the content itself, or its hash, so that nothing here is ever out of date. It goes with age, too:
what is erased elsewhere does not stay here for long.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
AGE_S = 600.0
"""Nothing is used for longer; all that is older goes when something new comes."""


class BoundedCache(Generic[T]):
    """Values by key, together at most so heavy; those that were not used for longest go first."""

    def __init__(self, most: int, age_s: float = AGE_S) -> None:
        self._most, self._age_s = most, age_s
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, tuple[float, int, T]] = OrderedDict()
        self._weight = 0

    def get(self, key: Hashable, weight: int, make: Callable[[], T]) -> T:
        """The value of this key, made now unless it is known; two threads may make it at once."""
        found = self.find(key)
        if found is None:
            found = make()
            self.put(key, weight, found)
        return found

    def find(self, key: Hashable) -> T | None:
        """The value of this key, or nothing."""
        with self._lock:
            found = self._known.get(key)
            if found is None or time.monotonic() - found[0] > self._age_s:
                return None
            self._known.move_to_end(key)
            return found[2]

    def put(self, key: Hashable, weight: int, value: T) -> None:
        """Remember this."""
        moment = time.monotonic()
        with self._lock:
            for one in [one for one, (at, _, _) in self._known.items() if moment - at > self._age_s]:
                self._drop(one)
            self._drop(key)
            self._known[key] = moment, weight, value
            self._weight += weight
            while self._weight > self._most:
                self._drop(next(iter(self._known)))

    def _drop(self, key: Hashable) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            self._weight -= known[1]


def mark(*contents: object) -> str:
    """The same for the same contents, in the same order."""
    digest = hashlib.sha256()
    for content in contents:
        raw = content if isinstance(content, bytes) else str(content).encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(raw) + raw)
    return digest.hexdigest()
