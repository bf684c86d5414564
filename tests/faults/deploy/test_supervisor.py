"""`grader up`: its Redis is killed while submissions are in flight, then itself, and it starts again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cli.dev.embedded_redis import free_port
from cli.dev.local_stack import accepts_uploads
from cli.dev.supervisor import processes
from grading.store import Store
from tests.faults.harness.machines import MachineSpec, config_of
from tests.support.system import ASSIGNMENT, alive, assert_graded_once, count_final, furnish, until

REDIS = '[redis]\nurl = "redis://127.0.0.1:{}/0"\n'
SUBMISSIONS = 60
WORK = b"x <- 1\nprint(x)\n"


@dataclass(frozen=True)
class Outcome:
    """What came of both kills."""

    ended_then: int
    """How many submissions had ended when Redis was killed."""
    log: str
    """What `grader up` said until it was killed."""
    store_url: str
    before: set[str]
    """The parts that ran before it was killed."""
    left: set[int]
    """Which of them still ran after it."""
    again: bool
    """Whether it came up again."""


def start(folder: Path, database_url: str, port: int) -> subprocess.Popen[bytes]:
    """`grader up`, ready when the web app answers."""
    command = [sys.executable, "-m", "cli", "--config", str(folder / "config.toml")]
    with (folder / "up.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "up", "--var", str(folder / "var"), "--port", str(port)],
            env={**os.environ, "GRADER_DATABASE_URL": database_url},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until(lambda: accepts_uploads(f"http://127.0.0.1:{port}"), 90, f"the web app answers; see {folder}")
    except AssertionError:
        process.terminate()
        raise
    return process


def redis_pid(folder: Path) -> int:
    """Of the server that holds the lock of the folder."""
    return int((folder / "var" / "redis" / "redis.lock").read_text().split()[2])


def kill_redis(folder: Path, database_url: str, port: int) -> int:
    """Submit 60, kill Redis in the middle, wait for the last; how many had ended at the kill."""
    store = Store(database_url)
    try:
        client = furnish(store, f"http://127.0.0.1:{port}")
        for number in range(SUBMISSIONS):
            client.submit({"work.R": WORK}, ASSIGNMENT, f"student-{number}")
        until(lambda: count_final(store) >= 5, 90, "some are graded")
        killed, ended_then = redis_pid(folder), count_final(store)
        os.killpg(killed, signal.SIGKILL)
        until(lambda: redis_pid(folder) != killed and alive(redis_pid(folder)), 60, "Redis runs again")
        until(lambda: count_final(store) >= SUBMISSIONS, 120, f"all are graded; see {folder}")
        return ended_then
    finally:
        store.close()


def play(folder: Path, database_url: str) -> Outcome:
    """Kill Redis under load, then `grader up`; wait for the end of its parts, start again."""
    port, machines = free_port(), [MachineSpec("one", slots=4), MachineSpec("two", slots=4)]
    (folder / "config.toml").write_text(config_of(machines, port, REDIS.format(free_port())))
    up = start(folder, database_url, port)
    try:
        ended_then, parts = kill_redis(folder, database_url, port), processes(folder / "var")
        log = (folder / "up.log").read_text()
    finally:
        up.kill()
        up.wait()
    gone = lambda: not any(alive(pid) for pid in parts.values())  # noqa: E731
    until(gone, 90, f"all parts end; see {folder}")
    left = {pid for pid in parts.values() if alive(pid)}
    again = start(folder, database_url, port)
    try:
        return Outcome(ended_then, log, database_url, set(parts), left, again.poll() is None)
    finally:
        again.send_signal(signal.SIGTERM)
        again.wait(60)


def test_every_submission_in_flight_is_graded_once(outcome: Outcome) -> None:
    assert outcome.ended_then < SUBMISSIONS  # else nothing was in flight
    assert "redis exited with status -9, restarting it" in outcome.log
    store = Store(outcome.store_url)
    try:
        assert_graded_once(store, SUBMISSIONS)
    finally:
        store.close()


def test_nothing_is_left_behind_and_it_starts_again(outcome: Outcome) -> None:
    assert outcome.before == {"web", "store", "sandbox", "sweep", "worker-one", "worker-two"}
    assert outcome.left == set()
    assert outcome.again
