"""One thread of a process that looks at all its sandboxes and ends those over their limits."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from grading.config.settings import Limits
from grading.domain.messages import Message
from grading.execution import values
from grading.execution.values import End

TICK_S = 0.05
"""Time between two looks."""
FILES = 20_000
"""Files and folders that a sandbox may have at the same time in each of its writable folders.

The text of `values.FILES` names the number.
"""
SOCKETS = 128
"""Sockets that a sandbox may have at the same time: the memory behind them is the kernel's and nobody's."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watched(Protocol):
    """A sandbox as the watcher sees it."""

    limits: Limits
    deadline: float
    """By `time.monotonic()`."""

    @property
    def root_pid(self) -> int | None:
        """The first process inside, by this machine's number; None when its engine limits it."""

    @property
    def entered_pid(self) -> int | None:
        """A process inside that was forked from outside and is no child of the first; None without one."""

    def break_off(self, end: End, clause: Message) -> None:
        """End everything in it, without waiting."""


@dataclass(frozen=True)
class Usage:
    """What a tree of processes uses: bytes of memory of their own, and processes with their threads."""

    memory: int
    tasks: int
    pids: tuple[int, ...]


def usage(root: int, entered: int | None = None) -> Usage:
    """Of everything below a process, which is not counted itself, and of one that entered with all below it.

    Memory that forks share counts for each.
    """
    memory, tasks = 0, 0
    pids: list[int] = []
    waiting = _children(root)[1] + ([] if entered is None else [entered])
    while waiting:
        pid = waiting.pop()
        threads, children = _children(pid)
        waiting += children
        tasks += threads
        pids.append(pid)
        with suppress(OSError, ValueError, IndexError):  # it may just have ended
            statm = Path(f"/proc/{pid}/statm").read_bytes().split()
            memory += (int(statm[1]) - int(statm[2])) * _PAGE
    return Usage(memory, tasks, tuple(pids))


def _children(pid: int) -> tuple[int, list[int]]:
    """Number of its threads, and the processes that they started."""
    threads, found = 0, list[int]()
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            threads += 1
            with suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    return threads, found


def shared_out(pids: tuple[int, ...]) -> int | None:
    """Bytes of their own memory, pages that several share counted once; None where that cannot be read."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
        except ProcessLookupError:  # it has ended, perhaps without being taken notice of
            continue
        except FileNotFoundError:
            if Path(f"/proc/{pid}").exists():  # a kernel that does not tell
                return None
            continue
        except OSError:
            return None
        sizes = [int(line.split()[1]) for line in lines if line.startswith(b"Pss_Anon:")]
        if not sizes:
            return None
        total += sizes[0] * 1024
    return total


def breach(root: int, limits: Limits, entered: int | None = None) -> tuple[End, Message] | None:
    """Which limit of memory or processes is broken now, and what is said of it."""
    now = usage(root, entered)
    if now.tasks > limits.processes:
        return "processes", values.PROCESSES(count=limits.processes)
    allowed = limits.memory_mb << 20
    if now.memory > allowed:
        exact = shared_out(now.pids)
        if exact is None or exact > allowed:
            return "memory", memory(limits)
    if sockets(root) > SOCKETS:
        return "processes", values.SOCKETS(count=SOCKETS)
    return None


def sockets(root: int) -> int:
    """How many there are in a sandbox; 0 where it has no network of its own, or that cannot be seen."""
    with suppress(OSError, ValueError, IndexError):
        if not os.path.samefile(f"/proc/{root}/ns/net", "/proc/self/ns/net"):
            return int(Path(f"/proc/{root}/net/sockstat").read_bytes().split(maxsplit=3)[2])
    return 0


def too_many_files(root: int) -> bool:
    """Whether a writable folder holds more than FILES. Where the folders cannot be seen, no."""
    with suppress(OSError):
        if os.path.samefile(f"/proc/{root}/root", "/"):
            return False  # bubblewrap has not yet left the machine's own folders
        for folder in ("box", "tmp"):
            state = os.statvfs(f"/proc/{root}/root/{folder}")
            if state.f_files - state.f_ffree > FILES:
                return True
    return False


def memory(limits: Limits) -> Message:
    """What is said of memory."""
    return values.MEMORY(size=limits.memory_mb)


def too_long(limits: Limits) -> Message:
    """What is said of the wall time."""
    return values.TOO_LONG(seconds=f"{limits.seconds:g}")


class Watcher:
    """Looks at sandboxes while there are any; its thread ends with the last one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sandboxes: set[Watched] = set()
        self._thread: threading.Thread | None = None
        self._looks = 0

    def add(self, sandbox: Watched) -> None:
        """Watch it from now on."""
        with self._lock:
            self._sandboxes.add(sandbox)
            # a process that forked has the object but not the thread
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="sandbox-watcher", daemon=True)
                self._thread.start()

    def remove(self, sandbox: Watched) -> None:
        """Watch it no longer."""
        with self._lock:
            self._sandboxes.discard(sandbox)

    def _run(self) -> None:
        while True:
            with self._lock:
                sandboxes = list(self._sandboxes)
                if not sandboxes:
                    self._thread = None
                    return
            self._looks += 1
            for sandbox in sandboxes:
                self._look(sandbox)
            time.sleep(TICK_S)

    def _look(self, sandbox: Watched) -> None:
        if time.monotonic() >= sandbox.deadline:
            sandbox.break_off("too long", too_long(sandbox.limits))
            return
        root = sandbox.root_pid
        if root is None:
            return
        broken = breach(root, sandbox.limits, sandbox.entered_pid)
        if broken is not None:
            sandbox.break_off(*broken)
        elif self._looks % 5 == 0 and too_many_files(root):
            sandbox.break_off("output", values.FILES())
