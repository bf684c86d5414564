"""A program that runs on a machine for as long as this side holds its end of the connection."""

from __future__ import annotations

import queue
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType

from cli.deploy.remote import guard

PING_S = 3.0
POLL_S = 0.2
STALLED_S = 300.0
"""Longer than a machine takes to hash the largest file, during which it takes nothing."""
MOST = 1 << 20


class Timeout(Exception):
    """Nothing came in time."""


class Session:
    """A local process, ssh, whose other end is `remote/guard.py`. Leaving the context ends both."""

    def __init__(self, command: Sequence[str], program: bytes) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._lock, self._done = threading.Lock(), threading.Event()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._errors = b""
        self._moved = time.monotonic()
        self.reached = False
        """Whether the other side has begun."""
        self.stalled = False
        """Whether it was ended because it took nothing for minutes."""
        self._threads = [
            threading.Thread(target=body, daemon=True) for body in (self._read, self._read_errors, self._ping)
        ]
        for thread in self._threads:
            thread.start()
        with suppress(BrokenPipeError):  # its answer says why
            self._frame(program)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End both sides."""
        self._done.set()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join(1)  # where connections are shared, another ssh may hold the pipes a little longer
        with self._lock, suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    @property
    def pid(self) -> int:
        """The process here."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the connection is there."""
        return self._process.poll() is None

    def send(self, data: bytes) -> None:
        """Give the program a part of its input. BrokenPipeError when it has ended; its answer says why."""
        for start in range(0, len(data), MOST):
            self._frame(data[start : start + MOST])

    def end_input(self) -> None:
        """The program has all of its input."""
        with suppress(BrokenPipeError):
            self._write(struct.pack(">I", guard.END))

    def line(self, timeout_s: float) -> bytes | None:
        """The next line that it prints; None at its end. Raises Timeout."""
        try:
            found = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise Timeout from None
        if found is None:
            self._lines.put(None)  # whoever asks again hears it again
        return found

    def lines(self, stopped: threading.Event) -> Iterator[bytes]:
        """What it prints, line by line, until its end or until nobody wants more."""
        while not stopped.is_set():
            try:
                line = self.line(POLL_S)
            except Timeout:
                continue
            if line is None:
                return
            yield line

    def wait(self, timeout_s: float) -> tuple[int, bytes, bytes]:
        """Its exit status, its last line, and its errors. Raises Timeout."""
        deadline, last = time.monotonic() + timeout_s, b""
        while (line := self.line(max(0.0, deadline - time.monotonic()))) is not None:
            last = line if line.strip() else last
        status = self._process.wait()
        self._threads[1].join()
        return status, last, self._errors

    def _frame(self, data: bytes) -> None:
        self._write(struct.pack(">I", len(data)) + data)

    def _write(self, data: bytes) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        self._moved = time.monotonic()
        with self._lock:
            pipe.write(data)
            pipe.flush()
        self._moved = time.monotonic()

    def _ping(self) -> None:
        """Tell the other side that this one is there; end it when it takes nothing for minutes."""
        while not self._done.wait(PING_S):
            if self._lock.acquire(blocking=False):
                self._lock.release()
                with suppress(BrokenPipeError):
                    self._write(struct.pack(">I", 0))
            elif time.monotonic() - self._moved > STALLED_S:
                self.stalled = True
                self._process.kill()
                return

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                if self.reached:
                    self._lines.put(line)
                self.reached = True  # by the first line, which the guard prints
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as output:
            self._errors = output.read()
