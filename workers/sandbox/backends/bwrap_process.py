"""A running bwrap: its limits, the hold on its first process, its end."""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from grading.config.settings import Limits
from grading.domain.errors import SandboxUnavailable

_START_S = 10.0
_END_S = 10.0
_LOOK_MS = 1
_FILES_OPEN = 512
_SIGNALS_WAITING = 256
_SPARE_TASKS = 16
"""Between the kernel's limit of processes and the sandbox's: room in which the watcher sees it broken."""

Start = Callable[[int, int], "subprocess.Popen[bytes]"]
"""Starts bwrap, given the descriptors on which it tells its state and on which it waits for a byte."""


class Held:
    """A started bwrap; below it the first process of the sandbox, below that the program."""

    def __init__(self, start: Start, then: Callable[[], object]) -> None:
        """Start it; `then` is called when all of it is gone. Raises SandboxUnavailable."""
        self._first: int | None = None
        self._handle: int | None = None
        self._said = b""
        self._then = then
        self._status, status = os.pipe()
        wait, self._go = os.pipe()
        try:
            self._process = start(status, wait)
            self._ended = os.pidfd_open(self._process.pid)
        except OSError as error:
            self._close_pipes()
            raise SandboxUnavailable(f"The sandbox could not be started: {error}.") from error
        except SandboxUnavailable:
            self._close_pipes()
            raise
        finally:
            os.close(status)
            os.close(wait)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.stdin, self.stdout = self._process.stdin.fileno(), self._process.stdout.fileno()

    @property
    def root_pid(self) -> int | None:
        """The first process inside, by this machine's number."""
        return self._first

    @property
    def entered_pid(self) -> int | None:
        """None: all that runs inside was started by the first process."""
        return None

    def begin(self, limits: Limits) -> bool:
        """Hold the first process to the limits and let it go on; False when bwrap gave up before."""
        return self.hold(limits) and self.go()

    def go(self) -> bool:
        """Let the program be started; False when bwrap has ended."""
        try:
            os.write(self._go, b"!")
        except OSError:
            return False
        return True

    def hold(self, limits: Limits) -> bool:
        """Hold the first process to the limits, with all that comes below it."""
        until = time.monotonic() + _START_S
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        while b"\n" not in self._said:
            if not poll.poll(max(until - time.monotonic(), 0) * 1000):
                return False
            said = os.read(self._status, 4096)
            if not said:
                return False
            self._said += said
        try:
            self._first = int(json.loads(self._said.split(b"\n")[0])["child-pid"])
            self._handle = os.pidfd_open(self._first)
            hold_to(self._first, limits)
        except (ValueError, KeyError, OSError):
            return False
        return True

    def until_made(self) -> bool:
        """Whether the sandbox stands in which bwrap waits for a byte; it does not tell when."""
        root = f"/proc/{self._first}/root"
        poll = select.poll()
        poll.register(self._ended, select.POLLIN)
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            with suppress(OSError):
                made = not os.path.samefile(root, "/") and {"box", "tmp"} <= set(os.listdir(root))
                if made and _has_no_rights(self._first):
                    return True
            if poll.poll(_LOOK_MS):
                return False
        return False

    def kill(self) -> None:
        """End everything inside, without waiting."""
        # the first process of a namespace takes all others with it, and bwrap follows
        with suppress(OSError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            else:
                self._process.kill()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within that time."""
        if self._process.poll() is None and seconds > 0:
            _until_gone(self._ended, seconds)
        return self._process.poll() is not None

    def release(self) -> int | None:
        """Close all; its exit code, None when bwrap could not start the program."""
        if not self.wait(_END_S):
            self._process.kill()
            self._process.wait()
        if self._handle is not None:
            _until_gone(self._handle, _END_S)  # bwrap may go before the last process inside
            os.close(self._handle)
            self._handle = None
        os.set_blocking(self._status, False)
        with suppress(BlockingIOError):
            self._said += os.read(self._status, 4096)
        self._close_pipes()
        self._then()
        # bwrap tells the exit code only of a program that it could start
        return self._process.returncode if b'"exit-code"' in self._said else None

    def _close_pipes(self) -> None:
        os.close(self._status)
        os.close(self._go)
        if hasattr(self, "_process"):
            os.close(self._ended)
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()


def _until_gone(handle: int, seconds: float) -> None:
    """Wait for the end of a process; unlike `Popen.wait` with a limit, not a moment longer."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.poll(seconds * 1000)


def _has_no_rights(pid: int | None) -> bool:
    """Whether bwrap gave up those with which it made the sandbox. Root's keeps them. Raises OSError."""
    return os.geteuid() == 0 or f"\nCapPrm:\t{0:016x}\n" in Path(f"/proc/{pid}/status").read_text()


def hold_to(pid: int, limits: Limits) -> None:
    """What the kernel itself holds each process below this one to. Raises OSError."""
    for number, most in kernel_limits(limits).items():
        resource.prlimit(pid, number, (most, most))
    goes_first(pid)


def goes_first(pid: int) -> None:
    """When this machine runs out of memory, sandboxes end before anything else."""
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_bytes(b"1000")


def kernel_limits(limits: Limits) -> dict[int, int]:
    """The limits by their numbers, as far as this process may set them."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        # addresses are more than memory: libraries reserve them without use
        resource.RLIMIT_AS: (2 * limits.memory_mb + 1024) << 20,
        resource.RLIMIT_FSIZE: limits.disk_mb << 20,
        resource.RLIMIT_NOFILE: _FILES_OPEN,
        resource.RLIMIT_MEMLOCK: 64 << 10,
        resource.RLIMIT_MSGQUEUE: 0,
        # timers and waiting signals count against a user's quota, which without root is Grader's own
        resource.RLIMIT_SIGPENDING: _SIGNALS_WAITING,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_CPU: math.ceil(limits.seconds) + 1,
    }
    if _counts_processes_apart():
        wanted[resource.RLIMIT_NPROC] = limits.processes + _SPARE_TASKS
    hardest = {number: resource.getrlimit(number)[1] for number in wanted}
    return {n: value if hardest[n] < 0 else min(value, hardest[n]) for n, value in wanted.items()}


def _counts_processes_apart() -> bool:
    """Whether the kernel counts a sandbox's processes apart: another user, or, from 5.14 on, a namespace."""
    if os.geteuid() == 0:
        return True
    major, minor = (
        int("".join(filter(str.isdigit, part)) or "0") for part in platform.release().split(".")[:2]
    )
    return (major, minor) >= (5, 14)
