"""Telling machines what still waits in SQL; they plan with it, and never see the database."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from grading.broker.dispatch import Dispatch
from grading.store import Store
from grading.store.rounds import queue

MOST = 2_000
"""Rounds of a priority that are counted; for a plan, more are as good as so many."""
FEW = 200
"""Runs that are counted after each helping."""
EVERY_S = 1.0
"""More are counted no more often than this."""


@dataclass
class Told:
    """When this process last counted, and how much there was: counting costs what is counted."""

    clock: Callable[[], float] = time.monotonic
    at: float = float("-inf")
    runs: int = 0

    def tell(self, store: Store, dispatch: Dispatch, *, left: bool) -> None:
        """Count and tell, unless that was done a moment ago; `left` if something may wait.

        Raises redis and database errors.
        """
        moment = self.clock()
        if moment - self.at < EVERY_S and (self.runs > FEW or (self.runs == 0 and not left)):
            return
        with store.read() as session:
            found = queue.backlog(session, MOST)
        self.at, self.runs = moment, sum(found.values())
        dispatch.tell_backlog(found)
