"""The program of `tests.support.fork_server`: NAME is where it listens for what to start."""

from __future__ import annotations

import errno
import gc
import json
import os
import random
import selectors
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support import import_watch

MESSAGE_BYTES = 1 << 17
Asked = tuple[int, dict[str, Any]]
"""Where the output goes, and the arguments of `become`."""


def load() -> bytes:
    """Import all of Grader and say what that did beside. All stays: to look for garbage would be in vain."""
    gc.disable()
    return import_watch.work_while_importing().encode()


@dataclass
class Server:
    """Who is connected, and what was forked and runs."""

    listening: socket.socket
    found: bytes
    """What importing did beside; each that connects is told when all is imported."""
    waiting: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    children: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Descriptor of a process -> its pid, and where its exit status is told."""
    connected: set[socket.socket] = field(default_factory=set)

    def serve(self) -> Asked:
        """Fork for each message until nobody is connected, then end; returns in a forked process only."""
        self.waiting.register(self.listening, selectors.EVENT_READ)
        while True:
            for key, _ in self.waiting.select():
                if key.fileobj is self.listening:
                    self._accept()
                elif key.fd in self.children:
                    self.waiting.unregister(key.fd)
                    tell(key.fd, *self.children.pop(key.fd))
                elif isinstance(key.fileobj, socket.socket) and (asked := self._answer(key.fileobj)):
                    return asked

    def _accept(self) -> None:
        channel, _ = self.listening.accept()
        with suppress(ConnectionError):
            channel.send(b"ready" + self.found)
        self.connected.add(channel)
        self.waiting.register(channel, selectors.EVENT_READ)

    def _answer(self, channel: socket.socket) -> Asked | None:
        """What is asked for, in a forked process; None in this one."""
        message, files = b"", list[int]()
        with suppress(ConnectionError):
            message, files, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 2)
        if not message:
            self._leave(channel)
            return None
        log, ended = files
        pid = os.fork()
        if not pid:
            self._close()
            return log, json.loads(message)
        os.close(log)
        descriptor = os.pidfd_open(pid)
        self.children[descriptor] = pid, ended
        self.waiting.register(descriptor, selectors.EVENT_READ)
        with suppress(ConnectionError):
            channel.send(str(pid).encode())
        return None

    def _leave(self, channel: socket.socket) -> None:
        self.waiting.unregister(channel)
        self.connected.remove(channel)
        channel.close()
        if not self.connected:
            os._exit(0)

    def _close(self) -> None:
        self.waiting.close()
        for channel in (self.listening, *self.connected):
            channel.close()


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


def begin(name: str) -> socket.socket:
    """Listen under a name, and become nobody's child; end where another process listens there."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listening.bind(f"\0{name}")
    except OSError as error:
        sys.exit(error.errno != errno.EADDRINUSE)
    listening.listen()
    if os.fork():
        os._exit(0)
    os.setsid()
    return listening


if __name__ == "__main__":
    server = Server(begin(sys.argv[1]), load())
    from cli.main import main

    gc.collect()
    gc.freeze()
    gc.enable()
    log, asked = server.serve()
    become(log, **asked)
    main()
