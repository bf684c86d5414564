"""The reading side on the network: who shows the secret has prompts read, and gets the cache as it grows."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import structlog
from pydantic import Field, ValidationError

from grading.domain.errors import GraderError
from grading.domain.value import Value
from workers.machine.engines.remote_prefill.cache_chunks import GROUP, Piece, flat
from workers.machine.engines.remote_prefill.cache_layout import FORMAT, Want
from workers.machine.engines.remote_prefill.compression import Squeezer
from workers.machine.engines.remote_prefill.errors import (
    NotAuthentic,
    OutOfTime,
    PeerLost,
    PeerRefused,
    TooLarge,
    TransferError,
)
from workers.machine.engines.remote_prefill.frames import ALIVE_S, Channel, Frame, Kind, Pace, proof, proves
from workers.machine.engines.remote_prefill.models import Reader
from workers.machine.engines.remote_prefill.prefill import Prompt

FRAME_BYTES = 4 << 20
"""Keys and values in one frame, about."""
MOST_TOKENS = 1 << 20
LOGIN_S = 5.0
"""Seconds in which a caller has to show the secret."""
AT_ONCE = 64
"""Connections at once."""
log = structlog.get_logger(__name__)


class Ask(Value):
    """What the writing side wants to have read."""

    fingerprint: str
    shared: Annotated[int, Field(ge=0)] = 0
    have: Annotated[int, Field(ge=0)] = 0
    keep: bool = False
    bits: Literal[8] | None = None
    zstd: bool = False
    most_bytes: Annotated[int, Field(ge=1)]
    seconds: Annotated[float, Field(gt=0, le=86400)]


class Serving:
    """Listens until it is closed. `most_bytes` bounds what waits for one caller, beside the cache itself.

    `link_bytes_s` holds what is sent to one caller to a rate, for measurements.
    """

    def __init__(
        self,
        reader: Reader,
        secret: bytes,
        address: tuple[str, int],
        *,
        most_bytes: int = 256 << 20,
        link_bytes_s: float | None = None,
    ) -> None:
        self._reader = reader
        self._secret = secret
        self._most = most_bytes
        self._rate = link_bytes_s
        self._closing = threading.Event()
        self._room = threading.BoundedSemaphore(AT_ONCE)
        self._socket = socket.create_server(address)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._thread = threading.Thread(target=self._accept, name="prefill-accept", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more callers; those that are there are told."""
        self._closing.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, peer = self._socket.accept()
            except OSError:
                return
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(
                target=self._serve, args=(connection, peer[0]), name="prefill", daemon=True
            ).start()

    def _serve(self, connection: socket.socket, peer: str) -> None:
        """One caller, from greeting to end; the one boundary where a caller's fault ends."""
        channel = Channel(connection, self._look(LOGIN_S), Pace(self._rate) if self._rate else None)
        try:
            self._greet(channel)
            self._answer(channel)
        except PeerLost as error:
            log.info("prefill_caller_left", peer=peer, message=error.message)
        except GraderError as error:
            log.warning("prefill_refused", peer=peer, code=error.code, message=error.message)
            _refuse(channel, error)
        except Exception:
            log.exception("prefill_failed", peer=peer)
            _refuse(channel, PeerRefused("The reading machine failed; its log says how."))
        finally:
            channel.close()
            self._room.release()

    def _look(self, seconds: float) -> Callable[[], None]:
        """Gives up after so many seconds, and when this side stops."""
        end = time.monotonic() + seconds

        def look() -> None:
            if self._closing.is_set():
                raise PeerRefused("This machine stops reading.")
            if time.monotonic() > end:
                raise OutOfTime("The time for this prompt is over.")

        return look

    def _greet(self, channel: Channel) -> None:
        own = secrets.token_hex(16)
        channel.send(Frame(Kind.HELLO, {"nonce": own}))
        login = channel.receive(0)
        theirs = str(login.head.get("nonce", ""))
        if login.kind != Kind.LOGIN or not proves(
            login.head.get("proof"), self._secret, "writer", own, theirs
        ):
            raise NotAuthentic("The caller does not know the secret of this machine (GRADER_PREFILL_SECRET).")
        channel.send(Frame(Kind.WELCOME, {"proof": proof(self._secret, "reader", theirs, own)}))

    def _answer(self, channel: Channel) -> None:
        import numpy as np

        frame = channel.receive(4 * MOST_TOKENS)
        try:
            ask = Ask.model_validate(frame.head)
            ids = np.frombuffer(frame.body, "<u4").tolist()
        except (ValidationError, ValueError) as error:
            raise PeerRefused(f"What was asked for cannot be read: {str(error)[:300]}") from None
        channel.look = self._look(ask.seconds)
        loaded, layout = self._reader.find(ask.fingerprint)
        if frame.kind != Kind.ASK or not ids or not ask.have < len(ids) or ask.shared > len(ids):
            raise PeerRefused("What was asked for does not fit together.")
        if max(ids) >= loaded.vocabulary or len(ids) > (loaded.context or len(ids)):
            raise PeerRefused("The prompt has tokens that the model does not know, or more than its context.")
        if ask.bits and any(
            dim % GROUP for layer in layout.layers for dim in (layer.key_dim, layer.value_dim)
        ):
            raise PeerRefused(
                f"Keys and values of this model do not come in groups of {GROUP}: send them whole."
            )
        want = Want(ask.have, len(ids), ask.shared if ask.keep and ask.have < ask.shared else None)
        if (size := layout.bytes(want)) > ask.most_bytes:
            raise TooLarge(f"The cache of this prompt has {size} bytes; {ask.most_bytes} are allowed.")
        channel.send(Frame(Kind.LAYOUT, {"format": FORMAT, "layers": layout.wire(), "bytes": size}))
        queue = _Outgoing(self._most)
        prompt = Prompt(ids, ask.shared, want, ask.bits, queue.put, lambda: queue.closed)
        try:
            self._reader.submit(ask.fingerprint, prompt)
            self._send_all(channel, prompt, queue, Squeezer(ask.zstd))
        finally:
            queue.close()

    def _send_all(self, channel: Channel, prompt: Prompt, queue: _Outgoing, squeezer: Squeezer) -> None:
        prompt.done.add_done_callback(lambda _: queue.wake())
        sending, ended = 0.0, False
        while not ended:
            ended = prompt.done.done()  # before the last look for pieces
            pieces = queue.take()
            if not pieces and not ended:
                self._wait(channel, prompt, queue)
            ended = ended and not pieces
            begun = time.monotonic()
            if pieces:
                channel.send(framed(pieces, squeezer))
            sending += time.monotonic() - begun
        if prompt.done.cancelled():
            raise PeerLost("The caller left.")
        prompt.done.result()
        channel.send(Frame(Kind.DONE, _times(prompt, sending, squeezer)))

    def _wait(self, channel: Channel, prompt: Prompt, queue: _Outgoing) -> None:
        """Until there is something to send, or for a second; then it tells that this side lives."""
        if queue.wait(ALIVE_S) or prompt.done.done():
            return
        if channel.gone():
            raise PeerLost("The caller left.")
        channel.send(Frame(Kind.ALIVE, {"at": prompt.at, "begun": prompt.begun is not None}))


