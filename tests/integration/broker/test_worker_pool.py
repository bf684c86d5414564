"""A task whose end cannot be recorded must not take its slot along."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from celery import Celery
from redis import Redis

from cli.dev.embedded_redis import start_redis
from grading.broker import celery_app
from tests.support.system import until

WORKER = [sys.executable, "-m", "tests.integration.broker.one_thread_worker"]


@contextmanager
def worker(folder: Path) -> Iterator[tuple[Celery, Redis]]:
    """A worker that is ready, on a Redis of its own."""
    with start_redis(folder) as own, Redis.from_url(own.url) as client:
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([*WORKER, own.url], stdout=log, stderr=log)
        try:
            told(client)
            yield celery_app.celery_app(own.url, 60), client
        finally:
            client.config_set("maxmemory", 0)
            process.terminate()
            process.wait(30)


def told(client: Redis) -> None:
    """Wait until the worker had a thread free to say something."""
    until(lambda: client.lpop("told"), 30, "the worker answers")


def test_a_task_that_cannot_be_recorded_gives_its_thread_back(tmp_path: Path) -> None:
    with worker(tmp_path) as (app, client):
        app.send_task("grader.spoil", queue="tasks")
        app.send_task("grader.tell", queue="tasks", ignore_result=True)
        told(client)
        assert "could not be recorded" in (tmp_path / "log").read_text()


def test_a_redis_that_has_no_room_settles_messages(tmp_path: Path) -> None:
    with worker(tmp_path) as (app, client):
        app.send_task("grader.fill_quietly", queue="tasks", ignore_result=True)
        until(lambda: client.config_get("maxmemory")["maxmemory"] == "1", 30, "redis is full")
        until(lambda: not client.hlen("unacked"), 30, "the message is settled")
        client.config_set("maxmemory", 0)
        app.send_task("grader.tell", queue="tasks", ignore_result=True)
        told(client)


def test_a_message_that_cannot_be_settled_gives_its_place_back(tmp_path: Path) -> None:
    with worker(tmp_path) as (app, client):
        app.send_task("grader.stop_writing", queue="tasks", ignore_result=True)
        until(lambda: b"stays unacknowledged" in (tmp_path / "log").read_bytes(), 30, "redis refuses")
        client.config_set("min-replicas-to-write", 0)
        app.send_task("grader.tell", queue="tasks", ignore_result=True)
        told(client)
        # the first one stays until the visibility timeout; the second is settled once it has told
        until(lambda: client.hlen("unacked") == 1, 30, "one message is left")
