"""What one language needs in a sandbox: programs, mounts and a digest of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grading.execution.values import CodeLanguage
from workers.sandbox.backends.base import Mount

DRIVERS = Path(__file__).parents[1] / "drivers"
INSIDE = "/grader"
"""Where the drivers are seen in a sandbox."""


@dataclass(frozen=True)
class Runtime:
    """What one language needs in a sandbox."""

    language: CodeLanguage
    work_argv: tuple[str, ...]
    """Starts the driver of the work, inside."""
    tests_argv: tuple[str, ...]
    """Starts the driver of the tests, inside a sandbox of their own."""
    mounts: tuple[Mount, ...]
    environ: Mapping[str, str]
    digest: str
    """SHA-256 over the interpreter, its packages and our drivers."""
    packages: frozenset[str] = frozenset()
    """What can be imported here, unknown of images: work that says that one is missing is not believed."""
    installed: frozenset[str] = frozenset()
    """Names and versions of the packages that were installed into it, of Python only."""
    problem: str = ""
    """Why nothing in this language can be run here, as a sentence that says what to do."""
    fork_argv: tuple[str, ...] = ()
    """Starts a fork server, inside; empty where there is none. Followed by `work` or `tests` and packages."""
    fork_mounts: tuple[Mount, ...] = ()
