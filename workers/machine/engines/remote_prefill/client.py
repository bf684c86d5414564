"""The writing side: has a prompt read elsewhere and fills a cache with what arrives."""

from __future__ import annotations

import logging
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from grading.domain.errors import EngineError
from workers.machine.engines.mlx.engine import Ready
from workers.machine.engines.mlx.prefix_caches import Layers, Prefix, PrefixCaches
from workers.machine.engines.remote_prefill.cache import (
    FORMAT,
    CacheAssembly,
    CacheChunk,
    Layout,
    Want,
    layout_of,
)
from workers.machine.engines.remote_prefill.protocol import (
    Channel,
    ForeignCache,
    Frame,
    FrameCorrupt,
    Kind,
    LinkStalled,
    NotAuthentic,
    OutOfTime,
    PeerLost,
    PeerRefused,
    PeerUnreachable,
    TooLarge,
    TransferError,
    VersionDiffers,
    decompressed,
    proof,
    proves,
)

CONNECT_S = 2.0
"""Seconds in which the prefill machine has to answer."""
UNDER_WAY = 4
"""Frames that may wait to be put into the cache; then no more are taken off the link."""
KINDS: list[type[TransferError]] = [TransferError, *TransferError.__subclasses__()]
CODES = {kind.code: kind for kind in KINDS}


@dataclass(frozen=True)
class Peer:
    """A machine that reads prompts for others."""

    name: str
    host: str
    port: int


@dataclass(frozen=True)
class PrefillOrder:
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
class TransferReport:
    """What reading elsewhere took: seconds by the prefill machine's clock but for `arriving_s`, and bytes."""

    queued_s: float
    read_s: float
    held_s: float
    compress_s: float
    send_s: float
    tail_s: float
    """From the end of reading until the last byte was sent."""
    cached: int
    """Tokens of the prompt that the prefill machine knew already."""
    read: int
    """Tokens that it read."""
    bytes: int
    """On the link."""
    arriving_s: float
    """From asking to the last byte, by this machine's clock."""


def have_read(
    peer: Peer,
    secret: bytes,
    order: PrefillOrder,
    layout: Layout,
    take: Callable[[list[CacheChunk]], Future[Any]],
    look: Callable[[], None],
) -> TransferReport:
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
    """The nonce that the prefill machine greets with."""
    try:
        return str(_expect(channel, Kind.HELLO).head.get("nonce", ""))
    except (FrameCorrupt, LinkStalled, PeerLost) as error:
        raise type(error)(
            f"{error.message} {peer.name} ({peer.host}:{peer.port}) does not answer as `grader prefill` "
            "does. Check which program runs there: other servers, such as Ollama or llama.cpp, cannot run "
            "prefill for this engine."
        ) from None


def _sign_in(channel: Channel, secret: bytes, theirs: str) -> None:
    own = secrets.token_hex(16)
    said = {"nonce": own, "proof": proof(secret, "writer", theirs, own)}
    channel.send(Frame(Kind.LOGIN, said))
    if not proves(_expect(channel, Kind.WELCOME).head.get("proof"), secret, "reader", own, theirs):
        raise NotAuthentic(
            "The prefill machine has another secret (GRADER_PREFILL_SECRET). Set the same one on both."
        )


