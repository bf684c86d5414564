"""The web app behind a real Caddy and a real nginx, run with the files of deploy/."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
from flask import Flask, Response

from bench.proxies import DEPLOY, PROXIES, Places, environ_in, make_certificate, nginx, running
from cli.dev.embedded_redis import RedisProcess, free_port
from cli.dev.local_stack import accepts_uploads
from cli.servers.connection_limits import Bounds
from cli.servers.waitress_server import HttpServer
from tests.faults.harness.machines import MachineSpec, config_of
from tests.hostile.web.slow_connections import main
from tests.support.connections import held
from tests.support.system import ASSIGNMENT, furnish, site, until

REFUSED_AFTER = 20
"""Requests of one address to register a learning platform, a minute (app/__init__.py)."""
MIB = 1024 * 1024
SHORTER: dict[str, Mapping[str, str]] = {
    "caddy": {"read_header 15s": "read_header 1s", "read_body 660s": "read_body 4s", "write 30m": "write 4s"},
    "nginx": {
        r"client_header_timeout 15s": "client_header_timeout 1s",
        r"client_body_timeout   30s": "client_body_timeout 15s",
        r"send_timeout          30s": "send_timeout 2s",
    },
}
"""Times of the files that a test cannot wait for. Those of bodies stay longer than the server's."""


@dataclass(frozen=True)
class Web:
    """A web app, and what proxies before it need."""

    folder: Path
    port: int
    token: str
    certificate: tuple[Path, Path]

    def places(self, name: str) -> Places:
        """Those of one more proxy."""
        folder = self.folder / name
        return Places(folder, free_port(), free_port(), (f"127.0.0.1:{self.port}",), *self.certificate)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisProcess) -> Iterator[Web]:
    folder, port = tmp_path_factory.mktemp("proxies"), free_port()
    certificate = make_certificate(folder)
    config = config_of([MachineSpec("one")], port, 'public_url = "https://localhost"\nmax_upload_mb = 1')
    with site(folder, config, f"sqlite:///{folder}/g.db", redis_server.url) as made:
        url = f"http://127.0.0.1:{port}"
        made.parts.start("web", "web", "--port", str(port), "--var", str(folder / "var"))
        until(lambda: accepts_uploads(url), 60, f"the web app; see {folder}")
        yield Web(folder, port, furnish(made.store, url).token, certificate)


@pytest.fixture(scope="module", params=PROXIES)
def proxy(request: pytest.FixtureRequest, web: Web) -> Iterator[str]:
    """The address of each."""
    with running(request.param, web.places(request.param)) as address:
        yield address


@pytest.fixture
def trusting(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(web.certificate[0]))


