"""Starts `grader …` as forks of one process that has its modules: most of a start is to import them.

All processes that test together share that server; it ends when none of them is connected any more. What it
starts has a session, an environment and output of its own, as if it had been executed. Only
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
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

PROGRAM = Path(__file__).with_name("fork_server_program.py")
SUPPORTED = sys.platform == "linux"
READY = b"ready"
"""How begins what the server says to each that connects; what importing did beside comes after it."""
MESSAGE_BYTES = 1 << 17


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
    """A connection to the server; `found` is what importing did beside, nothing if all is well."""

    def __init__(self, channel: socket.socket, found: str) -> None:
        self.found = found
        self._channel = channel
        self._lock = threading.Lock()

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
        """Leave it; what it forked goes on."""
        self._channel.close()


@cache
def fork_server() -> ForkServer:
    """That of this run of the tests, started when first asked for."""
    name = f"grader-tests-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    while (made := _connected(name)) is None:
        # returns at once where another process has begun it meanwhile
        subprocess.run([sys.executable, "-P", str(PROGRAM), name], stdin=subprocess.DEVNULL, check=True)
    atexit.register(made.close)
    return made


def _connected(name: str) -> ForkServer | None:
    """A connection to the server of that name, which is ready; None where there is none, or none any more."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with suppress(ConnectionError):
        channel.connect(f"\0{name}")
        said = channel.recv(MESSAGE_BYTES)
        if said.startswith(READY):
            return ForkServer(channel, said.removeprefix(READY).decode())
    channel.close()
    return None
