"""One prompt read elsewhere, from the order to the cache with which the answer begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from workers.machine.engines.mlx.engine import Ready
from workers.machine.engines.mlx.prefix_caches import Layers, Prefix, Prefixes
from workers.machine.engines.remote_prefill.cache_chunks import Filling, Piece
from workers.machine.engines.remote_prefill.cache_layout import Layout, Want, layout_of
from workers.machine.engines.remote_prefill.client import Account, Order, Peer, have_read, quietly, settled
from workers.machine.engines.remote_prefill.errors import TooLarge

PROBE_TOKENS = 256
PROBE_AFTER = (0, 2048)
"""Tokens before those of a probe: the more there are, the longer it takes."""


@dataclass(frozen=True)
class Way:
    """How caches travel: 8 bits instead of all, compressed, at most so many bytes of one prompt."""

    bits: int | None = None
    zstd: bool = False
    most_bytes: int = 4 << 30


@dataclass(frozen=True)
class Fetched:
    """A cache that came, the tokens it holds, those that were here before, and what it took."""

    cache: Layers
    known: int
    have: int
    account: Account
    convert_s: float


class Fetch:
    """Has the prompts of one model read elsewhere. Thread-safe."""

    def __init__(self, secret: bytes, prefixes: Prefixes, way: Way) -> None:
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
        for have in (0, *PROBE_AFTER):  # the first one warms up
            seconds.append(settled(ready.runner.call(quietly(partial(_timed, model, layout, have)))))
        return [(have, PROBE_TOKENS, took) for have, took in zip(PROBE_AFTER, seconds[1:], strict=True)]

    def have(self, ready: Ready) -> int:
        """How many first tokens of a prompt are here already."""
        shared = ready.prompt.shared
        return (
            shared if shared and self._prefixes.has(id(ready.loaded), tuple(ready.prompt.ids[:shared])) else 0
        )

    def __call__(self, ready: Ready, peer: Peer, seconds: float, look: Callable[[], None]) -> Fetched:
        """Have all but the last token of a prompt read by a peer.

        Raises TransferErrors and what `look` raises.
        """
        layout = self.layout(ready)
        ids, shared = ready.prompt.ids[:-1], min(ready.prompt.shared, len(ready.prompt.ids) - 1)
        want, filling = settled(
            ready.runner.call(quietly(lambda: self._begin(ready, layout, tuple(ids), shared)))
        )
        convert = _Clock()

        def take(pieces: list[Piece]) -> Future[Any]:
            return ready.runner.call(quietly(lambda: convert.time(lambda: filling.add(pieces))))

        way, keep = self._way, want.keep is not None
        order = Order(ready.digest, ids, shared, want.have, keep, way.bits, way.zstd, way.most_bytes, seconds)
        account = have_read(peer, self._secret, order, layout, take, look)
        finish = quietly(lambda: convert.time(lambda: filling.finish(len(ids))))
        cache = settled(ready.runner.call(finish))
        return Fetched(cache, len(ids), want.have, account, convert.seconds)

    def _begin(self, ready: Ready, layout: Layout, ids: Prefix, shared: int) -> tuple[Want, Filling]:
        """What is wanted, and the cache that it will fill. On the mlx thread."""
        key, prefix = id(ready.loaded), ids[:shared]
        begun = self._prefixes.get(key, prefix) if shared else None
        keep = bool(shared) and begun is None and self._prefixes.takes(key, prefix)
        want = Want(shared if begun is not None else 0, len(ids), shared if keep else None)
        if (size := layout.bytes(want)) > self._way.most_bytes:
            raise TooLarge(f"The cache of this prompt has {size} bytes; {self._way.most_bytes} are allowed.")
        on_prefix = partial(self._prefixes.keep, key, prefix)
        return want, Filling(ready.loaded.model, layout, want, self._way.bits, begun, on_prefix)


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
