"""`grader up` is killed: its parts end by themselves, and it starts again on the same folder."""

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
from tests.faults.harness.machines import MachineSpec, config_of
from tests.support.system import alive, until

REDIS = '[redis]\nurl = "redis://127.0.0.1:{}/0"\n'


@dataclass(frozen=True)
class Outcome:
    """What was running before the kill, what still ran after it, and whether it came up again."""

    before: set[str]
    left: set[int]
    again: bool


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


def play(folder: Path, database_url: str) -> Outcome:
    """SIGKILL, wait, start."""
    port = free_port()
    (folder / "config.toml").write_text(config_of([MachineSpec("one")], port, REDIS.format(free_port())))
    process = start(folder, database_url, port)
    parts = processes(folder / "var")
    process.kill()
    process.wait()
    gone = lambda: not any(alive(pid) for pid in parts.values())  # noqa: E731
    until(gone, 90, f"all parts end; see {folder}")
    left = {pid for pid in parts.values() if alive(pid)}
    again = start(folder, database_url, port)
    try:
        return Outcome(set(parts), left, again.poll() is None)
    finally:
        again.send_signal(signal.SIGTERM)
        again.wait(60)


def test_nothing_is_left_behind_and_it_starts_again(outcome: Outcome) -> None:
    assert outcome.before == {"web", "store", "sandbox", "sweep", "worker-one"}
    assert outcome.left == set()
    assert outcome.again
