"""How the next token is drawn: by mlx-lm's samplers, or by one with a seed of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Sampler = Callable[[Any], Any]
"""Takes log probabilities of shape (B, V), gives tokens of shape (B,)."""


@dataclass(frozen=True)
class Sampling:
    """What a request asks for. `top_p` None: all tokens; `seed` None: drawn from the common randomness."""

    temperature: float
    top_p: float | None = None
    seed: int | None = None


class Samplers:
    """Samplers for one batch; requests with the same wishes share one, and are sampled in one call."""

    def __init__(self) -> None:
        self._shared: dict[tuple[float, float | None], Sampler] = {}

    def sampler(self, wish: Sampling) -> Sampler:
        """One for a request."""
        if wish.seed is not None and wish.temperature > 0:
            return _seeded(wish.temperature, wish.top_p, wish.seed)
        key = (wish.temperature, wish.top_p)
        if key not in self._shared:
            from mlx_lm.sample_utils import make_sampler

            self._shared[key] = make_sampler(temp=wish.temperature, top_p=wish.top_p or 0.0)
        return self._shared[key]


def _seeded(temperature: float, top_p: float | None, seed: int) -> Sampler:
    """A sampler with randomness of its own, which nobody else in the batch uses up or resets."""
    import mlx.core as mx
    from mlx_lm.sample_utils import apply_top_p

    key = mx.random.key(seed % 2**64)

    def sample(logprobs: Any) -> Any:
        nonlocal key
        key, now = mx.random.split(key)
        if top_p is not None and 0 < top_p < 1:
            logprobs = apply_top_p(logprobs, top_p)
        return mx.random.categorical(logprobs * (1.0 / temperature), key=now)

    return sample
