"""The yardstick: a Celery chord of two empty tasks and an empty body, a worker process for each.

`python -m bench.celery_chord URL QUEUE` is such a worker. Settings are those of Grader.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery, chord
from celery.backends.redis import RedisBackend
from celery.canvas import Signature

from grading.broker.celery_app import celery_app
from grading.broker.connections import connect

QUEUES = ("bare-a", "bare-b", "bare-body")
DONE = "bare:done"
VISIBLE_S = 1200


class UnwatchedRedis(RedisBackend):
    """Redis results without a subscription for every task that is sent: the bare chord at its fastest."""

    def on_task_call(self, producer: Any, task_id: str) -> None:
        """Subscribe to nothing."""

    def add_pending_result(self, result: Any, weak: bool = False, start_drainer: bool = True) -> Any:
        """Wait for nothing."""
        return result


def bare_app(url: str) -> Celery:
    """Grader's application, with the results that a chord counts in."""
    app = celery_app(url, VISIBLE_S)
    app.conf.update(
        result_backend=f"bench.celery_chord:UnwatchedRedis+{url}",
        task_ignore_result=False,
        result_serializer="json",
        result_expires=3600,
        result_backend_always_retry=True,
        result_backend_transport_options={"visibility_timeout": VISIBLE_S},
        visibility_timeout=VISIBLE_S,
    )
    return app


def serve(url: str, queue: str) -> None:
    """One worker with one thread."""
    app = bare_app(url)
    client = connect(url)

    @app.task(name="grader.bench.header")
    def header(value: str) -> str:
        return value

    @app.task(name="grader.bench.body", ignore_result=True)
    def body(_values: list[str], key: str) -> None:
        client.lpush(DONE, f"{key} {time.time()}")

    app.worker_main(
        [
            "worker",
            "--pool=threads",
            "--concurrency=1",
            f"--queues={queue}",
            f"--hostname={queue}@%h",
            "--loglevel=ERROR",
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
        ]
    )


@contextmanager
def workers(url: str) -> Iterator[None]:
    """The three workers, while the block runs."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.celery_chord", url, queue],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for queue in QUEUES
    ]
    try:
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(30)


class BareChord:
    """Sends bare chords and waits for them."""

    def __init__(self, url: str) -> None:
        self.app: Celery = bare_app(url)
        self.client = connect(url)

    def send(self, key: str) -> None:
        """Send one chord."""
        header = [
            Signature("grader.bench.header", args=("x",), app=self.app).set(queue=queue)
            for queue in QUEUES[:2]
        ]
        body = Signature("grader.bench.body", args=(key,), app=self.app).set(
            queue=QUEUES[2], ignore_result=True
        )
        chord(header, app=self.app)(body)

    def wait(self, timeout_s: int = 60) -> float:
        """Wait for the next body; returns the wall-clock second at which it ran."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            # shorter than the connection's own patience
            answer = self.client.blpop(DONE, timeout=1)
            if isinstance(answer, list | tuple):
                return float(str(answer[1]).split()[1])
        raise TimeoutError("the bare chord did not end")

    def seconds(self, key: str) -> float:
        """From sending one chord to the end of its body."""
        started = time.perf_counter()
        self.send(key)
        self.wait()
        return time.perf_counter() - started


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
