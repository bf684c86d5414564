"""A small HTTP server for the emulated machines: JSON in, JSON or a stream out; who leaves is noticed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

MOST_BYTES = 4_000_000
"""Of one request."""


class Exchange:
    """A request and its answer."""

    def __init__(self, method: str, path: str, body: bytes, transport: asyncio.Transport) -> None:
        self.method = method
        self.path = path
        self._body = body
        self._transport = transport

    def payload(self) -> dict[str, Any]:
        """The JSON object that was sent; empty for anything else."""
        try:
            parsed = json.loads(self._body or b"{}")
        except ValueError:
            return {}
        return parsed if isinstance(parsed, dict) else {}

    def json(self, value: Any, status: int = 200) -> None:
        """Answer with JSON."""
        data = json.dumps(value).encode()
        self._head(status, "application/json; charset=utf-8", f"Content-Length: {len(data)}", data)

    def begin(self, kind: str) -> None:
        """Begin a stream of chunks."""
        self._head(200, kind, "Transfer-Encoding: chunked")

    def chunk(self, data: bytes) -> None:
        """One chunk of the stream."""
        self._transport.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self) -> None:
        """The stream is over."""
        self._transport.write(b"0\r\n\r\n")

    def drop(self) -> None:
        """Break the connection off, as a machine that loses power."""
        self._transport.abort()

    def _head(self, status: int, kind: str, length: str, data: bytes = b"") -> None:
        first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
        self._transport.write(f"{first}\r\nContent-Type: {kind}\r\n{length}\r\n\r\n".encode() + data)


Answer = Callable[[Exchange], Awaitable[None]]


class Connection(asyncio.Protocol):
    """Requests of one client, one after the other; `answer` is cancelled when the client leaves."""

    def __init__(self, answer: Answer, refuses: Callable[[], bool]) -> None:
        self._answer = answer
        self._refuses = refuses
        self._received = bytearray()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._refuses():
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        self._received += data
        if len(self._received) > MOST_BYTES:
            self._transport.abort()
        elif self._task is None:
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left."""
        if self._task is not None:
            self._task.cancel()

    def _next(self) -> None:
        head, found, rest = bytes(self._received).partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(fields.get("content-length") or 0)
        if len(rest) < length:
            return
        del self._received[: len(head) + 4 + length]
        method, target, *_ = first.split(" ")
        exchange = Exchange(method, target.partition("?")[0], rest[:length], self._transport)
        if fields.get("expect"):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._task = asyncio.ensure_future(self._one(exchange, last=fields.get("connection") == "close"))

    async def _one(self, exchange: Exchange, *, last: bool) -> None:
        await self._answer(exchange)
        self._task = None
        if last:
            self._transport.close()
        else:
            self._next()
