"""Ports that no two processes of a run of tests take at the same time.

A port that the system gave and took back may be given to somebody else before it is listened on. These lie
below those that systems give, each process has its own, and takes one after the other.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from cli.dev import embedded_redis

FIRST, EACH = 20_000, 2_000
PLAYER, ALONE = 4, 5
"""Numbers of the process that plays scenarios, and of tests in one process; others have 0 to 3."""


def own(number: int) -> Callable[[], int]:
    """Gives free ports of 127.0.0.1 to the process with this number; it begins somewhere among them."""
    turns = count(os.getpid())

    def free_port() -> int:
        for turn in turns:
            port = FIRST + EACH * number + turn % EACH
            with socket.socket() as probe, suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
        raise AssertionError

    return free_port


def number_of_this_process() -> int:
    """As the process was started."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return int(worker.removeprefix("gw")) if worker else ALONE


def take(number: int) -> None:
    """Have everything in this process use these, that is imported from now on."""
    embedded_redis.free_port = own(number)
