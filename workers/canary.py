"""A worker's own canary: the task that answers, and the watch that ends a worker which takes no work."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from celery import Celery
from celery.worker.state import active_requests, all_total_count
from redis.exceptions import RedisError

from grading.broker import celery_app
from grading.broker.canaries import OVERDUE_S, Canaries, Waiting

log = logging.getLogger(__name__)
LOOK_EVERY_S = 5.0
STEADY_S = 45.0
"""So long Redis must have answered and a slot been free: after an outage a worker connects again in 30 s."""
LET_FINISH_S = 600.0
"""So long a worker that takes nothing new may go on with what it has."""
EXIT_STATUS = 75
"""EX_TEMPFAIL: whoever supervises this process starts it again."""


def leave() -> None:
    """End this process now; its supervisor starts it again."""
    logging.shutdown()
    os._exit(EXIT_STATUS)


@dataclass
class Watch:
    """Looks whether this process answers its canaries; if not, although it could, ends it.

    A busy worker is not disturbed: while all slots work, or `paused` says that it takes nothing on purpose,
    nothing is expected of it. Nor is anything while Redis is away, or no canary was sent.
    """

    canaries: Canaries
    queue: str
    slots: int
    paused: Callable[[], bool] = lambda: False
    busy: Callable[[], int] = lambda: len(active_requests)
    begun: Callable[[], int] = lambda: int(all_total_count[0])
    clock: Callable[[], float] = time.monotonic
    end: Callable[[], None] = leave
    _steady_since: float | None = None
    _begun: int = 0
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def look(self) -> None:
        """One look."""
        try:
            canary = self.canaries.waiting([self.queue]).get(self.queue, Waiting(0.0, 0.0))
        except RedisError:
            self._steady_since = None
            return
        busy, moment = self.busy(), self.clock()
        before, self._begun = self._begun, self.begun()
        if busy >= self.slots or self.paused() or self._begun != before:
            self._steady_since = None  # it is busy, is to take nothing, or has just taken something
            return
        if self._steady_since is None:
            self._steady_since = moment
        mine = canary.sent_s < moment - self._started  # not left over from before this process
        if not mine or canary.waits_s < OVERDUE_S or moment - self._steady_since < STEADY_S:
            return
        if busy and canary.waits_s < OVERDUE_S + LET_FINISH_S:
            return
        log.critical(
            "%s took no work for %.0f s although it could; this process ends and is started again",
            self.queue,
            canary.waits_s,
        )
        self.end()

    def run(self, stop: threading.Event) -> None:
        """Look every 5 s; the body of a thread."""
        while not stop.wait(LOOK_EVERY_S):
            try:
                self.look()
            except Exception:
                log.exception("the watch could not look; it looks again")  # it must outlive anything


def register(app: Celery, canaries: Canaries, own_queue: str) -> None:
    """Make the canary known to a worker's application."""

    @app.task(name=celery_app.CANARY, ignore_result=True)
    def canary() -> None:
        canaries.answer(own_queue)


def keep_watch(watch: Watch, stop: threading.Event) -> None:
    """Watch from now on, in a thread of its own."""
    threading.Thread(target=watch.run, args=(stop,), name="canary-watch", daemon=True).start()
