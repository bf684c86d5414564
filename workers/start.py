"""Starting a Celery worker in this process, the same way for machines and for the store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from celery import Celery, signals

SWITCH_S = 0.0005


def run_worker(
    app: Celery, name: str, queues: Sequence[str], concurrency: int, ready: Callable[[], None]
) -> None:
    """Consume `queues`, first ones first, on `concurrency` threads until SIGTERM; `ready` is called once.

    Threads, because in-process models do not survive a fork and because a busy thread pool still answers.
    """

    def on_ready(**_: Any) -> None:
        ready()

    # the thread that takes messages off Redis must not wait 5 ms for one that computes
    sys.setswitchinterval(SWITCH_S)
    signals.worker_ready.connect(on_ready, weak=False)
    app.worker_main(
        [
            "worker",
            "--pool=threads",
            f"--concurrency={concurrency}",
            f"--queues={','.join(queues)}",
            f"--hostname={name}@%h",
            "--loglevel=WARNING",
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
        ]
    )
