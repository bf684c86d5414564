"""Scenarios played once, in a process of their own, for all processes that test and ask what came of them.

Who asks holds a lock; when nobody does any more, what is still played is given up. The player is nobody's
child: tests that look at the processes, threads and open files of their own process do not see it.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.support import ports
from tests.support.system import until

PATIENCE_S = 600.0
ROOT = Path(__file__).parents[3]
ASKED, PLAYED = "asked.lock", "played.lock"
"""Held by those that ask, and by the one that plays."""


@dataclass(frozen=True)
class Scenes:
    """Scenarios that are played; their outcomes are told in a folder."""

    folder: Path

    def outcome(self, module: str) -> Any:
        """What came of a module's scenario; its failure is this test's."""
        told = self.folder / f"{module}.outcome"
        until(told.exists, PATIENCE_S, f"the scenario of {module} ends; logs in {self.folder}")
        well, value = pickle.loads(told.read_bytes())
        assert well, f"the scenario of {module} failed:\n{value}"
        return value


@contextmanager
def playing(folder: Path, modules: Sequence[str]) -> Iterator[Scenes]:
    """Begin the scenarios of these modules, unless it was done; `folder` is the same for all who ask."""
    with (folder / ASKED).open("w") as asked:
        fcntl.flock(asked, fcntl.LOCK_SH)
        try:
            (folder / "begun").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            _begin(folder, modules)
        yield Scenes(folder)
        last = free(asked)
    if last:
        with (folder / PLAYED).open("w") as played:
            fcntl.flock(played, fcntl.LOCK_EX)  # so that no process outlives the tests


def free(lock: IO[str]) -> bool:
    """Whether nobody else holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _begin(folder: Path, modules: Sequence[str]) -> None:
    with (folder / "player.log").open("wb") as log:
        command = [sys.executable, "-m", "tests.faults.harness.player", str(folder), *modules]
        environ = {**os.environ, "PYTEST_XDIST_WORKER": f"gw{ports.PLAYER}"}
        subprocess.run(
            command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True
        )
