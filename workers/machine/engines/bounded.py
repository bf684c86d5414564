"""What keeps a generation over HTTP inside its bounds: deadline, gaps, bytes; and the messages."""

from __future__ import annotations

import html
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType

from grading.errors import (
    BudgetExceeded,
    EngineBrokeOff,
    EngineBusy,
    EngineError,
    EngineGarbled,
    EngineStalled,
    EngineUnreachable,
    JobInvalid,
    ModelMissing,
    OutputEmpty,
    OutputEndless,
    OutputTruncated,
)
from workers.machine.engines.base import Progress, Request

MAX_TEXT_BYTES = 200_000
MAX_WIRE_BYTES = 20_000_000
MAX_BLANKS = 1_000
"""Characters of white space in a row; models bound to JSON can go on with them for ever."""
PROGRESS_EVERY_S = 0.3
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)


def messages(request: Request) -> list[dict[str, str]]:
    """The chat of a request: system and user; on a repair try also the first answer and what was wrong."""
    chat = [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}]
    if request.repair:
        chat.append({"role": "assistant", "content": request.previous})
        chat.append({"role": "user", "content": request.repair})
    return chat


@dataclass(frozen=True)
class Limits:
    """Seconds an HTTP engine may take: to connect, up to the first token, and between two chunks."""

    connect: float = 5.0
    chunk: float = 60.0
    load: float = 300.0


class Watch:
    """Shuts a connection down when the deadline passes or nothing complete arrives in time.

    Socket time-outs alone do not do: a server that sends a byte now and then never trips them.
    Use as a context manager around the exchange; `failure()` then says what the watch did, if anything.
    """

    def __init__(self, request: Request, limits: Limits, where: str) -> None:
        self._limits = limits
        self._budget = request.deadline_s
        self._where = where
        self._start = self._last = time.monotonic()
        self._deadline = self._start + request.deadline_s
        self._allowed = limits.load
        self._wire = 0
        self._sockets: list[socket.socket] = []
        self._failure: EngineError | None = None
        self._changed = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="engine-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
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
                self._allowed = self._limits.chunk

    def wire(self, count: int) -> None:
        """Count bytes received; too many raise OutputEndless."""
        self._wire += count
        if self._wire > MAX_WIRE_BYTES:
            raise OutputEndless(f"{self._where} sent more than {MAX_WIRE_BYTES} bytes for one answer.")

    def failure(self) -> EngineError | None:
        """Why the watch ended the exchange, or nothing."""
        with self._changed:
            return self._failure

    def _run(self) -> None:
        with self._changed:
            while not self._over:
                now = time.monotonic()
                stall = self._last + self._allowed
                if now >= self._deadline:
                    self._failure = BudgetExceeded(
                        f"{self._where} did not finish within the {self._budget:g} s of this job."
                    )
                elif now >= stall:
                    self._failure = EngineStalled(f"{self._where} sent nothing for {self._allowed:g} s.")
                if self._failure is not None:
                    self._shut()
                    return
                self._changed.wait(min(self._deadline, stall) - now)

    def _shut(self) -> None:
        for sock in self._sockets:
            try:
                # the plain socket's shutdown: on TLS sockets the override would wait for the peer's goodbye
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                continue  # already closed


