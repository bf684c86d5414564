"""Optional compression of what is sent, with zstd on all cores."""

from __future__ import annotations

import time

from workers.machine.engines.remote_prefill.errors import FrameCorrupt, PeerRefused
from workers.machine.engines.remote_prefill.frames import Bytes

LEVEL = 1


class Squeezer:
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


def stretched(body: Bytes, size: int, on: bool) -> Bytes:
    """What was sent, `size` bytes of it. Raises FrameCorrupt."""
    if not on:
        return body
    import zstandard

    try:
        whole: bytes = zstandard.ZstdDecompressor().decompress(body, max_output_size=size)
    except zstandard.ZstdError as error:
        raise FrameCorrupt(f"A compressed piece cannot be read: {error}") from None
    return whole
