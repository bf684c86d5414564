"""The contract of a sandbox backend: a program in a sandbox talks JSON lines and cannot get out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from grading.config.settings import Limits
from grading.domain.messages import Message
from grading.execution.values import End


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine, seen read-only at `target` inside."""

    source: Path
    target: str


@dataclass(frozen=True)
class Prepared:
    """A program that has imported what sandboxes need and forks a process into each: a fork server.

    It runs without any student's file, and no student's code runs in it.
    """

    argv: tuple[str, ...]
    mounts: tuple[Mount, ...]
    environ: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SandboxSpec:
    """What is to run. The current folder is `/box`, which is empty, writable, and private; so is `/tmp`."""

    argv: Sequence[str]
    """The program inside; its stdin and stdout carry JSON lines, its stderr is thrown away."""
    mounts: Sequence[Mount] = ()
    """A target below `/box` is possible: a read-only file in the writable folder."""
    environ: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    prepared: Prepared | None = None
    """What does the same as `argv` without its start; a sandbox that cannot use it starts `argv`."""


@dataclass(frozen=True)
class Ending:
    """How a sandbox ended."""

    end: End
    clause: Message = field(default_factory=Message)
    """Why, without a full stop; empty when it finished."""

    @property
    def reason(self) -> str:
        """Why, as a sentence in English; empty when it finished."""
        return f"{self.clause}." if self.clause.message else ""


class Session(Protocol):
    """A sandbox that runs. Threads may not share one. Leaving the `with` ends every process in it."""

    def __enter__(self) -> Session: ...

    def __exit__(self, *_: object) -> None: ...

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line to the program. A program that no longer reads is no error."""

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """The next line, a JSON object; lines that are none are left out.

        None when there is no more: the sandbox ended, broke a limit, or said nothing for `timeout_s`, which
        ends it. `close` then tells why.
        """

    def close(self) -> Ending:
        """End everything in the sandbox, at once, and say how it ended. May be called again."""


class Backend(Protocol):
    """Opens sandboxes. Any number at the same time, from any thread."""

    name: str

    def problem(self) -> str:
        """Why nothing can be run here, as a sentence that says what to do; empty when it can."""

    def open(self, spec: SandboxSpec) -> Session:
        """Start the program of a sandbox. Raises SandboxUnavailable (grading.domain.errors)."""
