"""Selects this machine's sandbox backend, wrapped so that all its sandboxes can be ended at once."""

from __future__ import annotations

import threading
import weakref
from typing import Literal

from grading.domain.errors import SandboxUnavailable
from grading.domain.messages import verbatim
from workers.sandbox.backends.base import Backend, SandboxSpec, Session
from workers.sandbox.backends.bubblewrap import Bubblewrap
from workers.sandbox.backends.container import Container
from workers.sandbox.backends.json_lines import PipedSession

NOTHING = "Nothing that students submit is run here: there is no sandbox."
INSTALL = "On Linux install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap libseccomp2)."
ELSE = "Or name a container engine and its image in config.toml (sandbox.engine, sandbox.image)."


class NoBackend:
    """Runs nothing."""

    name = "none"

    def __init__(self, reason: str = f"{NOTHING} {INSTALL} {ELSE}") -> None:
        self._reason = reason

    def problem(self) -> str:
        """Why nothing is run, and what to install."""
        return self._reason

    def open(self, spec: SandboxSpec) -> Session:
        """Raises SandboxUnavailable, always."""
        raise SandboxUnavailable(self._reason)


Kind = Literal["auto", "bubblewrap", "container", "none"]
TURNED_OFF = 'Nothing that students submit is run here: sandbox.backend is set to "none".'


def open_backend(kind: Kind, *, engine: str = "", image: str = "") -> Backend:
    """The sandbox of that kind, whether or not it works; its `problem` tells.

    `auto` is bubblewrap where a sandbox really opens, else a container where engine and image are named, else
    none, whose problem says what kept bubblewrap from working.
    """
    if kind == "bubblewrap":
        return Bubblewrap()
    if kind == "container":
        return Container(engine, image)
    if kind == "none":
        return NoBackend(TURNED_OFF)
    own = Bubblewrap()
    problem = own.problem()
    if not problem:
        return own
    return Container(engine, image) if engine and image else NoBackend(f"{NOTHING} {problem} {ELSE}")


ENDS = "The program that runs students' work is ending; somebody else runs it, or the next one."


class ClosableBackend:
    """The sandboxes of another backend, until `close`."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self.name = inner.name
        self._open: weakref.WeakSet[PipedSession] = weakref.WeakSet()
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def problem(self) -> str:
        """Why nothing can be run here, as the other says."""
        return self._inner.problem()

    def open(self, spec: SandboxSpec) -> Session:
        """Start the program of a sandbox. Raises SandboxUnavailable, also after `close`."""
        if self._closed.is_set():
            raise SandboxUnavailable(ENDS)
        session = self._inner.open(spec)
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
            session.break_off("not run", verbatim(ENDS.rstrip(".")))
        if isinstance(self._inner, Bubblewrap):
            self._inner.fork_servers.close()
