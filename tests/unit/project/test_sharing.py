"""Processes that share the tests: what each says of a test arrives, and one that ends is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.sharing import SUPPORTED

ROOT = Path(__file__).parents[3]
FILES = {
    "conftest.py": """
import pytest
from tests.support import sharing

@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    sharing.take_over(config)
""",
    "test_1.py": """
import os, warnings

def test_passes(): pass

def test_fails(tmp_path):
    print("said before")
    warnings.warn("a warning")
    assert (os.environ["PYTEST_XDIST_WORKER"], tmp_path.parent.name) == ("gw0", "")
""",
    "test_2.py": "def test_passes(): pass",
    "test_3.py": "import os\n\ndef test_ends(): os.kill(os.getpid(), 9)\n\ndef test_after_it(): pass",
}
LIGHT = [f"-pno:{name}" for name in ("cacheprovider", "hypothesispytest", "schemathesis", "anyio", "timeout")]


def run(folder: Path, *words: str) -> str:
    """What pytest says of the files there, in one process that is forked."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DEBUG_TEMPROOT": str(folder)}
    command = [sys.executable, "-m", "pytest", "-n", "1", "-c", os.devnull, "--rootdir", ".", *LIGHT, *words]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_what_a_forked_process_says(tmp_path: Path) -> None:
    if not SUPPORTED:
        return  # pytest-xdist starts processes there
    said = run(tmp_path)
    assert "('gw0', 'gw0') == ('gw0', '')" in said
    assert "said before" in said
    assert "UserWarning: a warning" in said
    assert "FAILED test_3.py::test_ends - the process that ran this test ended" in said
    assert "2 failed, 2 passed, 1 warning" in said
