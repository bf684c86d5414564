"""How a caller of the mlx engine waits: until it gets what it asked for, its deadline, or it is cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from grading.domain.errors import BudgetExceeded, Cancelled
from workers.machine.engines.base import Cancel, Phase

_T = TypeVar("_T")


class Patience:
    """One caller's waiting. `seconds` from now to the deadline; whatever it waits for calls `wake`."""

    def __init__(self, seconds: float, cancel: Cancel | None = None) -> None:
        self.begun = time.monotonic()
        self.deadline = self.begun + seconds
        self._seconds = seconds
        self._cancel = cancel or Cancel()
        self._woken = threading.Event()
        self._left = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Be woken when the generation is cancelled in the block; after it nobody waits, however it ended."""
        try:
            with self._cancel.heard_by(self.wake):
                yield
        finally:
            self._left = True

    def wake(self) -> None:
        """Let the caller look again. From any thread."""
        self._woken.set()

    @property
    def over(self) -> bool:
        """Whether nobody waits any more."""
        return self._left or self._cancel.said or time.monotonic() >= self.deadline

    def end(self, doing: str = "The model did not finish") -> BudgetExceeded | Cancelled:
        """The error for a caller whose waiting is over; `doing` begins the sentence about the deadline."""
        if self._cancel.said:
            return Cancelled()
        return BudgetExceeded(f"{doing} within the {self._seconds:g} s of this job.")

    def sleep(self, seconds: float | None = None, doing: str = "The model did not finish") -> None:
        """Wait to be woken, at most `seconds`. Raises Cancelled or BudgetExceeded when it is over."""
        if self.over:
            raise self.end(doing)
        left = max(0.0, self.deadline - time.monotonic())
        self._woken.wait(left if seconds is None else min(left, seconds))
        self._woken.clear()

    def wait_for(self, future: Future[_T], doing: str) -> _T:
        """The result of a future. Raises what it raises, Cancelled or BudgetExceeded."""
        future.add_done_callback(lambda _: self.wake())
        while not future.done():
            self.sleep(doing=doing)
        return future.result()


def unheard(_tokens: int, _phase: Phase = "generating", _draft: str = "", /) -> None:
    """Progress of what nobody looks at."""
