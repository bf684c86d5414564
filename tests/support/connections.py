"""What the system knows of connections on this machine, where neither end tells."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

ESTABLISHED = "01"
"""In /proc/net/tcp."""


def held(port: int, *clients: socket.socket) -> bool:
    """Whether who listens at this port has not closed the connections of all these clients."""
    ours = {client.getsockname()[1] for client in clients}
    return bool(ours & (_linux(port) if sys.platform == "linux" else _elsewhere(port)))


def _linux(port: int) -> set[int]:
    """Ports at the other end of connections that are open."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            _, here, there, state, *_ = line.split()
            if state == ESTABLISHED and int(here.rpartition(":")[2], 16) == port:
                found.add(int(there.rpartition(":")[2], 16))
    return found


def _elsewhere(port: int) -> set[int]:
    """The same by the words of netstat."""
    told = subprocess.run(["netstat", "-an", "-p", "tcp"], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in told.splitlines() if line.endswith("ESTABLISHED")]
    return {int(there.rpartition(".")[2]) for _, _, _, here, there, _ in rows if here.endswith(f".{port}")}
