"""Somebody who is told of events: keeps what was posted, and answers as a test says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Posted:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class ReceiverServer:
    """What it answers may change at any time; 0 sends a byte now and then and never ends."""

    url: str = ""
    status: int = 204
    says: bytes = b""
    delay_s: float = 0.0
    """Between a request and its answer."""
    posted: list[Posted] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)


@contextmanager
def receiver_server(port: int = 0, into: ReceiverServer | None = None) -> Iterator[ReceiverServer]:
    """Run one on loopback; `into` goes on with what an earlier one kept."""
    state = into or ReceiverServer()
    state.closing.clear()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.posted.append(Posted(self.path, dict(self.headers), body))
            state.closing.wait(state.delay_s)
            if state.status == 0:
                self._trickle()
                return
            self.send_response(state.status)
            if 300 <= state.status < 400:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(state.says)))
            self.end_headers()
            with suppress(OSError):  # who asked may have heard enough
                self.wfile.write(state.says)

        def _trickle(self) -> None:
            self.close_connection = True
            try:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
                while not state.closing.wait(0.05):
                    self.wfile.write(b"x")
            except OSError:
                return

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    class Quick(ThreadingHTTPServer):
        daemon_threads = True

    with Quick(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_address[1]}/events"
        try:
            yield state
        finally:
            state.closing.set()
            server.shutdown()
            thread.join()
