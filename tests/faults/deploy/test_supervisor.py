"""`grader up`: each part is killed while submissions are in flight, then itself, and it starts again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cli.dev.embedded_redis import free_port
from cli.dev.local_stack import accepts_uploads
from cli.dev.supervisor import processes
from grading.store import Store
from tests.faults.harness.machines import MachineSpec, config_of
from tests.support.fork_server import Process
from tests.support.system import ASSIGNMENT, Parts, alive, assert_graded_once, count_final, furnish, until

REDIS = '[redis]\nurl = "redis://127.0.0.1:{}/0"\n'
NO_SANDBOX = '[sandbox]\nbackend = "none"\n'
SUBMISSIONS = 50
KILLED = ("web", "store", "sweep", "redis")
"""The web app while uploads arrive, the others after the first grades."""
WORK = b"x <- 1\nprint(x)\n"


@dataclass(frozen=True)
class Outcome:
    """What came of the kills."""

    ended_then: int
    """How many submissions had ended when the last part was killed."""
    log: str
    """What `grader up` said until it was killed."""
    store_url: str
    before: set[str]
    """The parts that ran before it was killed."""
    left: set[int]
    """Which of them still ran after it."""
    again: bool
    """Whether it came up again."""


def start(folder: Path, database_url: str, port: int) -> subprocess.Popen[bytes] | Process:
    """`grader up`, ready when the web app answers."""
    parts = Parts(folder, {**os.environ, "GRADER_DATABASE_URL": database_url})
    parts.start("up", "up", "--var", str(folder / "var"), "--port", str(port))
    process = parts.running["up"]
    try:
        until(lambda: accepts_uploads(f"http://127.0.0.1:{port}"), 90, f"the web app answers; see {folder}")
    except AssertionError:
        process.terminate()
        raise
    return process


def redis_pid(folder: Path) -> int:
    """Of the server that holds the lock of the folder."""
    return int((folder / "var" / "redis" / "redis.lock").read_text().split()[2])


def kill_parts(folder: Path, database_url: str, port: int) -> int:
    """Submit 50, kill each part in the middle, wait for the last; how many had ended at the last kill."""
    store, var = Store(database_url), folder / "var"
    client = furnish(store, f"http://127.0.0.1:{port}")
    submit = lambda number: client.submit({"work.R": WORK}, ASSIGNMENT, f"student-{number}")  # noqa: E731
    with ThreadPoolExecutor(4) as pool:
        submitted: Sequence[Future[object]] = [pool.submit(submit, n) for n in range(SUBMISSIONS)]
        until(lambda: sum(one.done() for one in submitted) >= SUBMISSIONS // 5, 90, "the first uploads")
        os.killpg(processes(var)["web"], signal.SIGKILL)
        until(lambda: count_final(store) >= 5, 90, "some are graded")
        redis = redis_pid(folder)
        for part in KILLED[1:-1]:
            os.killpg(processes(var)[part], signal.SIGKILL)
        os.killpg(redis, signal.SIGKILL)
        ended_then = count_final(store)
        until(lambda: redis_pid(folder) != redis and alive(redis_pid(folder)), 60, "Redis runs again")
        assert len({str(one.result()) for one in submitted}) == SUBMISSIONS
    until(lambda: count_final(store) >= SUBMISSIONS, 120, f"all are graded; see {folder}")
    store.close()
    return ended_then


def play(folder: Path, database_url: str) -> Outcome:
    """Kill the parts under load, then `grader up`; wait for the end of its parts, start again."""
    port, machines = free_port(), [MachineSpec("one", slots=8)]
    redis = REDIS.format(free_port())
    (folder / "config.toml").write_text(config_of(machines, port, redis))
    up = start(folder, database_url, port)
    try:
        ended_then = kill_parts(folder, database_url, port)
        parts, log = processes(folder / "var"), (folder / "up.log").read_text()
    finally:
        up.kill()
        up.wait()
    gone = lambda: not any(alive(pid) for pid in parts.values())  # noqa: E731
    until(gone, 90, f"all parts end; see {folder}")
    left = {pid for pid in parts.values() if alive(pid)}
    # no sandbox: whether the folder, the ports and the database can be taken again needs none
    (folder / "config.toml").write_text(config_of(machines, port, redis + NO_SANDBOX))
    again = start(folder, database_url, port)
    try:
        return Outcome(ended_then, log, database_url, set(parts), left, again.poll() is None)
    finally:
        again.send_signal(signal.SIGTERM)
        again.wait(60)


def test_every_submission_in_flight_is_graded_once(outcome: Outcome) -> None:
    assert outcome.ended_then < SUBMISSIONS  # else nothing was in flight
    for part in KILLED:
        assert f"{part} exited with status -9, restarting it" in outcome.log
    store = Store(outcome.store_url)
    try:
        assert_graded_once(store, SUBMISSIONS)
    finally:
        store.close()


def test_nothing_is_left_behind_and_it_starts_again(outcome: Outcome) -> None:
    assert outcome.before == {"web", "store", "sandbox", "sweep", "worker-one"}
    assert outcome.left == set()
    assert outcome.again
