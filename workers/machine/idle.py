"""What a machine does only while nothing else is to be done: it is broken off as soon as work comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from redis.exceptions import RedisError

from grading.broker import celery_app
from workers.machine.engines.base import Cancel
from workers.machine.worker import MachineProcess

LOOK_S = 0.5
Ended = Literal["done", "time", "work", "busy"]


@dataclass
class Limits:
    """How long it may take: until a moment of `time.monotonic`, or until it is cancelled."""

    until: float
    cancel: Cancel = field(default_factory=Cancel)
    ended: Ended = "done"

    @property
    def left_s(self) -> float:
        """Seconds that are left; none once it was cancelled."""
        return 0.0 if self.cancel.cancelled else self.until - time.monotonic()

    def end(self, why: Ended) -> None:
        """Break it off."""
        self.ended = why
        self.cancel.cancel()


@contextmanager
def watched(process: MachineProcess, limits: Limits) -> Iterator[None]:
    """Cancel when the time is over, or when somebody's work comes or waits."""
    over = threading.Event()
    stages = celery_app.stage_queues(list(process.machine.stages))

    def waits() -> bool:
        if process.in_hand() or process.gateway_requests() or process.stopping:
            return True
        try:
            return any(process.leases.lengths([*stages, *process.gateway_queues]).values())
        except RedisError:
            return False  # then no work comes, either

    def watch() -> None:
        while not over.wait(LOOK_S):
            if limits.left_s <= 0:
                return limits.end("time")
            if waits():
                return limits.end("work")

    thread = threading.Thread(target=watch, name="idle-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
