"""Limits of HTTP connections: time for a request and its answer, memory while they wait.

waitress gives a thread only to a request that is there as a whole, and closes connections on which nothing
happens. Slow ones, too many and too large ones are met here, in its hooks: a class of channels, of parsers
and of buffers, and `maintenance`.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import Any

from waitress.buffers import OverflowableBuffer
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.utilities import Error

log = logging.getLogger(__name__)
MIB = 1024 * 1024


@dataclass(frozen=True)
class Bounds:
    """What one server gives its connections."""

    body_bytes: int
    """Larger bodies are read and dropped, so that browsers show the app's answer."""
    head_s: float = 20.0
    """From the first byte of a request, or from the connection's begin, to the end of its head."""
    body_s: float = 600.0
    """From the end of the head to the end of the body."""
    window_s: float = 20.0
    least_bytes_per_s: int = 4096
    """A body that arrives, or an answer that is taken, more slowly during a window is given up."""
    idle_s: float = 75.0
    """Between two requests on a connection; proxies must let go earlier."""
    connections: int = 1000
    """From nine tenths of them on, unfinished requests are closed in favour of new connections."""
    held_bytes: int = 1024 * MIB
    """Bodies and answers together, most of it in temporary files; beyond, the largest are closed."""
    look_s: float = 1.0
    """Between two looks at how long connections have waited."""


PIPELINED = 2
"""Requests that a connection may send at once; each may hold an open file until its answer is taken."""


class RequestTimeout(Error):  # type: ignore[misc]  # waitress has no types
    """The request did not come in time."""

    code = 408
    reason = "Request Timeout"


class NoRoom(Error):  # type: ignore[misc]
    """The body could not be kept until it was whole."""

    code = 507
    reason = "Insufficient Storage"


class BodyBuffer(OverflowableBuffer):  # type: ignore[misc]
    """Keeps a body up to a size. Of a larger one only the size stays."""

    buf: Any
    strbuf: bytes

    def __init__(self, overflow: int, most: int) -> None:
        super().__init__(overflow)
        self.most, self.seen, self.failed = most, 0, False

    def __len__(self) -> int:
        return self.seen

    def append(self, data: bytes) -> None:
        """Keep or drop."""
        self.seen += len(data)
        if self.seen <= self.most:
            try:
                super().append(data)
            except OSError as error:
                log.error(
                    "the body of a request could not be written to %s: %s",
                    tempfile.gettempdir(),
                    error.strerror,
                )
                self.failed, self.most = True, 0
        elif self.buf is not None or self.strbuf:
            self.close()
            self.buf, self.strbuf = None, b""


class BoundedParser(HTTPRequestParser):  # type: ignore[misc]
    """Puts bodies into buffers that do not grow beyond what the app takes."""

    error: Error | None
    completed: bool
    body_rcv: Any

    def parse_header(self, header_plus: bytes) -> None:
        """As waitress does, with another buffer."""
        super().parse_header(header_plus)
        if self.adj.draining:  # so that a proxy keeps no connection to a server that ends
            self.headers["CONNECTION"] = "close"
        if self.body_rcv is not None:
            most = self.adj.bounds.body_bytes
            fits = self.content_length <= most
            self.body_rcv.buf = BodyBuffer(self.adj.inbuf_overflow, most if fits else 0)

    def received(self, data: bytes) -> int:
        """Read a body for which there is no room to its end, too, so that the answer is seen."""
        consumed = int(super().received(data))
        lost = self.body_rcv is not None and self.body_rcv.buf.failed
        if lost and self.completed and self.error is None:
            self.error = NoRoom(
                "The server has no room for this upload. Nothing was stored; try again later."
            )
        return consumed


