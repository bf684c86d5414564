"""One POST to somebody else's server, within a bounded time whatever that server does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

FAILURES = (OSError, HTTPException)
"""What `post` raises when there is no answer."""


def post(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> int:
    """The status of the answer; its body is not read. Raises one of FAILURES.

    Not `requests`: that follows redirects and proxies of the environment, and a server that sends a byte now
    and then holds it for ever.
    """
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    begun = time.monotonic()
    try:
        connection.connect()
        late = threading.Event()
        left = max(0.0, timeout_s - (time.monotonic() - begun))
        timer = threading.Timer(left, _cut, (connection.sock, late))
        timer.daemon = True
        timer.start()
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, body, dict(headers))
            status = connection.getresponse().status
        except FAILURES:
            if not late.is_set():
                raise
        finally:
            timer.cancel()
        if late.is_set():  # a status line may have come before
            raise TimeoutError(f"no whole answer within {timeout_s:g} s")
        return status
    finally:
        connection.close()


def _cut(connected: socket.socket, late: threading.Event) -> None:
    """End the connection under whoever waits on it."""
    late.set()
    try:
        # of the socket itself, also under TLS: the other thread is in the middle of using that
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
    except OSError:
        return
