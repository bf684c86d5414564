"""Ends an exchange over HTTP: at its deadline, when nothing arrives, or when nobody waits any more."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType

from grading.domain.errors import BudgetExceeded, Cancelled, EngineError, EngineStalled, OutputEndless
from workers.machine.engines.base import Cancel

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
class Heard:
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
        self, deadline_s: float, cancel: Cancel, limits: Limits, where: str, heard: Heard | None = None
    ) -> None:
        self._limits = limits
        self._heard = heard or Heard()
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
        self._stack.enter_context(self._cancel.heard_by(self._unwanted))
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
            raise OutputEndless(f"{self._where} sent more than {MAX_WIRE_BYTES} bytes for one answer.")

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
        self.end(Cancelled(f"Nobody waits for this run any more; {self._where} was left."))

    def _run(self) -> None:
        with self._changed:
            while not self._over and self._failure is None:
                now = time.monotonic()
                stall = self._deadline if self._waiting else self._silent_until()
                if now >= self._deadline:
                    self._failure = BudgetExceeded(
                        f"{self._where} did not finish within the {self._budget:g} s of this job."
                    )
                elif now >= stall:
                    self._failure = EngineStalled(
                        f"{self._where} sent nothing for {round(now - self._last, 1):g} s."
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