class _Outgoing:
    """Pieces on their way from the mlx thread to a connection, at most so many bytes of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._pieces: deque[Piece] = deque()
        self._changed = threading.Condition()
        self.closed = False
        """Whether nobody takes them any more."""

    def put(self, pieces: list[Piece]) -> None:
        """Add; waits while there are too many. Raises PeerLost when nobody takes them any more."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._held < self._most)
            if self.closed:
                raise PeerLost("The caller left.")
            self._pieces.extend(pieces)
            self._held += sum(sum(piece.lengths) for piece in pieces)
            self._changed.notify_all()

    def take(self) -> list[Piece]:
        """Some pieces, about a frame; none when none are there."""
        taken: list[Piece] = []
        size = 0
        with self._changed:
            while self._pieces and size < FRAME_BYTES:
                taken.append(self._pieces.popleft())
                size += sum(taken[-1].lengths)
            self._held -= size
            self._changed.notify_all()
        return taken

    def wait(self, seconds: float) -> bool:
        """Wait until there are some, or somebody calls `wake`."""
        with self._changed:
            return bool(self._pieces) or self._changed.wait(seconds)

    def wake(self) -> None:
        """End a `wait`."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Take none any more."""
        with self._changed:
            self.closed = True
            self._pieces.clear()
            self._changed.notify_all()


def framed(pieces: Sequence[Piece], squeezer: Squeezer) -> Frame:
    """Pieces as a frame: their places and lengths in the head, all their bytes in the body."""
    said, body = [], bytearray()
    for piece in pieces:
        parts = flat(piece.parts)
        said.append([piece.layer, piece.lo, piece.hi, *(len(part) for part in parts)])
        for part in parts:
            body += part
    return Frame(Kind.PIECE, {"pieces": said, "bytes": len(body)}, squeezer.squeeze(body))


def _times(prompt: Prompt, sending: float, squeezer: Squeezer) -> dict[str, float | int]:
    now = time.monotonic()
    begun, ended = prompt.begun or now, prompt.ended or now
    return {
        "queued_s": begun - prompt.asked,
        "read_s": ended - begun - prompt.handing_s,
        "held_s": prompt.handing_s,
        "compress_s": squeezer.seconds,
        "send_s": sending - squeezer.seconds,
        "tail_s": now - ended,
        "cached": prompt.cached,
        "read": len(prompt.ids) - prompt.cached,
    }


def _refuse(channel: Channel, error: GraderError) -> None:
    try:
        channel.look = lambda: None
        channel.send(Frame(Kind.REFUSED, {"code": error.code, "message": error.message}))
        channel.part()
    except TransferError:
        pass  # it has left