def test_the_files_are_valid_as_they_are(web: Web) -> None:
    subprocess.run(
        ["caddy", "validate", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile")],
        check=True,
        env=environ_in(web.folder),
    )
    places = web.places("valid")
    places.folder.mkdir()
    subprocess.run([*nginx(places, {}), "-t"], check=True)


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("connections", [100, pytest.param(500, marks=pytest.mark.soak)])
def test_slow_connections_through_a_proxy_keep_nobody_waiting(
    proxy: str, web: Web, monkeypatch: pytest.MonkeyPatch, connections: int
) -> None:
    monkeypatch.setenv("ATTACK_TOKEN", web.token)
    # idle, all is answered within 1 s; without bounds nothing is within 10 s (reliability.md)
    held = ["--connections", str(connections), "--seconds", "2", "--every", "0.5", "--within", "10"]
    assert main([proxy, *held, "--assignment", ASSIGNMENT]) == 0


@pytest.mark.usefixtures("trusting")
def test_forms_are_taken_at_a_port_of_its_own(proxy: str) -> None:
    """A form is taken from its own site only, and another port is another site."""
    with requests.Session() as browser:
        page = browser.get(f"{proxy}/sign-in", timeout=30)
        token = re.search(r'name="csrf_token"[^>]*value="([^"]+)"', page.text)
        assert token is not None
        form = {"csrf_token": token[1], "name": "nobody", "password": "wrong"}
        answer = browser.post(f"{proxy}/sign-in", form, headers={"Referer": page.url}, timeout=30)
    assert answer.status_code == 401, answer.text


@pytest.mark.usefixtures("trusting")
def test_of_several_addresses_the_one_of_the_connection_counts(proxy: str, web: Web) -> None:
    def statuses(source: str, count: int) -> set[int]:
        return {_status(proxy, web, source, f"203.0.113.{number}") for number in range(count)}

    source = "127.0.0.2" if proxy.startswith("caddy") else "127.0.0.3"
    assert 429 in statuses(source, REFUSED_AFTER + 1)
    assert 429 not in statuses("127.0.0.9", 1)


def _status(proxy: str, web: Web, source: str, forged: str) -> int:
    """Of a request from `source` that says it comes from `forged`."""
    host, _, port = proxy.removeprefix("https://").partition(":")
    context = ssl.create_default_context(cafile=str(web.certificate[0]))
    connection = http.client.HTTPSConnection(
        host, int(port), timeout=10, context=context, source_address=(source, 0)
    )
    headers = dict.fromkeys(("X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Forwarded-Host"), forged)
    try:
        connection.request("GET", "/lti/register/none", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("mb", [2, 41])
def test_an_upload_that_is_too_large_is_refused_in_words(proxy: str, web: Web, mb: int) -> None:
    address, words = f"{proxy}/api/v1/submissions", "larger than the 1 MB this server accepts"
    answer = requests.post(
        address, data=b"x" * mb * MIB, headers={"Authorization": f"Bearer {web.token}"}, timeout=20
    )
    assert (answer.status_code, answer.json()["code"]) == (413, "upload_too_large")
    assert words in answer.json()["detail"]
    page = requests.post(f"{proxy}/sign-in", data=b"x" * mb * MIB, timeout=20)
    assert page.status_code == 413
    assert words in page.text


LARGE = 64 * MIB


@pytest.fixture(scope="module")
def short_bounds() -> Iterator[str]:
    """The address of a server that waits half a second where it otherwise waits twenty."""

    def build() -> Flask:
        app = Flask(__name__)
        app.add_url_rule("/", "home", lambda: "here", methods=["GET", "POST"])
        app.add_url_rule("/large", "large", lambda: b"x" * LARGE)
        app.add_url_rule("/stream", "stream", stream)
        app.add_url_rule("/read", "read", lambda: str(first_read.set()))
        return app

    first_read = threading.Event()

    def stream() -> Response:
        def events() -> Iterator[bytes]:
            first_read.clear()
            yield b"data: first\n\n"
            yield b"data: second\n\n" if first_read.wait(10) else b"data: the first was kept back\n\n"

        # as app/gateway/views.py says it
        return Response(events(), mimetype="text/event-stream", headers={"X-Accel-Buffering": "no"})

    port = free_port()
    bounds = Bounds(body_bytes=MIB, window_s=0.5, look_s=0.05)
    server = HttpServer("127.0.0.1", port, threads=2, graceful_s=1, bounds=bounds, build=build)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield f"127.0.0.1:{port}"
    server.stop()
    thread.join(20)


@pytest.mark.parametrize("name", PROXIES)
def test_what_is_slow_is_ended_after_the_time_that_the_file_says(
    name: str, web: Web, short_bounds: str, tmp_path: Path
) -> None:
    places = Places(tmp_path / name, free_port(), free_port(), (short_bounds,), *web.certificate)
    begins = b" HTTP/1.1\r\nHost: localhost\r\n"
    body = b"POST /" + begins + b"Content-Length: 1000\r\n\r\n"
    asked = {
        "handshake": None,
        "head": b"GET /" + begins + b"X-Slow: ",
        "silent body": body,
        "slow body": body + b"x",
    }
    with running(name, places, SHORTER[name]):
        ends: dict[str, tuple[bytes, float]] = {}

        def wait(kind: str, begin: bytes | None) -> None:
            ends[kind] = _ended(places.port, begin, sends=not kind.startswith("silent"))

        threads = [threading.Thread(target=wait, args=each) for each in asked.items()]
        for thread in threads:
            thread.start()
        assert _cut_off(places.port, b"GET /large" + begins + b"\r\n")
        for thread in threads:
            thread.join()
    for kind in ("handshake", "head"):
        assert ends[kind][1] < 4, ends
    for kind in ("silent body", "slow body"):
        assert ends[kind][0].startswith(b"HTTP/1.1 408 "), ends
        assert b"at less than 4096 bytes a second" in ends[kind][0]


def _connected(port: int) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", port))
    return context.wrap_socket(connection, server_hostname="localhost")


def _ended(port: int, begin: bytes | None, *, sends: bool) -> tuple[bytes, float]:
    """What came until the proxy let go, sending a byte every 0.2 s; and after how long."""
    if begin is None:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
            began = time.monotonic()
            return plain.recv(100), time.monotonic() - began
    with _connected(port) as connection:
        began, answer = time.monotonic(), b""
        connection.sendall(begin)
        connection.settimeout(0.2 if sends else 20)
        while time.monotonic() - began < 20:
            try:
                data = connection.recv(4096)
                if not data:
                    break
                answer += data
            except TimeoutError:
                connection.sendall(b"x")
            except OSError:
                break
        return answer, time.monotonic() - began


def _cut_off(port: int, request: bytes) -> bool:
    """Whether an answer of which nothing was read for a time was not sent to its end."""
    with _connected(port) as connection:
        connection.sendall(request)
        until(lambda: not held(port, connection), 30, "it is let go")
        got = 0
        try:
            while data := connection.recv(256 * 1024):
                got += len(data)
        except OSError:
            pass
        return got < LARGE


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("name", PROXIES)
def test_a_stream_of_events_is_passed_on_as_it_comes(
    name: str, web: Web, short_bounds: str, tmp_path: Path
) -> None:
    places = Places(tmp_path / name, free_port(), free_port(), (short_bounds,), *web.certificate)
    with (
        running(name, places) as address,
        requests.get(f"{address}/stream", stream=True, timeout=20) as answer,
    ):
        lines = answer.iter_lines(chunk_size=1)
        assert next(lines) == b"data: first"
        assert requests.get(f"{address}/read", timeout=20).ok
        assert b"data: second" in list(lines)


def test_nginx_lets_no_address_take_every_connection(web: Web, short_bounds: str, tmp_path: Path) -> None:
    places = Places(tmp_path / "nginx", free_port(), free_port(), (short_bounds,), *web.certificate)
    waits = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    with ExitStack() as stack:
        stack.enter_context(running("nginx", places, {"grader_addresses 600;": "grader_addresses 2;"}))
        held = [stack.enter_context(_connected(places.port)) for _ in range(3)]
        for connection in held:
            connection.sendall(waits)
        answers = sorted(connection.recv(13) for connection in held)
    assert answers == [b"HTTP/1.1 408 ", b"HTTP/1.1 408 ", b"HTTP/1.1 429 "]
