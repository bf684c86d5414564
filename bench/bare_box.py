"""Boxes that are none, for the benchmark: the same program, talk and limits as in the sandbox, but bare."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from workers.sandbox.backends.base import Box, Mount, Session
from workers.sandbox.backends.bwrap_process import hold_to
from workers.sandbox.backends.pipes import PipedSession, environment
from workers.sandbox.backends.watchdog import Watcher


class BareBox:
    """Opens programs of this machine as they are. Nothing keeps them from anything: for trusted work only."""

    name = "bare"

    def __init__(self) -> None:
        self._watcher = Watcher()

    def problem(self) -> str:
        """Always empty."""
        return ""

    def open(self, box: Box) -> Session:
        """Start the program in a new folder, which stands for `/box`."""
        folder = tempfile.TemporaryDirectory(prefix="grader-bare-")
        work = Path(folder.name)
        for mount in box.mounts:
            _link(mount, work)
        places = {mount.target: str(mount.source) for mount in box.mounts} | {"/box": folder.name}
        process = subprocess.Popen(
            [_outside(word, places) for word in box.argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd=work,
            env={name: _outside(value, places) for name, value in environment(box).items()},
            start_new_session=True,
        )
        # the kernel counts a user's processes everywhere, which in a box are only its own
        hold_to(process.pid, box.limits.model_copy(update={"processes": 1_000_000}))
        return PipedSession(_Program(process, folder), box.limits, self._watcher)


def _link(mount: Mount, work: Path) -> None:
    """A link in place of what a box would see below `/box`."""
    if mount.target.startswith("/box/"):
        place = work / mount.target.removeprefix("/box/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(mount.source)


def _outside(word: str, places: Mapping[str, str]) -> str:
    """A word of a command line with the path outside in place of the one inside."""
    for target, source in places.items():
        if word == target or word.startswith(f"{target}/"):
            return source + word.removeprefix(target)
    return word


class _Program:
    """A started program; see `workers.sandbox.backends.pipes.Program`."""

    def __init__(self, process: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin, self.stdout = process.stdin.fileno(), process.stdout.fileno()
        self._process = process
        self._folder = folder

    @property
    def root_pid(self) -> int | None:
        return self._process.pid

    @property
    def entered_pid(self) -> int | None:
        """None: nothing enters from outside."""
        return None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def release(self) -> int | None:
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._folder.cleanup()
        return code if code >= 0 else 128 - code
