"""A way between a machine and Redis that can be cut: TCP passes through, or nothing does, in silence."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

CHUNK = 65536


@dataclass
class Proxy:
    """Forwards to a port of this machine. While cut, connections stay open and no byte comes through."""

    target: int
    listening: socket.socket
    _open: threading.Event = field(default_factory=threading.Event)
    _sockets: set[socket.socket] = field(default_factory=set)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def port(self) -> int:
        """Where machines connect to."""
        return int(self.listening.getsockname()[1])

    def cut(self) -> None:
        """Let nothing through, in both directions."""
        self._open.clear()

    def heal(self) -> None:
        """Let everything through again; what was sent meanwhile arrives now, as TCP does it."""
        self._open.set()

    def serve(self) -> None:
        """Take connections, one after the other, until closed."""
        with suppress(OSError):
            while True:
                near, _ = self.listening.accept()
                self._open.wait()
                try:
                    far = socket.create_connection(("127.0.0.1", self.target), timeout=30)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                self._sockets |= {near, far}
                self._begin(near, far)
                self._begin(far, near)

    def _begin(self, source: socket.socket, to: socket.socket) -> None:
        thread = threading.Thread(target=self._pump, args=(source, to), name="proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _pump(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                self._open.wait()
                to.sendall(data)
        for one in (source, to):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End every connection."""
        self.heal()
        for one in (self.listening, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        for one in (self.listening, *self._sockets):
            one.close()


@contextmanager
def running_proxy(target: int, at: str = "127.0.0.1") -> Iterator[Proxy]:
    """A proxy to a port that listens at an address."""
    proxy = Proxy(target, socket.create_server((at, 0)))
    proxy.heal()
    accepting = threading.Thread(target=proxy.serve, name="proxy", daemon=True)
    accepting.start()
    try:
        yield proxy
    finally:
        proxy.close()
        accepting.join(60)
