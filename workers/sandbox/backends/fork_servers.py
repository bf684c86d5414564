"""Fork servers of sandboxes: an interpreter that is up forks a process into a sandbox, which saves its start.

The programs are drivers/python_forkserver.py; each runs in a sandbox of its own, holds nothing of any
student, and is told nothing but which sandbox to fork into.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import subprocess
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from grading.config.settings import Limits
from workers.sandbox.backends import seccomp
from workers.sandbox.backends.base import Prepared
from workers.sandbox.backends.bwrap_process import Held, goes_first, kernel_limits

log = logging.getLogger(__name__)
MOST = 6
"""Fork servers at the same time; each holds 15 to 150 MiB."""
WANTED = 2
"""So often something is asked for before a fork server is started for it."""
KEEP_S = 60.0
"""One that was used within it makes no room for another."""
FAILURES = 3
"""After so many one after another nothing more is forked: it does not work here."""
_NAMESPACES = ("net", "ipc", "uts", "cgroup", "mnt")
_START_S = 10.0
_END_S = 10.0

Start = Callable[[Prepared, int], "subprocess.Popen[bytes]"]
"""Starts the program in a sandbox of its own with this descriptor as its stdin."""


class CannotFork(Exception):
    """The fork server did not fork into the sandbox."""


class ForkServer:
    """One that runs. Any thread may use it."""

    def __init__(self, prepared: Prepared, start: Start) -> None:
        """Start it. Raises OSError."""
        self.used = time.monotonic()
        self._lock = threading.Lock()
        self._ready = False
        self._control, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with inside:
            self._process = start(prepared, inside.fileno())
        goes_first(self._process.pid)

    @property
    def pid(self) -> int:
        """The number of bubblewrap's own process; what imports and forks lies below it."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is no more."""
        return self._process.poll() is not None

    @property
    def ready(self) -> bool:
        """Whether it has imported what it was to import."""
        with self._lock:
            if not self._ready:
                with suppress(BlockingIOError, OSError):
                    self._ready = self._control.recv(64, socket.MSG_DONTWAIT) == b"ready"
            return self._ready

    def order(self, order: bytes, descriptors: list[int]) -> None:
        """Ask for a fork. Raises CannotFork."""
        self.used = time.monotonic()
        try:
            with self._lock:
                socket.send_fds(self._control, [order], descriptors)
        except OSError as error:
            self.end()  # nobody listens any more
            raise CannotFork(str(error)) from error

    def end(self) -> None:
        """It ends when nobody can ask it any more."""
        self._control.close()
        self._process.kill()
        self._process.wait()


