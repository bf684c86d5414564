"""The protocol between a machine that reads prompts and one that writes answers.

A frame is a header (magic, version, kind, lengths, CRC-32 over header, head and body), a head of JSON and a
body of bytes. The reading side greets first:

    HELLO    reader → writer  nonce
    LOGIN    writer → reader  nonce, proof
    WELCOME  reader → writer  proof
    ASK      writer → reader  what to read; body: token ids, uint32 little-endian
    LAYOUT   reader → writer  the layers of the cache that will come
    PIECE    reader → writer  tokens lo to hi of some layers; body: keys and values
    ALIVE    reader → writer  nothing to send for a second
    DONE     reader → writer  where the time went
    REFUSED  reader → writer  a code and a sentence, in place of any other

The secret proves who is there; nothing is encrypted: use a private link.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
import struct
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from grading.domain.errors import ConfigError, GraderError


class TransferError(GraderError):
    """The prompt could not be read elsewhere, so it is read where the answer is written; `code` says why."""

    code = "transfer_failed"


class PeerUnreachable(TransferError):
    """The prefill machine does not answer."""

    code = "peer_unreachable"


class PeerRefused(TransferError):
    """The prefill machine does not take this prompt, and says why."""

    code = "peer_refused"


class NotAuthentic(TransferError):
    """The other side does not know the secret."""

    code = "not_authentic"


class VersionDiffers(TransferError):
    """The two sides speak different versions of the protocol."""

    code = "version_differs"


class WeightsDiffer(TransferError):
    """The two sides do not have the same weights, tokenizer or number format."""

    code = "weights_differ"


class ForeignCache(TransferError):
    """The cache is of another program than mlx-lm."""

    code = "foreign_cache"


class NotTransferable(TransferError):
    """This kind of model keeps what it read in a form that is not sent."""

    code = "not_transferable"


class FrameCorrupt(TransferError):
    """What arrived is not what was sent."""

    code = "frame_corrupt"


class LinkStalled(TransferError):
    """Nothing arrived for too long."""

    code = "link_stalled"


class PeerLost(TransferError):
    """The other side ended the connection before all was sent."""

    code = "peer_lost"


class TooLarge(TransferError):
    """What would be kept in memory is more than the settings allow."""

    code = "too_large"


class OutOfTime(TransferError):
    """The time that reading elsewhere may take is over."""

    code = "out_of_time"
    received = 0
    """Bytes of the cache that had come."""
    sending_s = 0.0
    """Seconds since the first of them."""


VERSION = 1
MAGIC = b"GrKV"
HEADER = struct.Struct(">4sBBHIQII")
"""Magic, version, kind, zero, lengths of head and body, zero, CRC-32 reckoned with zero in its place."""
MOST_HEAD = 1 << 20
"""Bytes of JSON in a frame at most."""
MOST_BODY = 64 << 20
"""Bytes of a body at most."""
STALL_S = 5.0
"""Seconds without a byte after which the other side is given up; ALIVE comes each `ALIVE_S`."""
ALIVE_S = 1.0
LOOK_S = 0.2
"""Seconds between looks whether somebody still waits."""
PART_S = 2.0
"""Seconds that a refused caller has to hear it."""
PACED_BYTES = 1 << 16
"""Bytes sent at once where the rate of a link is held."""
LATE_S = 0.02
"""What a socket's buffer would have kept the link busy with meanwhile."""


Bytes = bytes | bytearray | memoryview


class Kind(IntEnum):
    """What a frame says."""

    HELLO = 1
    LOGIN = 2
    WELCOME = 3
    ASK = 4
    LAYOUT = 5
    PIECE = 6
    ALIVE = 7
    DONE = 8
    REFUSED = 9


@dataclass(frozen=True)
class Frame:
    """One message."""

    kind: Kind
    head: dict[str, Any] = field(default_factory=dict)
    body: Bytes = b""


def pack(frame: Frame) -> tuple[bytes, memoryview]:
    """Header with head, and body, as bytes to send one after the other."""
    head = json.dumps(frame.head, separators=(",", ":")).encode()
    body = memoryview(frame.body).cast("B")
    blank = HEADER.pack(MAGIC, VERSION, frame.kind, 0, len(head), len(body), 0, 0)
    return blank[:-4] + struct.pack(">I", _crc(blank, head, body)) + head, body


def _crc(blank: bytes, head: bytes, body: memoryview) -> int:
    return zlib.crc32(body, zlib.crc32(head, zlib.crc32(blank)))