@dataclass
class Answer:
    """The text as it arrives, with the time of its first token. `most` is how many tokens were asked for."""

    watch: Watch
    progress: Progress
    most: int
    parts: list[str] = field(default_factory=list)
    chunks: int = 0
    """Pieces of text and of thought: about one a token."""
    first_token_s: float | None = None
    _bytes: int = 0
    _blanks: int = 0
    _told: float = 0.0

    def add(self, text: str, thought: str = "") -> None:
        """Take a piece of text, or count one of thought; raises OutputEndless when it is too much."""
        if not text and not thought:
            return
        elapsed = self.watch.elapsed
        if self.first_token_s is None:
            self.first_token_s = elapsed
        self.parts.append(text)
        self.chunks += 1
        self._bound(text)
        if self.chunks == 1 or elapsed - self._told >= PROGRESS_EVERY_S:
            self._told = elapsed
            self.progress(self.chunks)

    def _bound(self, text: str) -> None:
        self._bytes += len(text.encode("utf-8", "replace"))
        if self._bytes > MAX_TEXT_BYTES:
            raise OutputEndless(f"The model wrote more than {MAX_TEXT_BYTES} bytes; the answer was dropped.")
        # servers count a little differently, and none sends more pieces than tokens
        if self.chunks > 2 * self.most + 100:
            raise OutputEndless(
                f"The model went on after the {self.most} tokens it was allowed; the answer was dropped. "
                "Look whether the server honours its token limit."
            )
        written = len(text.rstrip())
        self._blanks = len(text) - written + (0 if written else self._blanks)
        if self._blanks > MAX_BLANKS:
            raise OutputEndless("The model wrote nothing but white space any more; the answer was dropped.")

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self.parts)


def lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Lines without their ends; an unfinished last line is given too."""
    rest = bytearray()
    for chunk in chunks:
        rest += chunk
        if b"\n" in chunk:
            *whole, tail = bytes(rest).split(b"\n")
            rest = bytearray(tail)
            for line in whole:
                yield line.rstrip(b"\r")
    if rest:
        yield bytes(rest).rstrip(b"\r")


def unreachable(where: str, connect_s: float) -> EngineUnreachable:
    """The error for a connection that was not made."""
    return EngineUnreachable(
        f"{where} refused the connection or did not answer within {connect_s:g} s. "
        "Start it, or correct its url in config.toml."
    )


def broke_off(where: str, how: str) -> EngineBrokeOff:
    """The error for an answer that ended before it was complete."""
    return EngineBrokeOff(f"{where} broke off the answer ({how}). Look at its log.")


def garbled(where: str) -> EngineGarbled:
    """The error for bytes that are not of the protocol."""
    return EngineGarbled(
        f"{where} sent something that is not part of its protocol. Look what answers at that url."
    )


def wrote_something(where: str, text: str, *, truncated: bool) -> None:
    """Raises OutputTruncated or OutputEmpty for an answer without a word."""
    if text.strip():
        return
    if truncated:
        raise OutputTruncated("The model reached its token limit before it wrote a word.")
    raise OutputEmpty(f"{where} finished without writing anything.")


def not_a_page(where: str, content_type: str, expected: str = "") -> None:
    """Raises EngineGarbled for a content type that is a web page's, or not the `expected` one."""
    if "html" in content_type.lower() or (content_type and expected not in content_type.lower()):
        raise EngineGarbled(
            f"{where} answered with {content_type[:60]!r}, which no engine sends. "
            "A proxy may stand before it; correct its url in config.toml."
        )


def status_error(where: str, status: int, text: str, missing: str) -> EngineError:
    """The error for an HTTP status other than 200; `missing` is the sentence for 404."""
    said = _said(text)
    if status == 404:
        return ModelMissing(missing)
    if status in (429, 503):
        return EngineBusy(f"{where} has no room for another request: {said or status}")
    if status in (502, 504):
        return EngineUnreachable(
            f"A proxy answered for {where}, which does not answer itself: {said or status}"
        )
    if 300 <= status < 400:
        return EngineGarbled(
            f"{where} sends on to another address ({status}). Correct its url in config.toml."
        )
    if status in (401, 403):
        return EngineError(f"{where} refused access with status {status}. Check the engine's API key.")
    if status in (400, 413) and "context" in said.lower():
        return JobInvalid(f"The prompt does not fit the model's context: {said}")
    return EngineError(f"{where} answered with status {status}: {said or 'no reason given'}")


def _said(text: str) -> str:
    """What a body says, short; of a web page its title."""
    if text.lstrip().startswith("<") and (title := _TITLE.search(text)):
        text = html.unescape(title[1])
    return " ".join(text.split())[:300]
