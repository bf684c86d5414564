"""Starting a Celery worker in this process, the same way for machines and for the store."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from celery import Celery, signals

log = logging.getLogger(__name__)
SWITCH_S = 0.0005
POOL = "workers.thread_pool:SlotThreads"


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
        log.info("%s takes work from %s on %d threads", name, ", ".join(queues), concurrency)

    def on_stopping(**_: Any) -> None:
        stopping()

    app.conf.worker_pool = POOL
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
        # beats of Celery's own, for monitors only; see grading/broker/leases.py for ours
        *([] if monitored else ["--without-heartbeat"]),
    ]


def _leave_logging(**_: Any) -> None:
    """Keep Celery from changing handlers and levels."""
