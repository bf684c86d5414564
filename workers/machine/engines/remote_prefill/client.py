"""The writing side: has a prompt read elsewhere and fills a cache with what arrives."""

from __future__ import annotations

import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from grading.domain.errors import EngineError
from workers.machine.engines.remote_prefill import errors
from workers.machine.engines.remote_prefill.cache_chunks import Piece
from workers.machine.engines.remote_prefill.cache_layout import FORMAT, Layout
from workers.machine.engines.remote_prefill.compression import stretched
from workers.machine.engines.remote_prefill.errors import (
    ForeignCache,
    FrameCorrupt,
    LinkStalled,
    NotAuthentic,
    OutOfTime,
    PeerLost,
    PeerRefused,
    PeerUnreachable,
    TooLarge,
    TransferError,
    VersionDiffers,
)
from workers.machine.engines.remote_prefill.frames import Channel, Frame, Kind, proof, proves

CONNECT_S = 2.0
"""Seconds in which the reading machine has to answer."""
UNDER_WAY = 4
"""Frames that may wait to be put into the cache; then no more are taken off the link."""
CODES: dict[str, type[TransferError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, TransferError)
}


@dataclass(frozen=True)
class Peer:
    """A machine that reads prompts for others."""

    name: str
    host: str
    port: int


@dataclass(frozen=True)
class Order:
    """What is to be read: all of `ids`, of which `shared` are the class's and `have` are here already."""

    fingerprint: str
    ids: list[int]
    shared: int
    have: int
    keep: bool
    bits: int | None
    zstd: bool
    most_bytes: int
    seconds: float

    def frame(self) -> Frame:
        """As it is asked for."""
        body = b"".join(token.to_bytes(4, "little") for token in self.ids)
        head = {
            "fingerprint": self.fingerprint, "shared": self.shared, "have": self.have, "keep": self.keep,
            "bits": self.bits, "zstd": self.zstd, "most_bytes": self.most_bytes, "seconds": self.seconds,
        }  # fmt: skip
        return Frame(Kind.ASK, head, body)


@dataclass(frozen=True)
class Account:
    """What reading elsewhere took: seconds by the reading machine's clock but for `arriving_s`, and bytes."""

    queued_s: float
    read_s: float
    held_s: float
    compress_s: float
    send_s: float
    tail_s: float
    """From the end of reading until the last byte was sent."""
    cached: int
    """Tokens of the prompt that the reading machine knew already."""
    read: int
    """Tokens that it read."""
    bytes: int
    """On the link."""
    arriving_s: float
    """From asking to the last byte, by this machine's clock."""


def have_read(
    peer: Peer,
    secret: bytes,
    order: Order,
    layout: Layout,
    take: Callable[[list[Piece]], Future[Any]],
    look: Callable[[], None],
) -> Account:
    """Have a prompt read; `take` gets the pieces in their order, and `look` may raise to give up.

    Raises TransferErrors.
    """
    begun = time.monotonic()
    try:
        sock = socket.create_connection((peer.host, peer.port), CONNECT_S)
    except OSError as error:
        raise PeerUnreachable(f"{peer.name} does not take prompts: {error.strerror or error}.") from None
    channel = Channel(sock, look)
    try:
        _sign_in(channel, secret, _greeting(channel, peer))
        channel.send(order.frame())
        return _receive(channel, order, layout, take, begun)
    except OutOfTime as error:
        if channel.first_body is not None:
            error.received, error.sending_s = channel.received, time.monotonic() - channel.first_body
        raise
    finally:
        channel.close()


def _greeting(channel: Channel, peer: Peer) -> str:
    """The nonce that the reading machine greets with."""
    try:
        return str(_expect(channel, Kind.HELLO).head.get("nonce", ""))
    except (FrameCorrupt, LinkStalled, PeerLost) as error:
        raise type(error)(
            f"{error.message} {peer.name} ({peer.host}:{peer.port}) did not greet as `grader prefill` does. "
            "Look whether that runs there: other programs' servers, as Ollama's or llama.cpp's, cannot read "
            "for this engine."
        ) from None


