"""What the demo makes before it submits anything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cli.commands.demo import furnish
from cli.dev.embedded_redis import free_port
from grading.store import Store, schema
from grading.store.accounts import credentials, users
from grading.store.accounts.sign_in_attempts import Caller


def test_whoever_starts_it_again_can_sign_in(fresh_database: Callable[..., str]) -> None:
    url = fresh_database(schema.upgrade)
    with closing(Store(url)) as store:
        with store.write() as session:
            users.ensure_administrator(session)
        furnish(url)
        people = furnish(url)  # nobody noted what the first start said
        assert list(people.passwords) == ["instructor", "student", "admin"]
        for name, password in people.passwords.items():
            assert credentials.verify_password(store, name, password, Caller("127.0.0.1")) is not None, name


@pytest.mark.soak
def test_the_doctor_finds_no_failure_in_a_running_demo(tmp_path: Path, root: Path) -> None:
    """With the options that docs/get-started/demo.md names."""
    port, var = str(free_port()), str(tmp_path / "demo")
    environ = {**os.environ, "GRADER_DATABASE_URL": f"sqlite:///{var}/grader.db", "PYTHONUNBUFFERED": "1"}
    environ.pop("GRADER_REDIS_URL", None)
    program = [sys.executable, "-m", "cli"]
    demo = subprocess.Popen(
        [*program, "demo", "--var", var, "--port", port],
        cwd=root, env=environ, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert demo.stdout is not None
        assert any(line.startswith("Press Ctrl-C") for line in demo.stdout), "the demo runs"
        words = ["doctor", "--var", var, "--engine", "rules", "--port", port]
        said = subprocess.run([*program, *words], cwd=root, env=environ, capture_output=True, text=True)
    finally:
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=60)
    assert (said.returncode, said.stderr) == (0, ""), said.stdout
    marks = [line for line in said.stdout.splitlines() if line.startswith(("!", "✗"))]
    assert [line for line in marks if not line.startswith("! sandbox")] == []
