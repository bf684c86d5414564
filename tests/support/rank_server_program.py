"""The program of `tests.support.rank_server`: FD is the socket on which it is told what ranks to start.

A rank is a fork of this process, which has all modules that ranks import; it ends with its standard input.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
import threading

import mlx_lm.utils  # noqa: F401, TID253 - most of a rank's start is to import it

from workers.machine.engines.sharded import rank

MESSAGE_BYTES = 1 << 17


def serve(server: socket.socket) -> None:
    """Fork for each connection until standard input ends; returns in a forked process only."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a rank ended, so none is kept
    with selectors.DefaultSelector() as waiting:
        waiting.register(0, selectors.EVENT_READ)
        waiting.register(server, selectors.EVENT_READ)
        while True:
            if any(key.fd == 0 for key, _ in waiting.select()):
                os._exit(0)
            connection, _ = server.accept()
            message, files, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 3)
            if not os.fork():
                break
            for file in (connection.detach(), *files):
                os.close(file)
    server.close()
    connection.detach()  # its end tells that the rank has ended
    become(files, *json.loads(message))


def become(files: list[int], folder: str, environ: dict[str, str]) -> None:
    """A process as if it had been executed."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)


if __name__ == "__main__":
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    rank.main()
