"""A server on loopback that does nothing but show its certificate."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.redis_servers import Certificates


@contextmanager
def tls_server(tls: Certificates) -> Iterator[int]:
    """It greets whoever comes, and ends with the context; gives its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)

    def greet(listening: socket.socket) -> None:
        while True:
            try:
                plain, _ = listening.accept()
            except OSError:
                return  # it was closed
            with plain, suppress(OSError), context.wrap_socket(plain, server_side=True) as secure:
                secure.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=greet, args=(listening,), daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)
