"""The program of `tests.support.fork_server`: FD is the socket on which it is told what to start."""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import random
import selectors
import socket
import sys
import threading
import time

from cli.main import main

PACKAGES = ("app", "cli.commands", "cli.servers", "grading", "workers")
"""What processes import when they start; tests/unit/project/test_imports.py holds that it does no work."""
MESSAGE_BYTES = 1 << 17


def load() -> None:
    """Import all modules of PACKAGES; all of them stay, so that to look for garbage would be in vain."""
    gc.disable()
    for package in map(importlib.import_module, PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def serve(channel: socket.socket) -> None:
    """Fork for each message until the socket is closed, then end; returns in a forked process only."""
    children: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as waiting:
        waiting.register(channel, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fd != channel.fileno():
                    waiting.unregister(key.fd)
                    tell(key.fd, *children.pop(key.fd))
                    continue
                message, files, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 2)
                if not message:
                    os._exit(0)
                log, ended = files
                pid = os.fork()
                if not pid:
                    break
                os.close(log)
                descriptor = os.pidfd_open(pid)
                children[descriptor] = pid, ended
                waiting.register(descriptor, selectors.EVENT_READ)
                channel.send(str(pid).encode())
            else:
                continue
            break
    channel.close()
    become(log, **json.loads(message))


def tell(descriptor: int, pid: int, ended: int) -> None:
    """The exit status of a child that ended."""
    os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    try:
        os.write(ended, str(os.waitstatus_to_exitcode(status)).encode())
    except BrokenPipeError:
        pass  # nobody asks any more
    finally:
        os.close(ended)


def become(log: int, words: list[str], environ: dict[str, str], folder: str) -> None:
    """A process as if it had been executed."""
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    time.tzset()
    random.seed()
    sys.argv = ["grader", *words]


if __name__ == "__main__":
    load()
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()
    gc.enable()
    serve(socket.socket(fileno=int(sys.argv[1])))
    main()
