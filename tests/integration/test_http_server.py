"""The HTTP server of the web app and the gateway: what it does with connections that wait."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest
from flask import Flask

from cli.embedded import free_port
from cli.http_connections import Bounds
from cli.http_server import HttpServer
from tests.system import until


@pytest.fixture
def port() -> Iterator[int]:
    def build() -> Flask:
        app = Flask(__name__)
        app.add_url_rule("/", "home", lambda: "here")
        return app

    number = free_port()
    bounds = Bounds(body_bytes=1000, idle_s=0.5, head_s=0.5)
    server = HttpServer("127.0.0.1", number, threads=1, graceful_s=1, bounds=bounds, build=build)
    thread = threading.Thread(target=server.serve)
    thread.start()
    until(lambda: answered(number), 10, "the server answers")
    yield number
    server.stop()
    thread.join(20)


def answered(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/", headers={"Connection": "close"})
        return connection.getresponse().read() == b"here"
    except ConnectionRefusedError:
        return False
    finally:
        connection.close()


def test_who_connects_while_an_idle_connection_is_closed_is_answered(port: int) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as idle:
            idle.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert idle.recv(9) == b"HTTP/1.1 "
            while idle.recv(4096):
                pass  # until the server lets go
            assert answered(port)


def test_a_head_that_does_not_end_is_given_up(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert b" 408 Request Timeout" in slow.recv(4096)
        assert answered(port)
