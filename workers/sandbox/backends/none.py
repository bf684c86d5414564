"""The sandbox of a machine that has none: it runs nothing and says so."""

from __future__ import annotations

from grading.domain.errors import SandboxUnavailable
from workers.sandbox.backends.base import Box, Session

NOTHING = "Nothing that students hand in is run here: there is no sandbox."
INSTALL = "On Linux install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap libseccomp2)."
ELSE = "Or name a container engine and its image in config.toml (checks.engine, checks.image)."


class NoSandbox:
    """Runs nothing."""

    name = "none"

    def __init__(self, reason: str = f"{NOTHING} {INSTALL} {ELSE}") -> None:
        self._reason = reason

    def problem(self) -> str:
        """Why nothing is run, and what to install."""
        return self._reason

    def open(self, box: Box) -> Session:
        """Raises SandboxUnavailable, always."""
        raise SandboxUnavailable(self._reason)
