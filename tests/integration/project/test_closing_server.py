"""The server that browsers meet in tests lets nothing open behind when they go away."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from werkzeug.serving import make_server

from tests.support.servers.closing import ends_what_it_sends
from tests.support.system import until

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

READERS = 30
"""Without it, about every second of them leaves its answer open."""
AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: closing breaks the connection."""


class Answer:
    """Like a file that is sent."""

    closed = 0

    def __iter__(self) -> Iterator[bytes]:
        yield b"x" * 5000

    def close(self) -> None:
        """Count it."""
        Answer.closed += 1


def test_an_answer_is_closed_though_its_reader_went_away() -> None:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Answer:
        start_response("200 OK", [("Content-Length", "5000")])
        return Answer()

    server = make_server("127.0.0.1", 0, ends_what_it_sends(app), threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        for _ in range(READERS):
            with socket.create_connection(("127.0.0.1", server.server_port)) as reader:
                reader.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                reader.recv(1, socket.MSG_PEEK)
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        until(lambda: Answer.closed == READERS, 10, "all answers are closed")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