class ForkServers:
    """Those of one sandbox, each for what it has imported."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._servers: dict[Prepared, ForkServer] = {}
        self._asked: Counter[Prepared] = Counter()
        self._lock = threading.Lock()
        self._broken = False
        self._failures = 0
        # nobody can ask those of a sandbox that is no more
        weakref.finalize(self, _end_all, self._servers)

    def find(self, prepared: Prepared) -> ForkServer | None:
        """The one for it, if it is ready; else it may be, another time."""
        with self._lock:
            if self._broken:
                return None
            self._forget_ended()
            server = self._servers.get(prepared)
            if server is None:
                self._asked[prepared] += 1
                if self._asked[prepared] >= WANTED and self._has_room():
                    self._add(prepared)
                return None
        return server if server.ready else None

    def _forget_ended(self) -> None:
        for prepared, server in list(self._servers.items()):
            if server.ended:
                if not server.ready:
                    self.failed("it ended before it was ready")
                server.end()
                del self._servers[prepared]
                self._asked[prepared] = 0

    def _has_room(self) -> bool:
        if len(self._servers) < MOST:
            return True
        oldest = min(self._servers, key=lambda one: self._servers[one].used)
        if time.monotonic() - self._servers[oldest].used < KEEP_S:
            return False
        self._servers.pop(oldest).end()
        self._asked[oldest] = 0
        return True

    def _add(self, prepared: Prepared) -> None:
        if len(self._asked) > 1_000:  # what was asked for once does not stay
            self._asked.clear()
        try:
            self._servers[prepared] = ForkServer(prepared, self._start)
        except OSError as error:
            self.failed(f"it could not be started: {error}")

    def forked(self) -> None:
        """A fork went well."""
        self._failures = 0

    def failed(self, why: str) -> None:
        """A fork did not go well: that sandbox starts its program, and after some in a row all do."""
        self._failures += 1
        self._broken = self._broken or self._failures >= FAILURES
        then = "each run starts its program from now on" if self._broken else "this run starts its program"
        log.warning("the fork server failed, %s: %s", then, why)

    def close(self) -> None:
        """End all of them, and start no more."""
        with self._lock:
            self._broken = True
            _end_all(self._servers)


def _end_all(servers: dict[Prepared, ForkServer]) -> None:
    for server in servers.values():
        server.end()
    servers.clear()


class Forked:
    """A process of a fork server in a sandbox of bubblewrap, like `json_lines.Program`."""

    def __init__(self, held: Held, server: ForkServer, uid: int, limits: Limits) -> None:
        """Fork it into the sandbox that is held. Raises CannotFork; the sandbox can be used all the same."""
        self._held = held
        self._code: int | None = None
        self._said = b""
        theirs: list[int] = []
        reads, self.stdin = os.pipe()
        self.stdout, writes = os.pipe()
        self._report, report = os.pipe()
        theirs += [reads, writes, report]
        try:
            theirs += _places(held)
            order = {
                "uid": uid if os.geteuid() == 0 else None,
                "limits": list(kernel_limits(limits).items()),
                "filter": seccomp.program().hex(),
            }
            server.order(json.dumps(order).encode(), theirs)
        except BaseException:
            self._close()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        try:
            self.entered_pid: int | None = self._entered()
        except CannotFork:
            self._close()
            raise
        assert self.entered_pid is not None
        goes_first(self.entered_pid)

    @property
    def root_pid(self) -> int | None:
        """The first process inside, by this machine's number."""
        return self._held.root_pid

    def kill(self) -> None:
        """End everything inside, without waiting."""
        self._held.kill()

    def _entered(self) -> int:
        """Its number, when it is inside. Raises CannotFork."""
        until = time.monotonic() + _START_S
        while not (b"pid " in self._said and b"in\n" in self._said):
            if not self._hear(until - time.monotonic()) or b"error " in self._said:
                raise CannotFork(self._said.decode(errors="replace").strip() or "it said nothing")
        return int(self._said.split(b"pid ")[1].split(b"\n")[0])

    def _hear(self, seconds: float) -> bool:
        """Read what is reported; False when nothing comes within the time, or ever."""
        poll = select.poll()
        poll.register(self._report, select.POLLIN)
        if not poll.poll(max(seconds, 0) * 1000):
            return False
        said = os.read(self._report, 4096)
        self._said += said
        return bool(said)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within that time."""
        until = time.monotonic() + seconds
        while self._code is None:
            if b"code " in self._said and self._said.endswith(b"\n"):
                self._code = int(self._said.split(b"code ")[1])
            elif not self._hear(until - time.monotonic()):
                return False
        return True

    def release(self) -> int | None:
        """Close all; its exit code, None when its fork server has gone."""
        self._held.kill()
        self.wait(_END_S)
        self._close()
        self._held.release()
        return self._code

    def _close(self) -> None:
        for descriptor in (self.stdin, self.stdout, self._report):
            with suppress(OSError):
                os.close(descriptor)


def _places(held: Held) -> list[int]:
    """A sandbox's first process, root folder and namespaces, in the order of entering. Raises CannotFork."""
    pid = held.root_pid
    if pid is None or not held.until_made():
        raise CannotFork("the box was not made in time")
    # root's sandboxes share root's user namespace; into another one goes who is in all the others
    users = () if os.geteuid() == 0 else ("user",)
    paths = [f"/proc/{pid}/root", *(f"/proc/{pid}/ns/{name}" for name in (*_NAMESPACES, *users, "pid"))]
    found: list[int] = []
    try:
        found.append(os.pidfd_open(pid))
        for path in paths:
            found.append(os.open(path, os.O_RDONLY))
    except OSError as error:
        for descriptor in found:
            os.close(descriptor)
        raise CannotFork(str(error)) from error
    return found
