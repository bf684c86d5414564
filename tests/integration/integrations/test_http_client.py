"""The way out, with real connections on loopback: only to what was checked, and every answer ends in time."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from grading.domain.ssrf import Address
from grading.integrations import http_client
from grading.integrations.http_client import Allowed, Answer, OutsideFailed, Refused, ask
from tests.support.german import in_german
from tests.support.redis_servers import certificates

HERE = Allowed.of(["127.0.0.1/32"])
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: 1\r\nX-A: 2\r\n\r\nok"


@contextmanager
def talker(say: Callable[[socket.socket], None], wrap: ssl.SSLContext | None = None) -> Iterator[int]:
    """Somebody on loopback who reads a request and then says what a test wants; gives the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                made, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(made,), daemon=True).start()

    def one(made: socket.socket) -> None:
        made.settimeout(30)
        try:
            with wrap.wrap_socket(made, server_side=True) if wrap else made as connected:
                connected.recv(65536)
                say(connected)
        except (OSError, ValueError):
            return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def saying(*pieces: bytes) -> Callable[[socket.socket], None]:
    return lambda made: made.sendall(b"".join(pieces))


def endless(head: bytes, piece: bytes, pause_s: float = 0.0) -> Callable[[socket.socket], None]:
    def say(made: socket.socket) -> None:
        made.sendall(head)
        while True:
            made.sendall(piece)
            if pause_s:
                threading.Event().wait(pause_s)

    return say


def get(port: int, **more: Any) -> Answer:
    return ask("GET", f"http://127.0.0.1:{port}/x?y", allow=HERE, **{"timeout_s": 30, **more})


def test_an_answer_with_its_headers_and_body() -> None:
    with talker(saying(OK)) as port:
        answer = ask("POST", f"http://127.0.0.1:{port}/x?y", headers={"X-B": "c"}, body=b"{}", allow=HERE)
    assert (answer.status, answer.body, answer.headers["x-a"]) == (200, b"ok", "1, 2")


