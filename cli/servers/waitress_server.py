"""A Flask app under waitress, with threads for its requests: listening, serving, ending."""

from __future__ import annotations

import logging
import math
import resource
import select
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from flask import Flask
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.task import ThreadedTaskDispatcher

from cli.servers.connection_limits import MIB, PIPELINED, BoundedServer, Bounds
from grading.domain.errors import ConfigError

log = logging.getLogger(__name__)
THREADS_END_S = 2.0
DRAINED_BYTES = 256 * MIB
"""A larger body is refused without reading it; see app/web/security.py."""
FILES_EACH = 2 + PIPELINED
"""A connection, a temporary file for its body, and files for its answers."""


class HttpServer:
    """Serves what `build` makes at HOST:PORT; an open request keeps one of `threads`.

    At SIGTERM it serves on for `drain_s` seconds while `draining` is true, so that a load balancer sends the
    next requests elsewhere. Then open requests have `graceful_s` seconds. With `notices_leaving`, an app can
    ask while it works whether the client is still there. `public_url` is where people look for it, which the
    log says.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        threads: int,
        graceful_s: float,
        bounds: Bounds,
        build: Callable[[], Flask],
        notices_leaving: bool = False,
        public_url: str = "",
        drain_s: float = 0.0,
    ) -> None:
        self.build, self.threads, self.graceful_s, self.drain_s = build, threads, graceful_s, drain_s
        self.public_url = public_url
        self.adjustments = Adjustments(
            host=host,
            port=port,
            threads=threads,
            ident=None,
            clear_untrusted_proxy_headers=False,  # which are trusted, the app decides
            connection_limit=bounds.connections + 50,
            asyncore_use_poll=True,  # select() ends at 1024 open files
            max_request_header_size=64 * 1024,
            max_request_body_size=max(DRAINED_BYTES, bounds.body_bytes + 1),
            inbuf_overflow=64 * 1024,
            outbuf_overflow=256 * 1024,
            outbuf_high_watermark=64 * MIB,
            channel_request_lookahead=1 if notices_leaving else 0,
            log_socket_errors=False,
        )
        self.adjustments.bounds = self.bounds = bounds
        self.adjustments.cleanup_interval = bounds.look_s  # as an argument it would be cut to whole seconds
        self.adjustments.draining = False
        self._stopping = False
        self._drained_at = math.inf
        self._servers: list[BoundedServer] = []
        self._map: dict[int, Any] = {}

    def run(self) -> None:
        """Serve until SIGTERM, then drain, or until Ctrl-C. Raises ConfigError."""

        def drain(_number: int, _frame: FrameType | None) -> None:
            self.drain()

        def end(_number: int, _frame: FrameType | None) -> None:
            self.stop()

        signal.signal(signal.SIGTERM, drain)
        signal.signal(signal.SIGINT, end)
        self.serve()

    def serve(self) -> None:
        """Listen, serve until `stop`, let open requests finish. Raises ConfigError."""
        _allow_files(FILES_EACH * self.adjustments.connection_limit)
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # waiting for a thread is no news
        dispatcher, app = ThreadedTaskDispatcher(), self.build()
        for info in self.adjustments.listen:
            self._listen(app, dispatcher, info)
            log.info("listening at http://%s%s", _address(info), self._public())
        dispatcher.set_thread_count(self.threads)
        while not self._stopping and time.monotonic() < self._drained_at:
            self._turn()
        for server in self._servers:
            _accept_waiting(server, self.adjustments.backlog)
            server.accepting = False
            server.del_channel()
            server.socket.close()
        end = time.monotonic() + self.graceful_s
        self._turn()  # reads what was sent on connections that were accepted last
        while self._busy() and time.monotonic() < end:
            self._turn()
        wasyncore.close_all(self._map)
        # idle threads end at once; one that still works was given its time, and ends with the process
        dispatcher.shutdown(timeout=min(self.graceful_s, THREADS_END_S))

    @property
    def draining(self) -> bool:
        """Whether it serves on only until a load balancer sends requests elsewhere."""
        return bool(self.adjustments.draining)

    def drain(self) -> None:
        """Serve on for `drain_s`, each connection for one more request, then stop; at once if it drains."""
        if self.drain_s <= 0 or self.draining:
            self.stop()
            return
        log.info("draining: new requests are answered for %g s", self.drain_s)
        self.adjustments.draining = True
        self._drained_at = time.monotonic() + self.drain_s

    def stop(self) -> None:
        """Take no new connections, and end when open requests came and are answered; from any thread."""
        if self._stopping:
            return
        # first, as `serve` closes the triggers once it sees that it ends; it looks again within `look_s`
        for server in self._servers:
            server.pull_trigger()  # or it would wait for the next connection
        self._stopping = True

    def _listen(self, app: Flask, dispatcher: ThreadedTaskDispatcher, info: Any) -> None:
        try:
            server = BoundedServer(app, self._map, dispatcher=dispatcher, adj=self.adjustments, sockinfo=info)
        except OSError as error:
            raise ConfigError(f"Cannot listen at {_address(info)}: {error.strerror}.") from None
        self._servers.append(server)

    def _public(self) -> str:
        return f"; public URL: {self.public_url}" if self.public_url else ""

    def _turn(self) -> None:
        wasyncore.loop(timeout=self.bounds.look_s, use_poll=True, map=self._map, count=1)
        for server in self._servers:
            server.close_overdue()

    def _busy(self) -> bool:
        channels = [channel for server in self._servers for channel in server.active_channels.values()]
        return any(one.requests or one.request is not None or one.total_outbufs_len for one in channels)


def _accept_waiting(server: BoundedServer, most: int) -> None:
    """Accept connections that the system accepted already: it would reset them with the listening socket."""
    waiting = select.poll()
    waiting.register(server.socket, select.POLLIN)
    for _ in range(most):  # without free file numbers none is accepted, and all go on waiting
        if not waiting.poll(0):
            break
        server.handle_accept()


def _address(info: Any) -> str:
    host, port = info[3][:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted + 512 if hard == resource.RLIM_INFINITY else min(wanted + 512, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
