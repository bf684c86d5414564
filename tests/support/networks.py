"""Two networks with a cable between them, made without root; they end with the processes in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.services import ServiceMissing

SECONDS = 30.0
HOLD = ("sh", "-c", "echo ready; exec cat")
"""Stays until its input ends, as it does with whoever started it."""
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


@dataclass(frozen=True)
class End:
    """One of the two networks: the process that holds it, its only interface, and its address."""

    pid: int
    interface: str
    address: str

    @property
    def enter(self) -> tuple[str, ...]:
        """What a command in this network begins with."""
        return ("nsenter", "--target", str(self.pid), "--user", "--preserve-credentials", "--net")

    def ip(self, *words: str) -> None:
        """The command `ip` in this network."""
        done = subprocess.run(
            [*self.enter, "ip", *words],
            env={**os.environ, "PATH": PATH},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode:
            raise ServiceMissing(f"ip {' '.join(words)}: {done.stderr.strip()}. Run scripts/bootstrap test.")

    def pull(self) -> None:
        """Take the cable out."""
        self.ip("link", "set", self.interface, "down")

    def plug(self) -> None:
        """Put it in."""
        self.ip("link", "set", self.interface, "up")


@contextmanager
def two_networks() -> Iterator[tuple[End, End]]:
    """Both ends of a cable. Nothing but it leads in or out, and nothing is left of them."""
    with held("unshare", "--user", "--map-root-user", "--net", *HOLD) as first:
        one = End(first, "grader-one", "10.213.78.1")
        inside = ("nsenter", "--target", str(first), "--user", "--preserve-credentials")
        with held(*inside, "unshare", "--net", *HOLD) as second:
            two = End(second, "grader-two", "10.213.78.2")
            pair = ("type", "veth", "peer", "name", two.interface, "netns", str(second))
            one.ip("link", "add", one.interface, *pair)
            for end in (one, two):
                end.ip("address", "add", f"{end.address}/30", "dev", end.interface)
                end.plug()
            yield one, two


@contextmanager
def held(*command: str, installed_by: str = "test") -> Iterator[int]:
    """A process that holds a namespace; its process id. Raises ServiceMissing."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise ServiceMissing(
                    f"No network namespaces can be made here. Run scripts/bootstrap {installed_by}."
                )
            yield process.pid
        finally:
            process.kill()
