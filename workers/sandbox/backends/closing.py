"""A sandbox whose boxes can all be ended at once, when the process that runs them is to end."""

from __future__ import annotations

import threading
import weakref

from grading.domain.errors import SandboxUnavailable
from workers.sandbox.backends.base import Box, Sandbox, Session
from workers.sandbox.backends.bubblewrap import Bubblewrap
from workers.sandbox.backends.pipes import PipedSession

ENDS = "The program that runs students' work is ending; somebody else runs it, or the next one."


class Closing:
    """The boxes of another sandbox, until `close`."""

    def __init__(self, inner: Sandbox) -> None:
        self._inner = inner
        self.name = inner.name
        self._open: weakref.WeakSet[PipedSession] = weakref.WeakSet()
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def problem(self) -> str:
        """Why nothing can be run here, as the other says."""
        return self._inner.problem()

    def open(self, box: Box) -> Session:
        """Start the program of a box. Raises SandboxUnavailable, also after `close`."""
        if self._closed.is_set():
            raise SandboxUnavailable(ENDS)
        session = self._inner.open(box)
        with self._lock:
            if isinstance(session, PipedSession):
                self._open.add(session)
        if self._closed.is_set():
            session.close()
            raise SandboxUnavailable(ENDS)
        return session

    def close(self) -> None:
        """End what runs now, from any thread, and open nothing more. May be called again."""
        self._closed.set()
        with self._lock:
            running = list(self._open)
        for session in running:
            session.break_off("not run", ENDS)
        if isinstance(self._inner, Bubblewrap):
            self._inner.fork_servers.close()
