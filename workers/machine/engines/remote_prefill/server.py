"""The reading side: a process whose models read prompts for callers that know the secret."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Annotated, Literal

import structlog
from pydantic import Field, ValidationError

from grading.config.machines import Machine
from grading.domain.base_value import Value
from grading.domain.errors import ConfigError, EngineError, GraderError
from workers.machine.engines.mlx.decode_loop import Counters, Runner, Shape
from workers.machine.engines.mlx.model import LoadedModel, load_model, model_digest
from workers.machine.engines.mlx.prefix_caches import PrefixCaches, default_bytes
from workers.machine.engines.remote_prefill.cache import (
    FORMAT,
    GROUP,
    CacheChunk,
    Layout,
    Want,
    flat,
    layout_of,
)
from workers.machine.engines.remote_prefill.client import quietly, settled
from workers.machine.engines.remote_prefill.prefill import PrefillBatch, Prompt
from workers.machine.engines.remote_prefill.protocol import (
    ALIVE_S,
    Channel,
    Compressor,
    Frame,
    Kind,
    NotAuthentic,
    OutOfTime,
    Pace,
    PeerLost,
    PeerRefused,
    TooLarge,
    TransferError,
    WeightsDiffer,
    proof,
    proves,
    secret,
)

CLOSE_SECONDS = 30.0


class PrefillModels:
    """Reads prompts with the models of these names. Thread-safe.

    `step` is how many tokens are read in one pass, of all prompts together; `cache_gb` what the prefixes of
    classes may take. All models are loaded by `load`, and stay.
    """

    def __init__(self, models: Sequence[str], *, step: int = 1024, cache_gb: float | None = None) -> None:
        self._names = tuple(models)
        self._step = step
        most = default_bytes() if cache_gb is None else int(cache_gb * 1e9)
        self._prefixes = PrefixCaches(most)
        self._runner = Runner(Shape(prefill_step=step), self._prefixes, Counters())
        self._loaded: dict[str, tuple[LoadedModel, PrefillBatch, Layout]] = {}
        self._turning = False
        self._lock = threading.Lock()

    def load(self) -> list[str]:
        """Load all models now; gives their fingerprints. Raises ModelMissing or NotTransferable."""
        for name in self._names:
            digest = model_digest(name)
            loaded = self._runner.load(lambda name=name: load_model(name, None)).result()  # type: ignore[misc]
            layout = self._layout(loaded)
            self._loaded[digest] = (loaded, PrefillBatch(loaded, layout, self._prefixes, self._step), layout)
        return list(self._loaded)

    def find(self, fingerprint: str) -> tuple[LoadedModel, Layout]:
        """The model with these weights. Raises WeightsDiffer."""
        try:
            loaded, _, layout = self._loaded[fingerprint]
        except KeyError:
            raise WeightsDiffer(
                f"No model here has the weights {fingerprint[:19]}…; this machine runs prefill for "
                f"{', '.join(self._names) or 'none'}. Both sides need the same files: another precision or "
                "quantisation is another model. Name the writing machine's model in [machines.prefill], or "
                "copy its files there."
            ) from None
        return loaded, layout

    def submit(self, fingerprint: str, prompt: Prompt) -> None:
        """Take a prompt; `prompt.done` tells its end."""
        self.find(fingerprint)
        try:
            self._runner.call(lambda: self._take(fingerprint, prompt))
        except EngineError as error:
            raise PeerRefused("This prefill machine is shutting down.") from error

    def close(self) -> None:
        """End the thread; prompts that are being read fail."""
        self._runner.close(CLOSE_SECONDS)
        for _, reading, _ in self._loaded.values():
            reading.fail(PeerRefused("This prefill machine is shutting down."))

    def _layout(self, loaded: LoadedModel) -> Layout:
        found: Layout = settled(self._runner.call(quietly(lambda: layout_of(loaded.model))))
        return found

    def _take(self, fingerprint: str, prompt: Prompt) -> None:
        self._loaded[fingerprint][1].add(prompt)
        if not self._turning:
            self._turning = True
            self._runner.call(self._turn)  # after those that came with it: they are read together

    def _turn(self) -> None:
        """One round of each model; others may have the thread between it and the next."""
        readings = [reading for _, reading, _ in self._loaded.values() if reading.busy]
        for reading in readings:
            try:
                reading.round()
            except Exception as error:  # noqa: BLE001 - whatever mlx raises, the thread must outlive it
                said = f"{type(error).__name__}: {str(error)[:300]}"
                reading.fail(TransferError(f"mlx failed: {said}"))
        self._turning = any(reading.busy for reading in readings)
        if self._turning:
            try:
                self._runner.call(self._turn)
            except EngineError:
                self._turning = False


FRAME_BYTES = 4 << 20
"""Keys and values in one frame, about."""
MOST_TOKENS = 1 << 20
LOGIN_S = 5.0
"""Seconds in which a caller has to show the secret."""
AT_ONCE = 64
"""Connections at once."""
log = structlog.get_logger(__name__)


class PrefillRequest(Value):
    """What the writing side wants to have read."""

    fingerprint: str
    shared: Annotated[int, Field(ge=0)] = 0
    have: Annotated[int, Field(ge=0)] = 0
    keep: bool = False
    bits: Literal[8] | None = None
    zstd: bool = False
    most_bytes: Annotated[int, Field(ge=1)]
    seconds: Annotated[float, Field(gt=0, le=86400)]


class PrefillServer:
    """Listens until it is closed. `most_bytes` bounds what waits for one caller, beside the cache itself.

    `link_bytes_s` holds what is sent to one caller to a rate, for measurements.
    """

    def __init__(
        self,
        reader: PrefillModels,
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
            _refuse(channel, PeerRefused("The prefill machine failed. Check its log."))
        finally:
            channel.close()
            self._room.release()

    def _look(self, seconds: float) -> Callable[[], None]:
        """Gives up after so many seconds, and when this side stops."""
        end = time.monotonic() + seconds

        def look() -> None:
            if self._closing.is_set():
                raise PeerRefused("This prefill machine is shutting down.")
            if time.monotonic() > end:
                raise OutOfTime("The time limit of this prompt has passed.")

        return look

    def _greet(self, channel: Channel) -> None:
        own = secrets.token_hex(16)
        channel.send(Frame(Kind.HELLO, {"nonce": own}))
        login = channel.receive(0)
        theirs = str(login.head.get("nonce", ""))
        if login.kind != Kind.LOGIN or not proves(
            login.head.get("proof"), self._secret, "writer", own, theirs
        ):
            raise NotAuthentic(
                "The caller has another secret than this machine "
                "(GRADER_PREFILL_SECRET). Set the same one on both."
            )
        channel.send(Frame(Kind.WELCOME, {"proof": proof(self._secret, "reader", theirs, own)}))

    def _answer(self, channel: Channel) -> None:
        import numpy as np

        frame = channel.receive(4 * MOST_TOKENS)
        try:
            ask = PrefillRequest.model_validate(frame.head)
            ids = np.frombuffer(frame.body, "<u4").tolist()
        except (ValidationError, ValueError) as error:
            raise PeerRefused(f"The request is not valid: {str(error)[:300]}") from None
        channel.look = self._look(ask.seconds)
        loaded, layout = self._reader.find(ask.fingerprint)
        if frame.kind != Kind.ASK or not ids or not ask.have < len(ids) or ask.shared > len(ids):
            raise PeerRefused("The request contradicts itself.")
        if max(ids) >= loaded.vocabulary or len(ids) > (loaded.context or len(ids)):
            raise PeerRefused("The prompt has unknown tokens or exceeds the context of the model.")
        if ask.bits and any(
            dim % GROUP for layer in layout.layers for dim in (layer.key_dim, layer.value_dim)
        ):
            raise PeerRefused(
                f"Keys and values of this model do not come in groups of {GROUP}: send them whole."
            )
        want = Want(ask.have, len(ids), ask.shared if ask.keep and ask.have < ask.shared else None)
        if (size := layout.bytes(want)) > ask.most_bytes:
            raise TooLarge(f"The KV cache of this prompt has {size} bytes; {ask.most_bytes} are allowed.")
        channel.send(Frame(Kind.LAYOUT, {"format": FORMAT, "layers": layout.wire(), "bytes": size}))
        queue = _Outgoing(self._most)
        prompt = Prompt(ids, ask.shared, want, ask.bits, queue.put, lambda: queue.closed)
        try:
            self._reader.submit(ask.fingerprint, prompt)
            self._send_all(channel, prompt, queue, Compressor(ask.zstd))
        finally:
            queue.close()

    def _send_all(self, channel: Channel, prompt: Prompt, queue: _Outgoing, squeezer: Compressor) -> None:
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
            raise PeerLost("The caller closed the connection.")
        prompt.done.result()
        channel.send(Frame(Kind.DONE, _times(prompt, sending, squeezer)))

    def _wait(self, channel: Channel, prompt: Prompt, queue: _Outgoing) -> None:
        """Until there is something to send, or for a second; then it tells that this side lives."""
        if queue.wait(ALIVE_S) or prompt.done.done():
            return
        if channel.gone():
            raise PeerLost("The caller closed the connection.")
        channel.send(Frame(Kind.ALIVE, {"at": prompt.at, "begun": prompt.begun is not None}))


class _Outgoing:
    """Pieces on their way from the mlx thread to a connection, at most so many bytes of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._pieces: deque[CacheChunk] = deque()
        self._changed = threading.Condition()
        self.closed = False
        """Whether nobody takes them any more."""

    def put(self, pieces: list[CacheChunk]) -> None:
        """Add; waits while there are too many. Raises PeerLost when nobody takes them any more."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._held < self._most)
            if self.closed:
                raise PeerLost("The caller closed the connection.")
            self._pieces.extend(pieces)
            self._held += sum(sum(piece.lengths) for piece in pieces)
            self._changed.notify_all()

    def take(self) -> list[CacheChunk]:
        """Some pieces, about a frame; none when none are there."""
        taken: list[CacheChunk] = []
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


def framed(pieces: Sequence[CacheChunk], squeezer: Compressor) -> Frame:
    """Pieces as a frame: their places and lengths in the head, all their bytes in the body."""
    said, body = [], bytearray()
    for piece in pieces:
        parts = flat(piece.parts)
        said.append([piece.layer, piece.lo, piece.hi, *(len(part) for part in parts)])
        for part in parts:
            body += part
    return Frame(Kind.PIECE, {"pieces": said, "bytes": len(body)}, squeezer.squeeze(body))


def _times(prompt: Prompt, sending: float, squeezer: Compressor) -> dict[str, float | int]:
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


def start(machine: Machine) -> None:
    """Load the models and read prompts until the process is told to end.

    Raises ConfigError and ModelMissing.
    """
    settings = machine.prefill
    if settings is None:
        raise ConfigError(f"The machine '{machine.name}' has no [machines.prefill] in the configuration.")
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    host, _, port = settings.listen.rpartition(":")
    known = secret(os.environ)
    reader = PrefillModels(settings.models, step=settings.step, cache_gb=settings.cache_gb)
    try:
        log.info("prefill_loading", models=settings.models)
        reader.load()
        serving = PrefillServer(
            reader, known, (host.strip("[]"), int(port)), most_bytes=settings.queue_mb << 20
        )
        log.info("prefill_listens", address=settings.listen)
        ended.wait()
        serving.close()
    finally:
        reader.close()
