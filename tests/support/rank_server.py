"""Starts ranks of this computer as forks of one process that has their modules: most of a start is imports.

What a worker starts for a rank is a small program that has the rank forked and ends with it.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from workers.machine.engines.sharded.rank_handle import THREADS, command, here

PROGRAM = Path(__file__).with_name("rank_server_program.py")
SUPPORTED = sys.platform == "linux"
STAND_IN = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect(bytes.fromhex(sys.argv[1]))
    socket.send_fds(server, [json.dumps([os.getcwd(), dict(os.environ)]).encode()], [0, 1, 2])
    server.recv(1)
"""


@cache
def address() -> str:
    """Where the server of this process listens, started when first asked for; it ends with this process."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listens:
        listens.bind("")  # a name of its own
        listens.listen()
        process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM), str(listens.fileno())],
            pass_fds=[listens.fileno()],
            stdin=subprocess.PIPE,
            env={**os.environ, **dict.fromkeys(THREADS, "1")},
        )
        name: bytes = listens.getsockname()
    atexit.register(process.communicate)
    return name.hex()


def forked(hosts: Sequence[str], rank: int, remote: str) -> list[str]:
    """What starts a rank: those of this computer as forks, all others as they always are."""
    if SUPPORTED and here(hosts)[rank]:
        return [sys.executable, "-I", "-S", "-c", STAND_IN, address()]
    return command(hosts, rank, remote)
