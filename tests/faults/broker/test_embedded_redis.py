"""The embedded Redis of `grader up` is killed while 60 submissions are in flight."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from cli.dev.embedded_redis import free_port
from grading.store import Store
from tests.faults.deploy.test_supervisor import REDIS, start
from tests.faults.harness.machines import MachineSpec, config_of
from tests.support.system import ASSIGNMENT, alive, assert_graded_once, count_final, furnish, until

SUBMISSIONS = 60
WORK = b"x <- 1\nprint(x)\n"


@dataclass(frozen=True)
class Outcome:
    """How much had ended when Redis was killed, and what was said of it."""

    ended_then: int
    log: str
    store_url: str


def redis_pid(folder: Path) -> int:
    """Of the server that holds the lock of the folder."""
    return int((folder / "var" / "redis" / "redis.lock").read_text().split()[2])


def play(folder: Path, database_url: str) -> Outcome:
    """Submit 60, kill Redis in the middle, wait for the last."""
    port, machines = free_port(), [MachineSpec("one", slots=4), MachineSpec("two", slots=4)]
    (folder / "config.toml").write_text(config_of(machines, port, REDIS.format(free_port())))
    up, store = start(folder, database_url, port), Store(database_url)
    try:
        client = furnish(store, f"http://127.0.0.1:{port}")
        for number in range(SUBMISSIONS):
            client.submit({"work.R": WORK}, ASSIGNMENT, f"student-{number}")
        until(lambda: count_final(store) >= 5, 90, "some are graded")
        killed, ended_then = redis_pid(folder), count_final(store)
        os.killpg(killed, signal.SIGKILL)
        until(lambda: redis_pid(folder) != killed and alive(redis_pid(folder)), 60, "Redis runs again")
        until(lambda: count_final(store) >= SUBMISSIONS, 120, f"all are graded; see {folder}")
        return Outcome(ended_then, (folder / "up.log").read_text(), database_url)
    finally:
        store.close()
        up.send_signal(signal.SIGTERM)
        up.wait(60)


def test_every_submission_in_flight_is_graded_once(outcome: Outcome) -> None:
    assert outcome.ended_then < SUBMISSIONS  # else nothing was in flight
    assert "redis ended with status -9; starting it again" in outcome.log
    store = Store(outcome.store_url)
    try:
        assert_graded_once(store, SUBMISSIONS)
    finally:
        store.close()
