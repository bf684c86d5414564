"""A situation, the server that it is played on, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.model_server_lab import Lab, Remembered
from bench.model_servers import ServerBroken, ServerProcess
from workers.machine.engines.base import Engine
from workers.machine.model_digests import ModelDigests

PATIENT: Mapping[str, Any] = {
    "connect_timeout": 5.0,
    "chunk_timeout": 60.0,
    "load_timeout": 60.0,
    "busy_timeout": 10.0,
}
"""Limits of the engine, for what must not end by them."""


@dataclass(frozen=True)
class Seen:
    """One outcome: a code of an error, or a few words."""

    outcome: str
    expected: bool
    note: str = ""
    """What was seen of the server beside it."""
    offered: bool = True
    """Whether the server offers what was asked of it."""


@dataclass(frozen=True)
class Row:
    """One situation on one server."""

    situation: str
    title: str
    seconds: float
    seen: Seen


@dataclass
class UnderTest:
    """A lab with the server that runs in it now, and what a worker remembers."""

    lab: Lab
    kept: Remembered = field(default_factory=Remembered)
    speed: float = 0.0
    """Tokens a second that one answer was written with."""
    _open: ExitStack = field(default_factory=ExitStack)
    _process: ServerProcess | None = None

    @property
    def process(self) -> ServerProcess:
        """The server that was started last. Raises ServerBroken where none was."""
        if self._process is None:
            raise ServerBroken("no server was started")
        return self._process

    def start(self, which: int) -> ServerProcess:
        """End what runs, and start the server with the first (0) or second (1) weights; not ready yet."""
        self.stop()
        self._process = self._open.enter_context(self.lab.starting(which))
        return self._process

    def stop(self) -> None:
        """End the server that runs."""
        self._open.close()
        self._process = None

    @contextmanager
    def worker(self, model: str = "", **options: Any) -> Iterator[tuple[Engine, ModelDigests]]:
        """A worker of the machine; `options` are the engine's, beside patient ones."""
        with self.lab.worker(self.kept, model, {**PATIENT, **options}) as found:
            yield found


@dataclass(frozen=True)
class Situation:
    """What is played. Its name is one word, for programs."""

    name: str
    title: str
    play: Callable[[UnderTest], Seen]
