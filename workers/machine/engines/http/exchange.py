"""Ends an exchange over HTTP at its limits: deadline, silence, bytes, cancellation, waits for room."""

from __future__ import annotations

import math
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from grading.domain.errors import (
    BudgetExceeded,
    Cancelled,
    EngineBusy,
    EngineError,
    EngineGarbled,
    EngineStalled,
    OutputEndless,
)
from grading.domain.jobs import Tokens
from workers.machine.engines.base import Cancel, Progress
from workers.machine.engines.http.errors import compressed, not_a_page
from workers.machine.messages import (
    ENGINE_CLOSED,
    ENGINE_LEFT,
    NOT_FINISHED,
    SENT_NOTHING,
    SENT_TOO_MUCH,
    STILL_NO_ROOM,
)

if TYPE_CHECKING:
    import httpx


MAX_WIRE_BYTES = 20_000_000


@dataclass(frozen=True)
class Limits:
    """Seconds an HTTP engine may take: to connect, between two chunks, up to the first token, for a place.

    Between two chunks it may take `load` as long as tokens of others arrive.
    """

    connect: float = 5.0
    chunk: float = 60.0
    load: float = 300.0
    busy: float = 60.0


@dataclass
class LastToken:
    """When a server last sent a token on any of its streams, by the monotonic clock in seconds."""

    at: float = -math.inf


