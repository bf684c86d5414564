"""What a model keeps of the tokens it read: its layers, their bytes, and what of them has to be sent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from workers.machine.engines.remote_prefill.errors import NotTransferable, WeightsDiffer

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
                f"The reading machine computes in {', '.join(sorted(theirs))}, this one in "
                f"{', '.join(sorted(ours))}: give both the same files of the model."
            )
        raise WeightsDiffer(
            "The reading machine's model has other layers than this one's: give both the same files of the "
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
        raise NotTransferable(f"Keys and values in {dtype} are not sent between machines.")
    _, heads, _, key_dim = cache.keys.shape
    return Layer(heads, key_dim, cache.values.shape[-1], dtype, _window(cache))


def _window(cache: Any) -> int | None:
    size: int | None = getattr(cache, "max_size", None)
    return size