def _sign_in(channel: Channel, secret: bytes, theirs: str) -> None:
    own = secrets.token_hex(16)
    said = {"nonce": own, "proof": proof(secret, "writer", theirs, own)}
    channel.send(Frame(Kind.LOGIN, said))
    if not proves(_expect(channel, Kind.WELCOME).head.get("proof"), secret, "reader", own, theirs):
        raise NotAuthentic("The reading machine does not know the secret (GRADER_PREFILL_SECRET).")


def _receive(
    channel: Channel,
    order: Order,
    layout: Layout,
    take: Callable[[list[Piece]], Future[Any]],
    begun: float,
) -> Account:
    said = _expect(channel, Kind.LAYOUT).head
    if said.get("format") != FORMAT:
        raise ForeignCache(
            f"The reading machine sends caches of {str(said.get('format', 'an unnamed program'))[:40]}; this "
            f"engine takes those of {FORMAT} only. Let `grader prefill` read there."
        )
    layout.check(said.get("layers"))
    waiting: deque[Future[Any]] = deque()
    taken = 0
    while True:
        frame = _expect(channel, Kind.PIECE, Kind.ALIVE, Kind.DONE)
        if frame.kind == Kind.DONE:
            break
        if frame.kind == Kind.PIECE:
            pieces = _pieces(frame, order)
            taken += sum(sum(len(part) for part in piece.parts) for piece in pieces)
            if taken > order.most_bytes:
                raise TooLarge("More of the cache arrived than was announced.")
            waiting.append(take(pieces))
        while waiting and (len(waiting) > UNDER_WAY or waiting[0].done()):
            settled(waiting.popleft())
    while waiting:
        settled(waiting.popleft())
    return _account(frame.head, channel.received, time.monotonic() - begun)


def quietly(function: Callable[[], Any]) -> Callable[[], Any]:
    """The function, giving back the TransferError it raises: the mlx thread would wrap it."""

    def run() -> Any:
        try:
            return function()
        except TransferError as error:
            return error

    return run


def settled(future: Future[Any]) -> Any:
    """The result of a function that runs quietly on the mlx thread. Raises TransferErrors."""
    try:
        found = future.result()
    except EngineError as error:
        raise TransferError(error.message) from error
    if isinstance(found, TransferError):
        raise found
    return found


def _expect(channel: Channel, *kinds: Kind) -> Frame:
    frame = channel.receive()
    if frame.kind == Kind.REFUSED:
        kind = CODES.get(str(frame.head.get("code")), PeerRefused)
        raise kind(str(frame.head.get("message", ""))[:500])
    if frame.kind not in kinds:
        raise VersionDiffers(f"The reading machine said {frame.kind.name} where {kinds[0].name} was due.")
    return frame


def _pieces(frame: Frame, order: Order) -> list[Piece]:
    """The pieces of a frame. Raises FrameCorrupt."""
    try:
        size = int(frame.head["bytes"])
        if not 0 <= size <= order.most_bytes:
            raise FrameCorrupt("A frame is larger than what was announced.")
        body = memoryview(stretched(frame.body, size, order.zstd)).cast("B")
        pieces, at = [], 0
        for layer, lo, hi, *lengths in frame.head["pieces"]:
            parts = []
            for length in map(int, lengths):
                if length < 0:
                    raise FrameCorrupt("A piece has a negative length.")
                parts.append(body[at : at + length])
                at += length
            pieces.append(Piece(int(layer), int(lo), int(hi), tuple(parts)))
    except (KeyError, TypeError, ValueError):
        raise FrameCorrupt("The head of a piece cannot be read.") from None
    if at != len(body) or size != len(body):
        raise FrameCorrupt("A frame has another length than its pieces.")
    return pieces


def _account(said: dict[str, Any], received: int, seconds: float) -> Account:
    try:
        spans = {
            name: float(said[name])
            for name in ("queued_s", "read_s", "held_s", "compress_s", "send_s", "tail_s")
        }
        return Account(
            **spans, cached=int(said["cached"]), read=int(said["read"]), bytes=received, arriving_s=seconds
        )
    except (KeyError, TypeError, ValueError):
        raise FrameCorrupt("The end of a cache cannot be read.") from None
