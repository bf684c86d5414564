"""The cache of a prompt between two machines: its layers, its pieces as bytes, and how it fills.

bfloat16 travels as the 16 bits it is. With `bits=8` keys and values are quantised in groups of `GROUP`, which
changes answers: it is off unless asked for, and said in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from workers.machine.engines.remote_prefill.protocol import FrameCorrupt, NotTransferable, WeightsDiffer

FORMAT = "mlx-lm"
"""Whose keys and values are sent: after their rotation, in halves, heads of a group together, in order."""
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
Span = tuple[int, int]
"""Tokens from the first on, up to the second."""


@dataclass(frozen=True)
class Layer:
    """Keys (heads, tokens, key_dim) and values (heads, tokens, value_dim) of one layer."""

    heads: int
    key_dim: int
    value_dim: int
    dtype: str
    """float32, bfloat16 or float16."""
    window: int | None = None
    """How many of the last tokens it keeps; None: all."""

    @property
    def token_bytes(self) -> int:
        """Bytes of one token, unquantised."""
        return self.heads * (self.key_dim + self.value_dim) * ITEM_BYTES[self.dtype]

    def spans(self, want: Want) -> list[Span]:
        """Which tokens of this layer have to be sent: of a window, only those it still keeps at the end."""
        ends = [want.end] if want.keep is None else [want.keep, want.end]
        if self.window is None:
            return [(want.have, want.end)]
        found: list[Span] = []
        for end in ends:
            low = max(want.have, end - self.window, found[-1][1] if found else 0)
            if low < end:
                found.append((low, end))
        return found


@dataclass(frozen=True)
class Want:
    """Which tokens of a prompt the writing side wants: `have` to `end`, and what it keeps of the class's."""

    have: int
    end: int
    keep: int | None = None
    """Where the prefix ends that a class shares, if the writing side does not have it and would keep it."""


@dataclass(frozen=True)
class Layout:
    """All layers of a model."""

    layers: tuple[Layer, ...]

    def bytes(self, want: Want) -> int:
        """Bytes to send, unquantised and uncompressed."""
        return sum(layer.token_bytes * (hi - lo) for layer in self.layers for lo, hi in layer.spans(want))

    def wire(self) -> list[dict[str, Any]]:
        """As JSON."""
        return [asdict(layer) for layer in self.layers]

    def check(self, said: object) -> None:
        """Raises WeightsDiffer unless the other side's layers are the same, number format included."""
        if said == self.wire():
            return
        theirs = (
            {str(one.get("dtype")) for one in said if isinstance(one, dict)}
            if isinstance(said, list)
            else set()
        )
        ours = {layer.dtype for layer in self.layers}
        if theirs and theirs != ours:
            raise WeightsDiffer(
                f"The prefill machine computes in {', '.join(sorted(theirs))}, this one in "
                f"{', '.join(sorted(ours))}: give both the same files of the model."
            )
        raise WeightsDiffer(
            "The model of the prefill machine has other layers than the one here: "
            "give both the same files of the "
            "model, and the same release of Grader and its packages."
        )


def layout_of(model: Any) -> Layout:
    """The layers of a loaded model, found by letting it read one token. On the mlx thread only.

    Raises NotTransferable for models that keep anything but keys and values of all tokens or of a window.
    """
    import mlx.core as mx
    from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

    cache = make_prompt_cache(model)
    for one in cache:
        keeps_first: int = getattr(one, "keep", 0)
        if type(one) not in (KVCache, RotatingKVCache) or keeps_first:
            raise NotTransferable(
                f"A {type(one).__name__} is not sent between machines, only keys and values of all tokens "
                "or of a window; this model reads its prompts where it writes."
            )
    model(mx.array([[0]]), cache=cache)
    mx.eval([one.state[:2] for one in cache])
    return Layout(tuple(_layer(one) for one in cache))


def _layer(cache: Any) -> Layer:
    dtype = str(cache.keys.dtype).removeprefix("mlx.core.")
    if dtype not in ITEM_BYTES or cache.values.dtype != cache.keys.dtype:
        raise NotTransferable(f"A KV cache in {dtype} cannot be transferred between machines.")
    _, heads, _, key_dim = cache.keys.shape
    return Layer(heads, key_dim, cache.values.shape[-1], dtype, _window(cache))


def _window(cache: Any) -> int | None:
    size: int | None = getattr(cache, "max_size", None)
    return size