class Watch:
    """Shuts a connection down at the deadline, on a cancel, or when nothing complete arrives in time.

    Socket time-outs alone do not do: a server that sends a byte now and then never trips them.
    Use as a context manager around the exchange; `failure()` then says what the watch did, if anything.
    `heard` is shared by all exchanges with a server: one that reads the prompts of a whole batch sends
    nothing on the streams that have begun for a minute and more, and is as well as can be.
    """

    def __init__(
        self, deadline_s: float, cancel: Cancel, limits: Limits, where: str, heard: LastToken | None = None
    ) -> None:
        self._limits = limits
        self._heard = heard or LastToken()
        self._budget = deadline_s
        self._cancel = cancel
        self._where = where
        self._start = self._last = time.monotonic()
        self._deadline = self._start + deadline_s
        self._allowed = limits.load
        self._wire = 0
        self._sockets: list[socket.socket] = []
        self._failure: EngineError | None = None
        self._inner: Watch | None = None
        self._changed = threading.Condition()
        self._over = False
        self._waiting = False
        self._stack = ExitStack()
        self._thread = threading.Thread(target=self._run, name="engine-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        self._stack.enter_context(self._cancel.on_cancel(self._unwanted))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self._thread.join()

    @property
    def connected(self) -> bool:
        """Whether a connection was made."""
        return bool(self._sockets)

    @property
    def remaining(self) -> float:
        """Seconds to the deadline, never negative."""
        return max(0.0, self._deadline - time.monotonic())

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def hold(self, sock: socket.socket) -> None:
        """Take charge of a connected socket."""
        with self._changed:
            self._sockets.append(sock)
            if self._failure is not None:
                self._shut()

    def arrived(self, *, token: bool) -> None:
        """Something complete arrived; from the first token on, only the shorter gap is allowed."""
        with self._changed:
            self._last = time.monotonic()
            if token:
                self._heard.at = self._last
            if token and self._allowed != self._limits.chunk:
                self._allowed = self._limits.chunk
                self._changed.notify_all()  # the thread may be waiting for the longer gap to pass

    def wire(self, count: int) -> None:
        """Count bytes received; too many raise OutputEndless."""
        self._wire += count
        if self._wire > MAX_WIRE_BYTES:
            raise OutputEndless(SENT_TOO_MUCH(engine=self._where, bytes=MAX_WIRE_BYTES))

    def failure(self) -> EngineError | None:
        """Why the watch ended the exchange, or nothing."""
        with self._changed:
            return self._failure

    def check(self) -> None:
        """Raise why the watch ended the exchange, if it did."""
        if (failure := self.failure()) is not None:
            raise failure

    def end(self, error: EngineError) -> None:
        """End the exchange for this reason, unless it was ended before. From any thread."""
        with self._changed:
            self._failure = self._failure or error
            self._shut()
            self._changed.notify_all()
            inner = self._inner
        if inner is not None:
            inner.end(error)

    def again(self) -> None:
        """A new try begins: what the last one held and had seen no longer counts."""
        self.check()
        with self._changed:
            self._sockets.clear()
            self._last, self._allowed = time.monotonic(), self._limits.load

    def wait(self, seconds: float) -> None:
        """Do nothing so long, without being a stall; raises as soon as the exchange is ended."""
        with self._changed:
            self._waiting = True
            self._changed.wait_for(lambda: self._failure is not None, min(seconds, self.remaining))
        self._go_on()
        self.check()

    @contextmanager
    def aside(self, inner: Watch) -> Iterator[None]:
        """Around another exchange under its own watch: this one expects nothing meanwhile, and ends both."""
        with self._changed:
            self._waiting, self._inner = True, inner
        try:
            yield
        finally:
            self._inner = None
            self._go_on()

    def _go_on(self) -> None:
        with self._changed:
            self._waiting = False
            self._last = time.monotonic()
            self._changed.notify_all()

    def _unwanted(self) -> None:
        self.end(Cancelled(ENGINE_LEFT(engine=self._where)))

    def _run(self) -> None:
        with self._changed:
            while not self._over and self._failure is None:
                now = time.monotonic()
                stall = self._deadline if self._waiting else self._silent_until()
                if now >= self._deadline:
                    self._failure = BudgetExceeded(
                        NOT_FINISHED(engine=self._where, seconds=f"{self._budget:g}")
                    )
                elif now >= stall:
                    self._failure = EngineStalled(
                        SENT_NOTHING(engine=self._where, seconds=f"{round(now - self._last, 1):g}")
                    )
                if self._failure is not None:
                    self._shut()
                    self._changed.notify_all()
                    return
                self._changed.wait(min(self._deadline, stall) - now)

    def _silent_until(self) -> float:
        """When silence is a stall: as late as before the first token while the server goes on with others."""
        others = min(self._heard.at + self._limits.chunk, self._last + self._limits.load)
        return max(self._last + self._allowed, others)

    def _shut(self) -> None:
        for sock in self._sockets:
            try:
                # the plain socket's shutdown: on TLS sockets the override would wait for the peer's goodbye
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                continue  # already closed


def identity_headers() -> dict[str, str]:
    """Ask for uncompressed answers, so that counted bytes are the bytes there are."""
    return {"Accept-Encoding": "identity"}


def watched_transport(watch: Watch, where: str) -> httpx.BaseTransport:
    """A transport for one exchange under this watch."""
    import httpx

    class Counted(httpx.SyncByteStream):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __iter__(self) -> Iterator[bytes]:
            for chunk in self._inner:
                watch.wire(len(chunk))
                yield chunk

        def close(self) -> None:
            self._inner.close()

    class Watched(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            request.extensions = {**request.extensions, "trace": _holder(watch)}
            response = super().handle_request(request)
            try:
                _check(response, where)
            except EngineGarbled:
                response.close()
                raise
            response.stream = Counted(response.stream)
            return response

    return Watched(trust_env=False)


def _check(response: httpx.Response, where: str) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise compressed(where)
    if response.status_code == 200:
        not_a_page(where, response.headers.get("content-type", ""))


def _holder(watch: Watch) -> Any:
    def trace(event: str, info: dict[str, Any]) -> None:
        # told before the first byte is sent, so that a server that never answers can be left too
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            watch.hold(info["return_value"].get_extra_info("socket"))

    return trace


Hold = Callable[[socket.socket], None]


class HeldAdapter(HTTPAdapter):
    """Calls `hold` with every connected socket, before anything is sent; never retries."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pools, with connections that tell."""
        super().init_poolmanager(*args, **kwargs)
        hold = self._hold

        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                hold(self.sock)

        class Secure(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                hold(self.sock)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}


T = TypeVar("T")
SHARE = 0.25
"""The most of a job's time that is spent waiting for room."""
FIRST_S = 0.5
LONGEST_S = 10.0


class BusyRetry:
    """Tries until a server has room: waits at most `most_s` and a quarter of the job's time in all.

    Waits grow and are drawn anew each time, so that those that were refused together do not come together.
    """

    def __init__(self, watch: Watch, progress: Progress, most_s: float) -> None:
        self._watch = watch
        self._progress = progress
        self._most = min(most_s, SHARE * watch.remaining)
        self._next = FIRST_S
        self.waited = 0.0
        """Seconds so far."""

    def until_room(self, attempt: Callable[[], T]) -> T:
        """What the attempt gives; EngineBusy when there is no room in time, and what ends the watch."""
        while True:
            try:
                return attempt()
            except EngineBusy as busy:
                self._wait(busy)

    def _wait(self, busy: EngineBusy) -> None:
        # drawn to spread requests out, not to be hard to guess
        wait = min(self._next * random.uniform(0.5, 1.0), self._most - self.waited)
        if wait <= 0:
            raise EngineBusy(STILL_NO_ROOM(problem=busy.coded, seconds=f"{self.waited:.0f}")) from busy
        self._progress(0, "queued")
        self._watch.wait(wait)
        self._watch.again()
        self.waited += wait
        self._next = min(2 * self._next, LONGEST_S)


class ExchangeCounters:
    """Counts generations and their tokens; thread-safe. Closed, it ends what runs and lets nothing begin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._running: set[Watch] = set()
        self._counts = dict.fromkeys(("requests", "cancelled", "prompt_tokens", "output_tokens"), 0)
        self._cached = 0

    def open(self) -> None:
        """Raises EngineError when closed."""
        if self._closed:
            raise EngineError(ENGINE_CLOSED)

    @contextmanager
    def generation(self, watch: Watch) -> Iterator[None]:
        """Around one generation."""
        with self._lock:
            self.open()
            self._running.add(watch)
            self._counts["requests"] += 1
        try:
            yield
        except (Cancelled, BudgetExceeded):
            with self._lock:
                self._counts["cancelled"] += 1
            raise
        finally:
            with self._lock:
                self._running.discard(watch)

    def answered(self, tokens: Tokens) -> None:
        """The tokens of an answer."""
        with self._lock:
            self._counts["prompt_tokens"] += tokens.prompt
            self._cached += tokens.cached
            self._counts["output_tokens"] += tokens.output

    def close(self) -> None:
        """End every generation with an EngineError."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for watch in running:
            watch.end(EngineError(ENGINE_CLOSED))

    def counters(self) -> Mapping[str, float]:
        """By the names of `base.METRICS`; tokens from a cache only once a server told of some."""
        with self._lock:
            cached = {"cached_tokens": self._cached} if self._cached else {}
            return {"running": len(self._running), **self._counts, **cached}
