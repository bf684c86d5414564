"""What the mlx engine counts. Written on any thread, read on any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

COUNTED = (
    "requests",
    "cancelled",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "prefix_lookups",
    "prefix_hits",
    "decode_steps",
    "prefill_chunks",
)


class Tally:
    """Counts since the start; `more` beside those of all engines."""

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._counts = dict.fromkeys((*COUNTED, *more), 0.0)
        self._lock = threading.Lock()

    def add(self, **counts: int) -> None:
        """Count more, by name."""
        with self._lock:
            for name, count in counts.items():
                self._counts[name] += count

    def read(self) -> Mapping[str, float]:
        """All counts."""
        with self._lock:
            return dict(self._counts)
