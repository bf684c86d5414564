"""What stands in for a PostgreSQL server that lets nobody in."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SSL_REQUEST = 80877103
FIELDS = {"S": "FATAL", "V": "FATAL", "C": "28P01", "M": 'password authentication failed for user "grader"'}


class _Refuses(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        """Answer the start of a session as PostgreSQL does a wrong password."""
        while True:
            length = int.from_bytes(self.request.recv(4))
            content = self.request.recv(length - 4)
            if int.from_bytes(content[:4]) != SSL_REQUEST:
                break
            self.request.sendall(b"N")
        fields = b"".join(key.encode() + text.encode() + b"\0" for key, text in FIELDS.items()) + b"\0"
        self.request.sendall(b"E" + (len(fields) + 4).to_bytes(4) + fields)


@contextmanager
def refusing_postgres() -> Iterator[int]:
    """A server on loopback that speaks PostgreSQL's protocol and refuses every password; gives its port."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Refuses) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
