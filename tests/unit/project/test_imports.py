"""Importing a module does no work: no connection, no thread, no engine, no look at the settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROBE = """
import os, pkgutil, socket, sys, threading

def refuse(*_, **__):
    raise AssertionError("a connection at import time")

class Watched(dict):
    def __getitem__(self, key):
        assert not str(key).startswith("GRADER_"), f"{key} was read at import time"
        return super().__getitem__(key)
    def get(self, key, default=None):
        assert not str(key).startswith("GRADER_"), f"{key} was read at import time"
        return super().get(key, default)

socket.socket.connect = refuse
os.environ = Watched(os.environ)
import app, bench, cli, grader_client, grading, workers

for package in (app, bench, cli, grader_client, grading, workers):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            __import__(module.name)
assert threading.active_count() == 1, threading.enumerate()
heavy = {"mlx", "mlx_lm", "ollama", "transformers"} & set(sys.modules)
assert not heavy, f"{heavy} came along"
"""


def test_importing_does_no_work(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