class TimedChannel(HTTPChannel):  # type: ignore[misc]
    """A connection that knows since when it waits, and how much moved meanwhile."""

    parser_class = BoundedParser
    request: Any
    requests: list[Any]
    total_outbufs_len: int

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.moved = 0
        self.ending = False
        self.phase, self.since = "head", self.creation_time
        self.mark = (self.since, 0)

    def received(self, data: bytes) -> bool:
        """Count what comes."""
        self.moved += len(data)
        consumed = bool(super().received(data))
        if len(self.requests) > PIPELINED:
            self._end_after_those()
        return consumed

    def _end_after_those(self) -> None:
        """Answer the first requests and close; the client may send the others again (RFC 9112, 9.3.2)."""
        with self.requests_lock:
            self.ending = True
            for request in self.requests[PIPELINED:]:
                request.close()
            del self.requests[PIPELINED:]
            for request in self.requests[-1:]:
                request.headers["CONNECTION"] = "close"

    def readable(self) -> bool:
        """Whether more may come."""
        return not self.ending and bool(super().readable())

    def send(self, data: bytes, do_close: bool = True) -> int:
        """Count what goes."""
        sent = int(super().send(data, do_close=do_close))
        self.moved += sent
        return sent

    @property
    def held_bytes(self) -> int:
        """Of unfinished and waiting requests, and of the answer."""
        unfinished = self.request
        bodies = [*self.requests, *([unfinished] if unfinished is not None else [])]
        return sum(int(one.body_bytes_received) for one in bodies) + self.total_outbufs_len

    @property
    def unfinished(self) -> bool:
        """Whether a request, or the next one, is still to come: nothing of it was begun here."""
        return not self.requests and not self.total_outbufs_len

    def _now_in(self) -> str:
        if self.total_outbufs_len:
            return "answer"
        if self.requests:
            return "work"
        if self.request is not None:
            return "body" if self.request.headers_finished else "head"
        return "idle" if self.moved else "head"

    def check(self, now: float, bounds: Bounds) -> None:
        """Give up what takes too long."""
        phase = self._now_in()
        if phase != self.phase:
            self.phase, self.since, self.mark = phase, now, (now, self.moved)
            return
        waited = now - self.since
        if (self.ending and phase not in ("work", "answer")) or (phase == "idle" and waited > bounds.idle_s):
            self.server.overdue.append(self)
        elif phase == "head" and waited > bounds.head_s:
            self._time_out(f"its head was not complete within {bounds.head_s:g} s")
        elif phase == "body" and waited > bounds.body_s:
            self._time_out(f"its body was not complete within {bounds.body_s:g} s")
        elif phase in ("body", "answer") and now - self.mark[0] >= bounds.window_s:
            enough = self.moved - self.mark[1] >= bounds.least_bytes_per_s * (now - self.mark[0])
            self.mark = (now, self.moved)
            if not enough and phase == "answer":
                log.info("the client reads a response too slowly, closing the connection")
                self.server.overdue.append(self)
            elif not enough:
                self._time_out(f"its body came at less than {bounds.least_bytes_per_s} bytes a second")

    def _time_out(self, reason: str) -> None:
        """Answer 408 where something of a request came, and close."""
        log.info("request timed out: %s", reason)
        with self.requests_lock:
            request, self.request = self.request, None
            if request is not None:
                request.error = RequestTimeout(f"The request was stopped: {reason}. Send it again.")
                request.completed = True
                self.requests.append(request)
        if request is None:
            self.server.overdue.append(self)
        else:
            self.server.add_task(self)


class BoundedServer(TcpWSGIServer):  # type: ignore[misc]
    """Looks after its connections at intervals, and when a new one comes."""

    channel_class = TimedChannel

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.overdue: list[TimedChannel] = []
        super().__init__(*arguments, **options)

    def close_overdue(self) -> None:
        """Between two polls: during one, a new connection could get the number of one that was closed."""
        for channel in self.overdue:
            if channel.connected:
                channel.handle_close()
        self.overdue.clear()

    def maintenance(self, now: float) -> None:
        """Find what takes too long or too much."""
        bounds: Bounds = self.adj.bounds
        for channel in list(self.active_channels.values()):
            channel.check(now, bounds)
        self._bound_bytes(bounds.held_bytes)

    def handle_accept(self) -> None:
        """Take a connection; of too many, the address with the most unfinished requests loses its oldest."""
        super().handle_accept()
        most = self.adj.bounds.connections * 9 // 10
        if len(self.active_channels) <= most:
            return
        waiting = [channel for channel in self.active_channels.values() if channel.unfinished]
        if not waiting:
            return
        addresses = Counter(channel.addr[0] for channel in waiting)
        crowded = addresses.most_common(1)[0][0]
        oldest = min((c for c in waiting if c.addr[0] == crowded), key=lambda c: float(c.since))
        self.overdue.append(oldest)

    def _bound_bytes(self, most: int) -> None:
        held = sorted(self.active_channels.values(), key=lambda channel: int(channel.held_bytes))
        total = sum(channel.held_bytes for channel in held)
        while total > most:
            largest = held.pop()
            total -= largest.held_bytes
            log.warning("buffers of connections exceed %d MiB, closing the largest", most // MIB)
            self.overdue.append(largest)
