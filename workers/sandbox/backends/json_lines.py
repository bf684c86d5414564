"""The conversation with a program in a sandbox: JSON lines over stdin and stdout, within time and size."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol, Self

from grading.config.settings import Limits
from grading.domain.messages import Message, verbatim
from grading.execution import values
from grading.execution.values import End
from workers.sandbox.backends.base import Ending, SandboxSpec
from workers.sandbox.backends.watchdog import Watcher, memory, too_long

MAX_LINE = 4 << 20
"""Bytes of one line that comes out."""
MAX_BYTES = 16 << 20
"""Bytes that come out in all."""
MAX_USELESS = 10_000
"""Lines that are no messages."""
SEND_S = 30.0
"""How long a program may leave unread what is sent to it."""
_UNSTORABLE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
"""Zero bytes and halves of surrogate pairs, which databases and UTF-8 do not take."""
_LEAVING_S = 2.0
_KILLED = 128 + signal.SIGKILL
_CHUNK = 1 << 16

ENVIRON = {
    "HOME": "/box",
    "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "USER": "grader",
    "LOGNAME": "grader",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""What every sandbox has in its environment, and nothing else but what it asks for."""


def environment(spec: SandboxSpec) -> dict[str, str]:
    """All variables of a sandbox."""
    return ENVIRON | dict(spec.environ)


class Program(Protocol):
    """A started sandbox, below the conversation."""

    stdin: int
    stdout: int

    @property
    def root_pid(self) -> int | None:
        """The first process inside; None when the engine itself limits memory and processes."""

    @property
    def entered_pid(self) -> int | None:
        """A process inside that was forked from outside, and is no child of the first."""

    def kill(self) -> None:
        """End everything inside, without waiting. From any thread; a program that has ended is no error."""

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within that time."""

    def release(self) -> int | None:
        """After its end: give back all it holds; its exit code, None when the program never started."""


class PipedSession:
    """A sandbox that runs; see `workers.sandbox.backends.base.Session`."""

    def __init__(self, program: Program, limits: Limits, watcher: Watcher) -> None:
        self.limits = limits
        self.deadline = time.monotonic() + limits.seconds
        self._program = program
        self._watcher = watcher
        self._lock = threading.Lock()
        self._broken: Ending | None = None
        self._ending: Ending | None = None
        self._buffer = bytearray()
        self._searched = 0
        self._taken = 0
        self._useless = 0
        self._silent = False
        self._told_to_end = False
        os.set_blocking(program.stdin, False)
        os.set_blocking(program.stdout, False)
        watcher.add(self)

    @property
    def root_pid(self) -> int | None:
        """The first process inside."""
        return self._program.root_pid

    @property
    def entered_pid(self) -> int | None:
        """The process inside that came from a fork server."""
        return self._program.entered_pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def break_off(self, end: End, clause: Message) -> None:
        """End it because of a limit; the first reason counts."""
        with self._lock:
            if self._broken is None and self._ending is None:
                self._broken = Ending(end, clause)
                self._program.kill()

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line; meanwhile takes what comes, so that neither side waits for the other."""
        if self._ending is not None:
            return
        self._told_to_end = message.get("do") == "end"
        data = memoryview(json.dumps(message, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
        patience = time.monotonic() + SEND_S
        while data and self._broken is None:
            left = min(patience, self.deadline) - time.monotonic()
            if left <= 0:
                self.break_off("too long", values.NOT_READING())
                return
            poll = select.poll()
            poll.register(self._program.stdin, select.POLLOUT)
            if not self._silent:
                poll.register(self._program.stdout, select.POLLIN)
            for descriptor, _ in poll.poll(left * 1000):
                if descriptor == self._program.stdout:
                    self._read()
                    continue
                try:
                    data = data[os.write(self._program.stdin, data) :]
                    patience = time.monotonic() + SEND_S
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    return

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """The next message; see the contract. What was said before an end is still handed out."""
        until = time.monotonic() + timeout_s
        while True:
            while (line := self._line()) is not None:
                message = _parsed(line)
                if message is not None:
                    return message
                self._useless += 1
                if self._useless > MAX_USELESS:
                    self._fall_silent()
                    return None
            if self._silent or self._ending is not None:
                return None
            left = min(until, self.deadline) - time.monotonic()
            poll = select.poll()
            poll.register(self._program.stdout, select.POLLIN)
            if poll.poll(max(left, 0) * 1000):
                self._read()
            elif left <= 0:
                late = time.monotonic() >= self.deadline
                clause = too_long(self.limits) if late else values.NO_HEARTBEAT(seconds=f"{timeout_s:g}")
                self.break_off("too long", clause)
                return None

    def _line(self) -> bytes | None:
        """The next whole line of what was read."""
        at = self._buffer.find(b"\n", self._searched)
        if at < 0:
            self._searched = len(self._buffer)
            return None
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 1]
        self._searched = 0
        return line

    def _read(self) -> None:
        try:
            data = os.read(self._program.stdout, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._silent = True
            return
        self._buffer += data
        self._taken += len(data)
        line = len(self._buffer) - (self._buffer.rfind(b"\n") + 1) if b"\n" in data else len(self._buffer)
        if self._taken > MAX_BYTES or line > MAX_LINE:
            self._fall_silent()

    def _fall_silent(self) -> None:
        self._silent = True
        self.break_off("output", values.OUTPUT())

    def close(self) -> Ending:
        """End everything in the sandbox and say how it ended."""
        if self._ending is not None:
            return self._ending
        self._watcher.remove(self)
        if self._broken is None and self._silent:  # it is on its way out; its exit code is worth a moment
            self._program.wait(_LEAVING_S)
        by_itself = self._program.wait(0)
        with self._lock:
            self._program.kill()
            broken = self._broken
            self._ending = broken or Ending("finished")
        code = self._program.release()
        if broken is None and by_itself:
            self._ending = ending(code, told_to_end=self._told_to_end, limits=self.limits)
            if self._ending.reason and code == _KILLED and self.root_pid is None:
                self._ending = Ending("memory", memory(self.limits))  # by its engine
        self._buffer.clear()
        return self._ending


def _parsed(line: bytes) -> dict[str, Any] | None:
    """A JSON object whose text can be stored; None for anything else."""
    with suppress(ValueError, RecursionError):
        value = json.loads(line.decode())  # of bytes, it would also take other encodings
        if isinstance(value, dict) and _UNSTORABLE.search(line):
            text = json.dumps(value, ensure_ascii=False).replace("\\u0000", "\\ufffd")
            value = json.loads(text.encode("utf-8", "replace"))
        if isinstance(value, dict):
            return value
    return None


def ending(code: int | None, *, told_to_end: bool, limits: Limits) -> Ending:
    """What the exit code of a program that ended by itself means."""
    if code is None:
        return Ending("not run", verbatim("The sandbox could not start the program"))
    if code == 0:
        return Ending("finished") if told_to_end else Ending("left", values.ENDED_ITSELF())
    number = code - 128
    if number == signal.SIGXCPU:
        return Ending("too long", too_long(limits))
    if number == signal.SIGXFSZ:
        return Ending("output", values.FILE_SIZE(size=limits.disk_mb))
    if number in set(signal.Signals):
        return Ending("left", values.SIGNAL(name=signal.Signals(number).name))
    return Ending("left", values.EXIT_CODE(number=code))