class Channel:
    """One connection, framed. `look` is called while waiting for bytes and may raise to give up.

    `pace` is told how much was sent, and may wait.
    """

    def __init__(
        self,
        sock: socket.socket,
        look: Callable[[], None] = lambda: None,
        pace: Callable[[int], None] | None = None,
    ) -> None:
        self._sock = sock
        self._pace = pace
        self.look = look
        self.sent = 0
        """Bytes sent so far."""
        self.received = 0
        """Bytes received so far."""
        self.first_body: float | None = None
        """When the first body began to arrive, by `time.monotonic`."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(LOOK_S)

    def send(self, frame: Frame) -> None:
        """Send a frame. Raises LinkStalled, PeerLost and what `look` raises."""
        for part in pack(frame):
            self._send(memoryview(part))

    def receive(self, most_body: int = MOST_BODY) -> Frame:
        """The next frame.

        Raises FrameCorrupt, VersionDiffers, LinkStalled, PeerLost and what `look` raises.
        """
        header = self._exactly(HEADER.size)
        magic, version, kind, zero, head_length, body_length, nil, crc = HEADER.unpack(header)
        if magic != MAGIC:
            raise FrameCorrupt("The received data is not a frame.")
        if version != VERSION:
            raise VersionDiffers(
                f"The other machine uses version {version} of the protocol, this one "
                f"uses {VERSION}. Update both to the same release."
            )
        if zero or nil or head_length > MOST_HEAD or body_length > most_body:
            raise FrameCorrupt("The header of a frame is out of bounds.")
        head = bytes(self._exactly(head_length))
        if body_length and self.first_body is None:
            self.first_body = time.monotonic()
        body = self._exactly(body_length)
        if _crc(bytes(header[:-4]) + bytes(4), head, memoryview(body)) != crc:
            raise FrameCorrupt("The checksum of a frame is wrong.")
        try:
            said = json.loads(head) if head else {}
            return Frame(Kind(kind), said if isinstance(said, dict) else {}, body)
        except ValueError:
            raise FrameCorrupt("The head of a frame cannot be read.") from None

    def gone(self) -> bool:
        """Whether the other side has ended the connection, or sent what it should not; does not wait."""
        self._sock.settimeout(0)
        try:
            return self._sock.recv(1, socket.MSG_PEEK) is not None
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True
        finally:
            self._sock.settimeout(LOOK_S)

    def part(self) -> None:
        """Let the other side read what was said last: to close with something unread would throw it away."""
        end, left = time.monotonic() + PART_S, MOST_BODY
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
            while left > 0 and time.monotonic() < end:
                with contextlib.suppress(TimeoutError):
                    got = len(self._sock.recv(1 << 16))
                    if not got:
                        return
                    left -= got

    def close(self) -> None:
        """End the connection."""
        self._sock.close()

    def _send(self, data: memoryview) -> None:
        last = time.monotonic()
        while data:
            self.look()
            try:
                count = self._sock.send(data if self._pace is None else data[:PACED_BYTES])
            except TimeoutError:
                if time.monotonic() - last > STALL_S:
                    raise LinkStalled(f"Nothing could be sent for {STALL_S:g} s.") from None
                continue
            except OSError as error:
                raise PeerLost(f"The connection was lost: {error.strerror or error}.") from None
            self.sent += count
            if self._pace is not None:
                self._pace(count)
            data, last = data[count:], time.monotonic()

    def _exactly(self, count: int) -> bytearray:
        data, at, last = bytearray(count), 0, time.monotonic()
        view = memoryview(data)
        while at < count:
            self.look()
            try:
                got = self._sock.recv_into(view[at:])
            except TimeoutError:
                if time.monotonic() - last > STALL_S:
                    raise LinkStalled(f"Nothing arrived for {STALL_S:g} s.") from None
                continue
            except OSError as error:
                raise PeerLost(f"The connection was lost: {error.strerror or error}.") from None
            if not got:
                raise PeerLost("The other machine closed the connection.")
            self.received += got
            at, last = at + got, time.monotonic()
        return data


class Pace:
    """Holds what is sent to `bytes_s` bytes a second.

    A link does not stop while this process waits for its processor: who comes a little late catches up.
    """

    def __init__(self, bytes_s: float) -> None:
        self._rate = bytes_s
        self._free = time.monotonic()

    def __call__(self, count: int) -> None:
        """Wait until the link would have carried so many bytes."""
        now = time.monotonic()
        self._free = (now if now - self._free > LATE_S else self._free) + count / self._rate
        time.sleep(max(0.0, self._free - time.monotonic()))


def proof(secret: bytes, who: str, first: str, second: str) -> str:
    """Shows that `who` knows the secret, for these two nonces only; hex of 64 characters."""
    return hmac.new(secret, f"{VERSION} {who} {first} {second}".encode(), hashlib.sha256).hexdigest()


def proves(said: object, secret: bytes, who: str, first: str, second: str) -> bool:
    """Whether that is the proof; takes the same time for any other."""
    return isinstance(said, str) and hmac.compare_digest(
        said.encode(), proof(secret, who, first, second).encode()
    )


LEVEL = 1


class Compressor:
    """Compresses bodies, or leaves them as they are; counts its seconds."""

    def __init__(self, on: bool) -> None:
        self._on = on
        self.seconds = 0.0
        """Seconds spent so far."""
        if on:
            try:
                import zstandard
            except ImportError:
                raise PeerRefused("zstandard is not installed here: install Grader's mlx extra.") from None
            self._compressor = zstandard.ZstdCompressor(level=LEVEL, threads=-1)

    def squeeze(self, body: Bytes) -> Bytes:
        """The bytes to send."""
        if not self._on:
            return body
        begun = time.monotonic()
        done = self._compressor.compress(body)
        self.seconds += time.monotonic() - begun
        return done


def decompressed(body: Bytes, size: int, on: bool) -> Bytes:
    """What was sent, `size` bytes of it. Raises FrameCorrupt."""
    if not on:
        return body
    import zstandard

    try:
        whole: bytes = zstandard.ZstdDecompressor().decompress(body, max_output_size=size)
    except zstandard.ZstdError as error:
        raise FrameCorrupt(f"A compressed piece cannot be read: {error}") from None
    return whole


SECRET_VARIABLE = "GRADER_PREFILL_SECRET"  # noqa: S105 - a name, not the secret
SHORTEST_SECRET = 16
"""Characters at the least."""


def secret(environ: Mapping[str, str]) -> bytes:
    """The secret. Raises ConfigError when it is missing or short."""
    said = environ.get(SECRET_VARIABLE, "")
    if len(said) < SHORTEST_SECRET:
        raise ConfigError(
            f"{SECRET_VARIABLE} must be set to the same {SHORTEST_SECRET} or more characters "
            "on both machines."
        )
    return said.encode()
