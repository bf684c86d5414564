"""A machine on a link of its own that can be pulled out: a network namespace and a pair of interfaces."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

HERE, THERE = "10.213.77.1", "10.213.77.2"


@dataclass(frozen=True)
class Link:
    """`prefix` starts a command at the far end, which reaches this machine at `address`."""

    name: str
    address: str = HERE

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command at the far end begins with."""
        return ("ip", "netns", "exec", self.name)

    def down(self) -> None:
        """Pull the cable out."""
        ip("link", "set", self.name, "down")

    def up(self) -> None:
        """Put it back."""
        ip("link", "set", self.name, "up")


def ip(*words: str) -> None:
    """The command `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)


def permitted() -> bool:
    """Whether namespaces and interfaces may be made here."""
    if os.geteuid() != 0:
        return False
    try:
        with running_link():
            return True
    except (OSError, subprocess.SubprocessError):
        return False


@contextmanager
def running_link() -> Iterator[Link]:
    """A namespace, and a link between it and here."""
    link = Link(f"gr{secrets.token_hex(4)}")
    far = f"{link.name}x"
    ip("netns", "add", link.name)
    try:
        ip("link", "add", link.name, "type", "veth", "peer", "name", far, "netns", link.name)
        ip("address", "add", f"{HERE}/30", "dev", link.name)
        ip("-n", link.name, "address", "add", f"{THERE}/30", "dev", far)
        ip("-n", link.name, "link", "set", far, "up")
        ip("-n", link.name, "link", "set", "lo", "up")
        link.up()
        yield link
    finally:
        ip("netns", "delete", link.name)  # and its interfaces, with their peers here