def _receive(
    channel: Channel,
    order: PrefillOrder,
    layout: Layout,
    take: Callable[[list[CacheChunk]], Future[Any]],
    begun: float,
) -> TransferReport:
    said = _expect(channel, Kind.LAYOUT).head
    if said.get("format") != FORMAT:
        raise ForeignCache(
            f"The prefill machine sends KV caches of {str(said.get('format', 'an unnamed program'))[:40]}; "
            f"this engine supports only those of {FORMAT}. Run `grader prefill` there."
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
                raise TooLarge("The KV cache is larger than announced.")
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
        raise VersionDiffers(f"The prefill machine sent {frame.kind.name} instead of {kinds[0].name}.")
    return frame


def _pieces(frame: Frame, order: PrefillOrder) -> list[CacheChunk]:
    """The pieces of a frame. Raises FrameCorrupt."""
    try:
        size = int(frame.head["bytes"])
        if not 0 <= size <= order.most_bytes:
            raise FrameCorrupt("A frame is larger than announced.")
        body = memoryview(decompressed(frame.body, size, order.zstd)).cast("B")
        pieces, at = [], 0
        for layer, lo, hi, *lengths in frame.head["pieces"]:
            parts = []
            for length in map(int, lengths):
                if length < 0:
                    raise FrameCorrupt("A piece has a negative length.")
                parts.append(body[at : at + length])
                at += length
            pieces.append(CacheChunk(int(layer), int(lo), int(hi), tuple(parts)))
    except (KeyError, TypeError, ValueError):
        raise FrameCorrupt("The head of a piece cannot be read.") from None
    if at != len(body) or size != len(body):
        raise FrameCorrupt("A frame has another length than its pieces.")
    return pieces


def _account(said: dict[str, Any], received: int, seconds: float) -> TransferReport:
    try:
        spans = {
            name: float(said[name])
            for name in ("queued_s", "read_s", "held_s", "compress_s", "send_s", "tail_s")
        }
        return TransferReport(
            **spans, cached=int(said["cached"]), read=int(said["read"]), bytes=received, arriving_s=seconds
        )
    except (KeyError, TypeError, ValueError):
        raise FrameCorrupt("The end of a cache cannot be read.") from None


log = logging.getLogger(__name__)
PROBE_TOKENS = 256
PROBE_AFTER = (0, 2048)
"""Tokens before those of a probe: the more there are, the longer it takes."""


@dataclass(frozen=True)
class TransferSettings:
    """How caches travel: 8 bits instead of all, compressed, at most so many bytes of one prompt."""

    bits: int | None = None
    zstd: bool = False
    most_bytes: int = 4 << 30


@dataclass(frozen=True)
class FetchedCache:
    """A cache that came, the tokens it holds, those that were here before, and what it took."""

    cache: Layers
    known: int
    have: int
    account: TransferReport
    convert_s: float


class RemotePrefill:
    """Has the prompts of one model read elsewhere. Thread-safe."""

    def __init__(self, secret: bytes, prefixes: PrefixCaches, way: TransferSettings) -> None:
        self._secret = secret
        self._prefixes = prefixes
        self._way = way
        self._layouts: dict[str, Layout] = {}

    def layout(self, ready: Ready) -> Layout:
        """The layers of a model. Raises NotTransferable."""
        if ready.digest not in self._layouts:
            found = settled(ready.runner.call(quietly(lambda: layout_of(ready.loaded.model))))
            self._layouts[ready.digest] = found
        return self._layouts[ready.digest]

    def probe(self, ready: Ready) -> list[tuple[int, int, float]]:
        """Read some tokens, to know how fast that is here: those before them, their number, the seconds."""
        model, layout, seconds = ready.loaded.model, self.layout(ready), []
        log.info("reading %d tokens to measure how fast this machine is", 3 * PROBE_TOKENS)
        for have in (0, *PROBE_AFTER):  # the first one warms up
            seconds.append(settled(ready.runner.call(quietly(partial(_timed, model, layout, have)))))
        return [(have, PROBE_TOKENS, took) for have, took in zip(PROBE_AFTER, seconds[1:], strict=True)]

    def have(self, ready: Ready) -> int:
        """How many first tokens of a prompt are here already."""
        shared = ready.prompt.shared
        return (
            shared if shared and self._prefixes.has(id(ready.loaded), tuple(ready.prompt.ids[:shared])) else 0
        )

    def __call__(self, ready: Ready, peer: Peer, seconds: float, look: Callable[[], None]) -> FetchedCache:
        """Have all but the last token of a prompt read by a peer.

        Raises TransferErrors and what `look` raises.
        """
        layout = self.layout(ready)
        ids, shared = ready.prompt.ids[:-1], min(ready.prompt.shared, len(ready.prompt.ids) - 1)
        want, filling = settled(
            ready.runner.call(quietly(lambda: self._begin(ready, layout, tuple(ids), shared)))
        )
        convert = _Clock()

        def take(pieces: list[CacheChunk]) -> Future[Any]:
            return ready.runner.call(quietly(lambda: convert.time(lambda: filling.add(pieces))))

        way, keep = self._way, want.keep is not None
        order = PrefillOrder(
            ready.digest, ids, shared, want.have, keep, way.bits, way.zstd, way.most_bytes, seconds
        )
        account = have_read(peer, self._secret, order, layout, take, look)
        finish = quietly(lambda: convert.time(lambda: filling.finish(len(ids))))
        cache = settled(ready.runner.call(finish))
        return FetchedCache(cache, len(ids), want.have, account, convert.seconds)

    def _begin(self, ready: Ready, layout: Layout, ids: Prefix, shared: int) -> tuple[Want, CacheAssembly]:
        """What is wanted, and the cache that it will fill. On the mlx thread."""
        key, prefix = id(ready.loaded), ids[:shared]
        begun = self._prefixes.get(key, prefix) if shared else None
        keep = bool(shared) and begun is None and self._prefixes.takes(key, prefix)
        want = Want(shared if begun is not None else 0, len(ids), shared if keep else None)
        if (size := layout.bytes(want)) > self._way.most_bytes:
            raise TooLarge(
                f"The KV cache of this prompt has {size} bytes; {self._way.most_bytes} are allowed."
            )
        on_prefix = partial(self._prefixes.keep, key, prefix)
        return want, CacheAssembly(ready.loaded.model, layout, want, self._way.bits, begun, on_prefix)


def _timed(model: Any, layout: Layout, have: int) -> float:
    """Seconds to read `PROBE_TOKENS` tokens after `have` others. On the mlx thread."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    cache = make_prompt_cache(model)
    for one, layer in zip(cache, layout.layers, strict=True):
        if have and layer.window is None:  # what a window costs does not grow
            dtype, dims = getattr(mx, layer.dtype), (layer.key_dim, layer.value_dim)
            one.state = (*(mx.zeros((1, layer.heads, have, dim), dtype) for dim in dims), have)
    mx.eval([one.state[:2] for one in cache if one.keys is not None])
    begun = time.monotonic()
    model(mx.zeros((1, PROBE_TOKENS), dtype=mx.int32), cache=cache)
    mx.eval([one.state[:2] for one in cache])
    return time.monotonic() - begun


class _Clock:
    """Adds up seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def time(self, function: Callable[[], Any]) -> Any:
        begun = time.monotonic()
        try:
            return function()
        finally:
            self.seconds += time.monotonic() - begun
