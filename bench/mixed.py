"""What a foreign cache does to answers: of another precision, and in the layouts of other programs.

    python -m bench.mixed

Each prompt is read by one model; its cache is given to another one, which writes. Weights are random: they
show how the errors compare with each other, not how well a trained model bears them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.models import Kind, make_model

KINDS: tuple[Kind, ...] = ("llama", "qwen3", "qwen2", "gemma3")
PROMPTS, ANSWER = 50, 24
BITS, GROUP = 4, 32
"""Of the weights of a quantised writer."""
Cache = list[Any]


@dataclass(frozen=True)
class Answer:
    """The tokens of an answer, and the log probabilities of all tokens in its first place."""

    tokens: list[int]
    first: Any

    @property
    def gap(self) -> float:
        """Between the best token and the next one."""
        second, best = sorted(self.first.tolist())[-2:]
        return float(best - second)


def main() -> None:
    """A line for each cache, of which model, and who writes."""
    print(f"{'model':8}{'cache':28}{'writer':10}{'same answers':>14}{'error':>10}{'gap':>8}")
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            loaded = _models(Path(folder), kind)
        for writer, writes in loaded.items():
            own = [_answer(writes, ids, _read(writes, ids)) for ids in _prompts()]
            for reader, reads in loaded.items():
                _compare(kind, reader, writer, own, reads, writes, lambda cache: cache)
            for name, change in LAYOUTS.items() if (kind, writer) == ("llama", "float32") else ():
                _compare(kind, f"{writer}, {name}", writer, own, writes, writes, change)


def _compare(
    kind: str,
    cache: str,
    writer: str,
    own: list[Answer],
    reads: Any,
    writes: Any,
    change: Callable[[Cache], Cache],
) -> None:
    made = [_answer(writes, ids, _as_of(writes, change(_read(reads, ids)))) for ids in _prompts()]
    same = sum(a.tokens == b.tokens for a, b in zip(own, made, strict=True))
    error = median(float(abs(a.first - b.first).max()) for a, b in zip(own, made, strict=True))
    gap = median(one.gap for one in own)
    said = f"{kind:8}{cache:28}{writer:10}{same:>9} of {PROMPTS}{error:>10.2g}{gap:>8.2g}"
    print(said, flush=True)


def _models(folder: Path, kind: Kind) -> dict[str, Any]:
    """The same weights in three precisions."""
    import mlx.core as mx
    import mlx.nn as nn
    from mlx_lm.utils import load_model

    def load(dtype: Any) -> Any:
        model, _ = load_model(make_model(folder / str(dtype), kind))
        model.set_dtype(dtype)
        mx.eval(model.parameters())
        return model

    quantised = load(mx.float32)
    nn.quantize(quantised, group_size=GROUP, bits=BITS)
    mx.eval(quantised.parameters())
    return {"float32": load(mx.float32), "bfloat16": load(mx.bfloat16), f"{BITS} bits": quantised}


def _prompts() -> list[list[int]]:
    """Token ids of 40 to 187 tokens, always the same; what they stand for does not matter."""
    import random

    draw = random.Random(1)
    return [[draw.randrange(3, 256) for _ in range(40 + 3 * number)] for number in range(PROMPTS)]


def _read(model: Any, ids: list[int]) -> Cache:
    """The cache of all tokens but the last."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    cache: Cache = make_prompt_cache(model)
    model(mx.array([ids[:-1]]), cache=cache)
    mx.eval([layer.state[:2] for layer in cache])
    return cache


def _as_of(model: Any, cache: Cache) -> Cache:
    """The same numbers in the format that a model keeps."""
    dtype = _read(model, [0, 0])[0].keys.dtype
    for layer in cache:
        layer.keys, layer.values = layer.keys.astype(dtype), layer.values.astype(dtype)
    return cache


def _answer(model: Any, ids: list[int], cache: Cache) -> Answer:
    import mlx.core as mx
    import numpy as np
    from mlx_lm.generate import generate_step

    steps = list(generate_step(mx.array(ids[-1:]), model, max_tokens=ANSWER, prompt_cache=cache))
    return Answer([int(token) for token, _ in steps], np.array(steps[0][1].astype(mx.float32)).reshape(-1))


# --- layouts of other programs ----------------------------------------------------------------------


def _each_key(change: Callable[[Any], Any]) -> Callable[[Cache], Cache]:
    def changed(cache: Cache) -> Cache:
        for layer in cache:
            layer.keys = change(layer.keys)
        return cache

    return changed


def _interleaved(keys: Any) -> Any:
    """Both numbers of a rotated pair beside each other, as GGUF files of llama have them."""
    batch, heads, count, dim = keys.shape
    return keys.reshape(batch, heads, count, 2, dim // 2).swapaxes(3, 4).reshape(keys.shape)


def _unrotated(keys: Any) -> Any:
    """Keys before their place is put in."""
    import mlx.core as mx

    return mx.fast.rope(keys, keys.shape[-1], traditional=False, base=10000.0, scale=-1.0, offset=0)


def _halved(cache: Cache) -> Cache:
    import mlx.core as mx

    for layer in cache:
        layer.keys, layer.values = (
            part.astype(mx.float16).astype(mx.float32) for part in (layer.keys, layer.values)
        )
    return cache


def _blocks(cache: Cache) -> Cache:
    """In blocks of 32 numbers of 8 bits with one scale, as llama.cpp's q8_0."""
    import mlx.core as mx

    def rounded(part: Any) -> Any:
        blocks = part.reshape(*part.shape[:-1], -1, 32)
        scale = (mx.abs(blocks).max(axis=-1, keepdims=True) / 127).astype(mx.float16).astype(mx.float32)
        return (mx.round(blocks / mx.maximum(scale, 1e-9)) * scale).reshape(part.shape)

    for layer in cache:
        layer.keys, layer.values = rounded(layer.keys), rounded(layer.values)
    return cache


LAYOUTS: dict[str, Callable[[Cache], Cache]] = {
    "pairs interleaved": _each_key(_interleaved),
    "before rotation": _each_key(_unrotated),
    "as float16": _halved,
    "as q8_0": _blocks,
}


if __name__ == "__main__":
    main()
