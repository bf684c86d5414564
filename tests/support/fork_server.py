"""Starts `grader …` as forks of one process that has its modules: most of a start is to import them.

A process so started has a session, an environment and output of its own, as one that was executed. Only
`/proc/PID/environ` and `/proc/PID/cmdline` are those of the server.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

PROGRAM = Path(__file__).with_name("fork_server_program.py")
SUPPORTED = sys.platform == "linux"


class Process:
    """A process that the server forked, used as a `subprocess.Popen`."""

    def __init__(self, pid: int, ended: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Its exit status, None while it runs."""
        return self._status(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status. Raises `subprocess.TimeoutExpired`."""
        status = self._status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("grader", timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        """Nothing, once it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _status(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._ended], [], [], timeout)[0]:
                self.returncode = int(os.read(self._ended, 16) or -signal.SIGKILL)
                os.close(self._ended)
            return self.returncode


class ForkServer:
    """The server's process; it ends with this one."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def start(self, words: Sequence[str], environ: Mapping[str, str], log: IO[bytes]) -> Process:
        """Start `grader WORDS` in the folder of this process; its output goes to `log`."""
        asked = {"words": [*words], "environ": {**environ}, "folder": str(Path.cwd())}
        ended, theirs = os.pipe()
        with self._lock:
            socket.send_fds(self._channel, [json.dumps(asked).encode()], [log.fileno(), theirs])
            pid = self._channel.recv(16)
        os.close(theirs)
        assert pid, "the server of forks has ended"
        return Process(int(pid), ended)

    def close(self) -> None:
        """End it; what it forked goes on."""
        self._channel.close()
        self._process.wait()


@cache
def fork_server() -> ForkServer:
    """That of this process, started when first asked for."""
    made = ForkServer()
    atexit.register(made.close)
    return made