GROUP = 32
"""Numbers that share a scale and a bias."""
Parts = tuple[Any, ...]
"""Arrays of keys then values: one each, or of each its numbers, scales and biases."""


@dataclass(frozen=True)
class CacheChunk:
    """Tokens lo to hi of one layer. `parts` are mlx arrays when cut out, bytes-like when they arrived."""

    layer: int
    lo: int
    hi: int
    parts: Parts

    @property
    def lengths(self) -> list[int]:
        """Bytes of each part."""
        return [part.nbytes for part in self.parts]


def cut(keys: Any, values: Any, bits: int | None) -> Parts:
    """Copies of slices (1, heads, n, dim), not evaluated: what they are cut out of is written on."""
    import mlx.core as mx

    return tuple(
        _raw(mx.contiguous(part))
        for whole in (keys, values)
        for part in ((whole,) if bits is None else mx.quantize(whole, group_size=GROUP, bits=bits))
    )


def _raw(array: Any) -> Any:
    import mlx.core as mx

    return array.view(mx.uint16) if array.dtype in (mx.bfloat16, mx.float16) else array


def flat(parts: Parts) -> list[memoryview]:
    """The bytes of evaluated arrays, without a copy. May be called on any thread."""
    import numpy as np

    return [np.array(part, copy=False).reshape(-1).view(np.uint8).data for part in parts]


