"""Importing a module does no work: no connection, no thread, no engine, no look at the settings."""

from __future__ import annotations

import subprocess
import sys

from tests.support.fork_server import SUPPORTED, fork_server

PROBE = "from tests.support import import_watch; print(import_watch.work_while_importing(), end='')"


def test_importing_does_no_work() -> None:
    # the server of forks has to import all anyway
    assert (fork_server().found if SUPPORTED else probed()) == ""


def probed() -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout
