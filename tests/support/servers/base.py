"""What the protocol servers share: faults, pacing, chunked streams, counting of requests and disconnects."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.servers.behaviour import Behaviour, Stats

__all__ = ["FAULTS", "UNPARSED", "Behaviour", "ModelHandler", "ModelServer", "main", "shown", "stats_of"]
FAULTS = (
    "refuse",
    "500",
    "503",
    "404",
    "hang",
    "stall",
    "trickle",
    "half_json",
    "garbage",
    "empty",
    "endless",
    "error_midstream",
    "unparsed",
    "length",
    "prose",
    "wordless",
    "endless_tokens",
    "blank",
    "echo",
    "reset",
    "close",
    "html",
    "proxy",
    "redirect",
)
PAGE = b"<!doctype html><html><head><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>"
UNPARSED = "The model produced output that does not match the expected peg-native format"
PAGES = {"html": 200, "proxy": 502, "redirect": 302}


class Gone(Exception):
    """The client closed its connection."""


class ModelServer(ThreadingHTTPServer):
    """A threading server on a free loopback port. Use as a context manager to run it in this process."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: type[ModelHandler], behaviour: Behaviour, port: int = 0) -> None:
        self.behaviour = behaviour
        self.stats = Stats()
        self.contexts: dict[str, int] = {}
        """Context length in tokens each model was loaded with last."""
        self.answered_whole = itertools.count()
        """Numbers the requests that want their answer whole."""
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.answering = threading.Event()
        """Set while generations may begin to answer; see `holding`."""
        self.answering.set()
        self.changed = threading.Condition(self.lock)
        super().__init__(("127.0.0.1", port), handler)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> ModelServer:
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.stopping.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are counted, not printed."""

    def take_fault(self) -> str:
        """The fault for the request that begins now."""
        with self.lock:
            behaviour = self.behaviour
            if behaviour.times is not None:
                if behaviour.times <= 0:
                    return ""
                behaviour.times -= 1
            return behaviour.fault

    def wait_for(self, what: str, count: int, seconds: float = 60.0) -> bool:
        """Wait until a counter of `stats` reaches `count`."""
        with self.changed:
            return bool(self.changed.wait_for(lambda: getattr(self.stats, what) >= count, seconds))

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Generations that begin meanwhile answer only afterwards."""
        self.answering.clear()
        try:
            yield
        finally:
            self.answering.set()

    def wrote(self) -> None:
        """Count a piece of an answer."""
        with self.changed:
            self.stats.written += 1
            self.changed.notify_all()

    def wait_until_idle(self, seconds: float = 60.0) -> bool:
        """Wait until no generation is under way."""
        with self.changed:
            return bool(self.changed.wait_for(lambda: self.stats.active == 0, seconds))


class ModelHandler(BaseHTTPRequestHandler):
    """One connection. Subclasses route and speak their protocol."""

    protocol_version = "HTTP/1.1"
    server: ModelServer
    counting = False

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def body(self) -> dict[str, Any]:
        """The JSON body of the request."""
        parsed = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        return parsed if isinstance(parsed, dict) else {}

    def json(self, value: Any, status: int = 200) -> None:
        """Answer with JSON at once."""
        self.whole(json.dumps(value), "application/json; charset=utf-8", status)

    def whole(self, text: str, kind: str, status: int = 200) -> None:
        """Answer with a text at once."""
        data = text.encode()
        self.settle("finished" if status == 200 else "failed")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def page(self, fault: str) -> bool:
        """Answer with a web page, as what stands before an engine does. False for other faults."""
        if fault not in PAGES:
            return False
        self.settle("failed")
        self.send_response(PAGES[fault])
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(PAGE)))
        self.send_header("Location", "/sign-in")
        self.end_headers()
        self.wfile.write(PAGE)
        return True

    def begin_stream(self, content_type: str) -> None:
        """Begin a chunked answer."""
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        """Send one chunk; raises Gone when the client left."""
        if not data:
            return
        self.pause(0.0)
        try:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        except OSError as exc:
            raise Gone from exc

    def end_stream(self) -> None:
        """End a chunked answer."""
        self.wfile.write(b"0\r\n\r\n")

    def pause(self, seconds: float) -> None:
        """Wait; raises Gone as soon as the client closes its connection or the server stops."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            ready, _, _ = select.select([self.connection], [], [], max(0.0, min(left, 0.1)))
            if ready:
                try:
                    if not self.connection.recv(1, socket.MSG_PEEK):
                        raise Gone
                except OSError as exc:
                    raise Gone from exc
            if self.server.stopping.is_set():
                raise Gone
            if left <= 0:
                return
            if ready:  # more of the client's bytes wait: do not spin
                self.server.stopping.wait(min(left, 0.05))

    def until_answering(self) -> None:
        """Wait while the server holds its answers; raises Gone as `pause` does."""
        while not self.server.answering.is_set():
            self.pause(0.05)

    def counted(self, payload: dict[str, Any]) -> Iterator[None]:
        """Count a generation around a yield; a client that leaves counts as a disconnect."""
        server, stats = self.server, self.server.stats
        self.counting = True
        with server.changed:
            stats.requests += 1
            stats.active += 1
            stats.max_concurrency = max(stats.max_concurrency, stats.active)
            stats.last = payload
            server.changed.notify_all()
        try:
            yield
            self.settle("finished")
        except Gone:
            self.close_connection = True
            self.settle("disconnects")
        finally:
            self.settle("failed")

    def settle(self, how: str) -> None:
        """Count the end of a generation, once; before its last bytes go out, so that clients see it."""
        if not self.counting:
            return
        self.counting = False
        with self.server.changed:
            setattr(self.server.stats, how, getattr(self.server.stats, how) + 1)
            self.server.stats.active -= 1
            self.server.changed.notify_all()

    def broken_stream(self, fault: str, line: bytes) -> bool:
        """Send what a faulty server sends in a stream; `line` is a good first line.

        False for faults that are no broken stream.
        """
        if fault == "hang":
            self.pause(3600)
        elif fault == "stall":
            self.chunk(line)
            self.pause(3600)
        elif fault == "trickle":
            for byte in line * 1000:
                self.chunk(bytes([byte]))
                self.pause(0.2)
        elif fault == "half_json":
            self.chunk(line + line[: len(line) // 2])
        elif fault == "garbage":
            self.chunk(b"\x00\xff\xfe <html>bad gateway</html>\n[1, 2]\n" * 3)
        elif fault in ("reset", "close"):
            self.chunk(line)
            self.leave(reset=fault == "reset")
        elif fault != "empty":
            return False
        return True

    def leave(self, *, reset: bool) -> None:
        """Close the connection in the middle, politely or with a reset."""
        self.settle("failed")
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            self.connection.shutdown(socket.SHUT_WR)
        os.close(self.connection.detach())
        raise Gone


def shown(fault: str, parts: list[str]) -> Iterable[str]:
    """The pieces of text that are sent with this fault; may never end."""
    if fault == "endless":
        return (part * 50 for part in itertools.cycle(parts))
    if fault == "endless_tokens":
        return itertools.cycle(parts)
    if fault == "blank":
        return itertools.chain(parts[:3], itertools.repeat("\n        "))
    return [] if fault == "wordless" else parts


def stats_of(server: ModelServer) -> dict[str, Any]:
    """The counters, for GET /stats."""
    with server.lock:
        stats = server.stats
        counters = ("requests", "active", "max_concurrency", "disconnects", "finished", "failed", "written")
        return {name: getattr(stats, name) for name in counters}


def main(handler: type[ModelHandler], description: str) -> None:
    """Run a server as a process: prints its port as one line of JSON, ends on SIGTERM."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--models", default="qwen3-coder:30b,gemma3:27b")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long one answer takes")
    parser.add_argument("--fault", choices=("", *FAULTS), default="")
    parser.add_argument("--times", type=int, default=None, help="the fault only for the first n requests")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: _leave())
    if args.fault == "refuse":
        with socket.socket() as closed:  # bound but not listening: connections are refused
            closed.bind(("127.0.0.1", args.port))
            print(json.dumps({"port": closed.getsockname()[1]}), flush=True)
            threading.Event().wait()
    behaviour = Behaviour(tuple(args.models.split(",")), args.seconds, args.fault, args.times)
    server = ModelServer(handler, behaviour, args.port)
    print(json.dumps({"port": server.server_address[1]}), flush=True)
    server.serve_forever()


def _leave() -> None:
    raise SystemExit(0)
