"""Starts a Celery worker in this process; a watchdog ends one that takes no more tasks."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from billiard.einfo import ExceptionInfo
from celery import Celery, signals
from celery.concurrency.base import apply_target
from celery.concurrency.thread import ApplyResult, TaskPool
from celery.worker.state import active_requests, all_total_count
from redis.exceptions import RedisError

from grading.broker import celery_app
from grading.broker.canaries import OVERDUE_S, Canaries, Waiting

log = logging.getLogger(__name__)


class SlotThreads(TaskPool):
    """Threads that tell the consumer of every end.

    Where a result cannot be stored, Celery stores an error; where that fails as well, what it raises ends in
    the thread. The consumer then takes the task for one under way for ever: the slot is lost, and a worker
    that lost all of them looks busy. A like fault of other pools is celery/celery#10462.
    """

    def on_apply(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Callable[..., Any] | None = None,
        error_callback: Callable[..., Any] | None = None,
        **_: Any,
    ) -> ApplyResult:
        """Begin a task as soon as a thread is free."""

        def work() -> None:
            try:
                apply_target(target, args or (), kwargs, callback, accept_callback)
            except Exception:
                log.exception("the end of a task could not be recorded; its slot is free again")
                if error_callback is not None:
                    error_callback(ExceptionInfo(), return_ok=True)  # recording it was tried already

        return ApplyResult(self.executor.submit(work))


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
            "the consumer of %s has stalled: no task taken for %.0f s with free slots; exiting to "
            "be restarted",
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
                log.exception("the check of the consumer failed, retrying")  # it must outlive anything


def register_canary(app: Celery, canaries: Canaries, own_queue: str) -> None:
    """Make the canary known to a worker's application."""

    @app.task(name=celery_app.CANARY, ignore_result=True)
    def canary() -> None:
        canaries.answer(own_queue)


def keep_watch(watch: Watch, stop: threading.Event) -> None:
    """Watch from now on, in a thread of its own."""
    threading.Thread(target=watch.run, args=(stop,), name="canary-watch", daemon=True).start()


SWITCH_S = 0.0005
SUCCESSOR_S = 10.0
"""So long a connection waits for a successor of Redis; Celery waits ever longer between its tries."""
POOL = "workers.celery_worker:SlotThreads"


def run_worker(
    app: Celery,
    name: str,
    queues: Sequence[str],
    concurrency: int,
    ready: Callable[[Any], None],
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Consume `queues`, first ones first, on `concurrency` threads until SIGTERM.

    `ready` is called once, with Celery's consumer; `stopping` when the end was asked for and what is under
    way goes on.

    Threads, because in-process models do not survive a fork and because a busy thread pool still answers.
    """

    def on_ready(sender: Any, **_: Any) -> None:
        ready(sender)
        log.info("worker %s consumes the queues %s with concurrency %d", name, ", ".join(queues), concurrency)

    def on_stopping(**_: Any) -> None:
        stopping()

    app.conf.worker_pool = POOL
    if "address" in app.conf.broker_transport_options:  # of sentinels
        app.conf.broker_transport_options = {
            **app.conf.broker_transport_options,
            "successor_s": SUCCESSOR_S,
        }
    # the thread that takes messages off Redis must not wait 5 ms for one that computes
    sys.setswitchinterval(SWITCH_S)
    # logging is set up by the command, once for all
    signals.setup_logging.connect(_leave_logging, weak=False)
    signals.worker_ready.connect(on_ready, weak=False)
    signals.worker_shutting_down.connect(on_stopping, weak=False)
    app.worker_main(_arguments(app, name, queues, concurrency))


def _arguments(app: Celery, name: str, queues: Sequence[str], concurrency: int) -> list[str]:
    monitored = app.conf.worker_send_task_events
    return [
        "--quiet",
        "worker",
        f"--concurrency={concurrency}",
        f"--queues={','.join(queues)}",
        f"--hostname={name}@%h",
        "--loglevel=WARNING",
        "--without-gossip",
        "--without-mingle",
        # heartbeats of Celery's own, for monitors only; see grading/broker/leases.py for ours
        *([] if monitored else ["--without-heartbeat"]),
    ]


def _leave_logging(**_: Any) -> None:
    """Keep Celery from changing handlers and levels."""