def arrays(layer: Layer, piece: CacheChunk, bits: int | None) -> tuple[Any, Any]:
    """Keys and values (1, heads, n, dim) of a piece that arrived. Raises FrameCorrupt."""
    import mlx.core as mx
    import numpy as np

    count, size = piece.hi - piece.lo, ITEM_BYTES[layer.dtype]
    dtype = getattr(mx, layer.dtype)
    found, left = [], list(piece.parts)
    for dim in (layer.key_dim, layer.value_dim):
        if bits is None:
            shapes: list[tuple[int, Any]] = [(dim, dtype)]
        else:
            shapes = [(dim * bits // 32, mx.uint32), (dim // GROUP, dtype), (dim // GROUP, dtype)]
        made = []
        for width, kind in shapes:
            part = left.pop(0)
            item = 4 if kind == mx.uint32 else size
            if len(part) != layer.heads * count * width * item:
                raise FrameCorrupt("A piece of the KV cache has another length than its layer.")
            numbers = np.frombuffer(part, {4: np.uint32, 2: np.uint16}[item])
            made.append(mx.array(numbers.reshape(1, layer.heads, count, width)).view(kind))
        found.append(made[0] if bits is None else mx.dequantize(made[0], made[1], made[2], GROUP, bits))
    return found[0], found[1]


@dataclass
class _Window:
    """What arrived of a layer that keeps a window, in order and without gaps."""

    lo: int
    hi: int
    keys: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)


class CacheAssembly:
    """A cache that fills as pieces arrive. On the mlx thread only.

    `begun` is the cache of the first `want.have` tokens, as mlx-lm keeps them. `on_prefix` gets a copy when
    the first `want.keep` tokens are there. After the last piece, `finish` gives the cache.
    """

    def __init__(
        self,
        model: Any,
        layout: Layout,
        want: Want,
        bits: int | None,
        begun: Sequence[Any] | None,
        on_prefix: Callable[[list[Any]], None] | None = None,
    ) -> None:
        from mlx_lm.models.cache import make_prompt_cache

        self._layout = layout
        self._want = want
        self._bits = bits
        self._on_prefix = on_prefix
        self._cache = list(begun) if begun is not None else make_prompt_cache(model)
        self._at: list[int] = []
        self._windows: dict[int, _Window] = {}
        for number, layer in enumerate(layout.layers):
            if layer.window is None:
                self._make_room(number, layer)
            else:
                self._windows[number] = self._own(number)
            self._at.append(want.have)

    def add(self, pieces: Sequence[CacheChunk]) -> None:
        """Take pieces; those of a layer must come in order and leave no gaps but those its window allows."""
        import mlx.core as mx

        for piece in pieces:
            if not 0 <= piece.layer < len(self._layout.layers):
                raise FrameCorrupt("A piece names a layer that the model does not have.")
            layer = self._layout.layers[piece.layer]
            self._follows(piece, layer)
            keys, values = arrays(layer, piece, self._bits)
            if layer.window is None:
                self._cache[piece.layer].update_and_fetch(keys, values)
            else:
                self._keep(self._windows[piece.layer], piece, keys, values)
            self._at[piece.layer] = piece.hi
            # at once: a window forgets it with what comes next
            if self._on_prefix is not None and self._want.keep is not None and self.at(self._want.keep):
                self._on_prefix(self._snapshot(self._want.keep))
                self._on_prefix = None
        mx.eval([one.state[:2] for one in self._cache if one.keys is not None])
        mx.eval([(window.keys, window.values) for window in self._windows.values()])

    def at(self, end: int) -> bool:
        """Whether all layers have what they keep of the first `end` tokens."""
        return all(
            at >= end or not layer.spans(Want(self._want.have, end))
            for at, layer in zip(self._at, self._layout.layers, strict=True)
        )

    def finish(self, end: int) -> list[Any]:
        """The cache of the first `end` tokens. Raises FrameCorrupt if something is missing."""
        if not self.at(end):
            raise FrameCorrupt("The KV cache is incomplete.")
        for number, window in self._windows.items():
            self._cache[number].state = self._state(window, self._cache[number], end)
        return self._cache

    def _snapshot(self, end: int) -> list[Any]:
        """A copy of the cache as it was after the first `end` tokens."""
        import mlx.core as mx
        from mlx_lm.models.cache import KVCache, RotatingKVCache

        made: list[Any] = []
        for number, one in enumerate(self._cache):
            if (window := self._windows.get(number)) is not None:
                copy = RotatingKVCache(one.max_size, one.keep)
                copy.state = self._state(window, one, end)
            else:
                copy = KVCache()
                copy.state = (*(mx.contiguous(part[..., :end, :]) for part in (one.keys, one.values)), end)
            made.append(copy)
        return made

    def _make_room(self, number: int, layer: Layer) -> None:
        """Room for all tokens at once, so that no piece makes the cache grow."""
        import mlx.core as mx

        have, end, one = self._want.have, self._want.end, self._cache[number]
        dtype = getattr(mx, layer.dtype)
        room = []
        for old, dim in ((one.keys, layer.key_dim), (one.values, layer.value_dim)):
            new = mx.zeros((1, layer.heads, end - (have if old is not None else 0), dim), dtype)
            room.append(new if old is None else mx.concatenate([old[..., :have, :], new], axis=2))
        one.state = (*room, have if one.keys is not None else 0)

    def _own(self, number: int) -> _Window:
        """What the cache of the shared prefix brings, in the order of its tokens."""
        one, have = self._cache[number], self._want.have
        if one.keys is None:
            return _Window(have, have)
        keys, values = (one._temporal_order(part) for part in (one.keys, one.values))
        return _Window(have - keys.shape[2], have, [keys], [values])

    def _follows(self, piece: CacheChunk, layer: Layer) -> None:
        at = self._at[piece.layer]
        spans = layer.spans(self._want)
        inside = any(lo <= piece.lo < piece.hi <= hi for lo, hi in spans)
        if not inside or (piece.lo != at and (piece.lo not in [lo for lo, _ in spans] or piece.lo < at)):
            raise FrameCorrupt("A piece of the KV cache is out of order.")

    def _keep(self, window: _Window, piece: CacheChunk, keys: Any, values: Any) -> None:
        if piece.lo != window.hi:
            window.keys, window.values, window.lo = [], [], piece.lo
        window.keys.append(keys)
        window.values.append(values)
        window.hi = piece.hi

    def _state(self, window: _Window, one: Any, end: int) -> tuple[Any, ...]:
        """A window's pieces, put together as mlx-lm would have kept them after `end` tokens."""
        import mlx.core as mx

        size = min(end, one.max_size)
        if window.lo > end - size or window.hi < end:
            raise FrameCorrupt("A window of the KV cache is incomplete.")
        state = []
        for parts in (window.keys, window.values):
            whole = mx.concatenate(parts, axis=2) if len(parts) > 1 else parts[0]
            low = end - size - window.lo
            state.append(mx.contiguous(whole[..., low : low + size, :]))
        return (*state, end, one.keep, one.max_size, size)


def span_in(spans: Sequence[Span], lo: int, hi: int) -> list[Span]:
    """What of lo to hi lies in the spans."""
    found = [(max(lo, a), min(hi, b)) for a, b in spans]
    return [(a, b) for a, b in found if a < b]