def test_nothing_is_asked_at_an_address_that_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these names has such an address; the connection is never even begun."""
    connected: list[Address] = []
    monkeypatch.setattr(http_client, "connect", lambda address, *_: connected.append(address))
    for text in (
        "127.0.0.1", "10.1.1.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00::1", "64:ff9b::7f00:1",
        "0.0.0.0",
    ):  # fmt: skip
        monkeypatch.setattr(
            http_client, "resolve", lambda *_, text=text: [ip_address("8.8.8.8"), ip_address(text)]
        )
        with pytest.raises(Refused):
            ask("GET", "https://lms.example/", allow=Allowed())
        literal = f"[{text}]" if ":" in text else text
        with pytest.raises(Refused):
            ask("GET", f"https://{literal}/", allow=Allowed())
    assert connected == []


def test_a_name_that_changes_its_address_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([[ip_address("8.8.8.8")], [ip_address("127.0.0.1")], [ip_address("127.0.0.1")]])
    connected: list[Address] = []

    def connect(address: Address, *_: Any) -> socket.socket:
        connected.append(address)
        raise ConnectionRefusedError("nobody")

    monkeypatch.setattr(http_client, "resolve", lambda *_: next(answers))
    monkeypatch.setattr(http_client, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", None)  # nothing below looks anything up
    with pytest.raises(OutsideFailed, match="nobody"):
        ask("GET", "https://lms.example/", allow=Allowed())
    assert connected == [ip_address("8.8.8.8")]
    with pytest.raises(Refused):
        ask("GET", "https://lms.example/", allow=Allowed())
    assert len(connected) == 1


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    hidden = threading.Event()
    with talker(lambda _: hidden.set()) as inner:
        to = f"Location: http://127.0.0.1:{inner}/secret\r\n".encode()
        for status in (301, 302, 303, 307, 308):
            head = b"HTTP/1.1 %d Moved\r\n%bContent-Length: 0\r\n\r\n" % (status, to)
            with talker(saying(head)) as port:
                assert get(port).status == status
    assert not hidden.is_set()


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    with talker(saying(OK)) as port:
        assert get(port).status == 200


LYING = {
    "no answer": saying(),
    "not http": saying(b"SSH-2.0-OpenSSH_9\r\n"),
    "half a head": saying(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "less than it said": saying(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok"),
    "broken pieces": saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok"),
    "an unfinished piece": saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok"),
    "a long line": saying(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 100_000, b"\r\n\r\n"),
    "many headers": saying(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 5000, b"\r\n"),
    "a status that is none": saying(b"HTTP/1.1 99999 OK\r\n\r\n"),
    "too large": saying(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", b"x" * 5000),
    "endless": endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 4096),
    "endless pieces": endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n"),
}


@pytest.mark.parametrize("name", LYING)
def test_a_server_that_lies_is_a_failure_with_a_sentence(name: str) -> None:
    with talker(LYING[name]) as port, pytest.raises(OutsideFailed, match=r"\w"):
        get(port, most_bytes=4096)


def test_a_reset_is_a_failure() -> None:
    def reset(made: socket.socket) -> None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        made.close()

    with talker(reset) as port, pytest.raises(OutsideFailed):
        get(port)
    with pytest.raises(OutsideFailed):  # nobody listens there any more
        get(port)


SLOW = {
    "says nothing": lambda made: made.recv(1),
    "a head in drops": endless(b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.02),
    "a body in drops": endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x", 0.02),
    "endless continue": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.02),
}


@pytest.mark.parametrize("name", SLOW)
def test_every_answer_ends_in_time(name: str) -> None:
    began = time.monotonic()
    with talker(SLOW[name]) as port, pytest.raises(OutsideFailed, match=r"within 0\.3\ss") as caught:
        get(port, timeout_s=0.3)
    assert in_german(caught.value.coded) == "keine vollständige Antwort innerhalb von 0.3\N{NO-BREAK SPACE}s"
    assert time.monotonic() - began < 30


def test_a_name_service_that_does_not_answer_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(http_client, "resolve", lambda *_: over.wait(60) and [])
    with pytest.raises(OutsideFailed, match="lookup of") as caught:
        ask("GET", "https://lms.example/", allow=Allowed(), timeout_s=0.1)
    over.set()
    assert in_german(caught.value.coded) == "die DNS-Abfrage für lms.example hat zu lange gedauert"
    with pytest.raises(OutsideFailed, match=r"host lms\.invalid does not exist") as caught:
        monkeypatch.undo()
        ask("GET", "https://lms.invalid/", allow=Allowed())
    assert in_german(caught.value.coded) == "den Host lms.invalid gibt es nicht"


def test_the_first_bytes_of_a_long_answer_may_be_enough() -> None:
    with talker(LYING["endless"]) as port:
        assert get(port, most_bytes=100, cut=True) == Answer(200, {}, b"x" * 100)


def test_headers_that_would_split_a_request_are_refused() -> None:
    with talker(saying(OK)) as port:
        for value in ("a\r\nX: y", "ü€"):
            with pytest.raises(OutsideFailed, match="not allowed") as caught:
                get(port, headers={"Authorization": value})
            assert in_german(caught.value.coded)


def test_a_certificate_must_be_for_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = certificates(tmp_path / "tls")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(made.certificate, made.key)
    monkeypatch.setattr(http_client, "resolve", lambda *_: [ip_address("127.0.0.1")])
    with talker(saying(OK), server) as port:
        # of no authority we know
        with pytest.raises(OutsideFailed, match="certificate is not valid") as caught:
            ask("GET", f"https://localhost:{port}/", allow=HERE)
        assert in_german(caught.value.coded).startswith("sein Zertifikat gilt nicht für diese Adresse: ")
        monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
        assert ask("GET", f"https://localhost:{port}/", allow=HERE).body == b"ok"
        for url in (f"https://lms.example:{port}/", f"https://127.0.0.1:{port}/"):
            with pytest.raises(OutsideFailed, match="certificate is not valid"):
                ask("GET", url, allow=HERE)
    with talker(SLOW["says nothing"]) as port, pytest.raises(OutsideFailed, match=r"within 0\.3\ss"):
        ask("GET", f"https://localhost:{port}/", allow=HERE, timeout_s=0.3)  # in the handshake


def test_another_address_of_the_host_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with talker(saying(OK)) as port:
        both = [ip_address("127.0.0.2"), ip_address("127.0.0.1")]
        monkeypatch.setattr(http_client, "resolve", lambda *_: both)
        assert ask("GET", f"http://lms.example:{port}/", allow=Allowed.of(["127.0.0.0/8"])).status == 200
