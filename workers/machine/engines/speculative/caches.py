"""Taking tokens back from mlx-lm's caches: what was proposed and not accepted must leave no trace."""

from __future__ import annotations

import copy
from typing import Any

from workers.machine.engines.mlx.prefix_caches import Layers

PLAIN, WINDOW = "KVCache", "RotatingKVCache"


def odd(layers: Layers) -> str:
    """The kind of a layer from which no token can be taken back; empty where there is none."""
    return next((type(one).__name__ for one in layers if type(one).__name__ not in (PLAIN, WINDOW)), "")


def rewind(layers: Layers, count: int) -> None:
    """Take back the last `count` tokens, fewer than the last step of the model took in at once.

    A window that has turned round cannot be rewound in general: mlx-lm refuses it. But a step over several
    tokens puts it in order and keeps all that the first of them sees, so its end can be cut off.
    """
    for layer in layers:
        if not count:
            return
        if type(layer).__name__ == WINDOW:
            keys, values, offset, keep, size, _ = layer.state
            keys, values = keys[..., :-count, :], values[..., :-count, :]
            layer.state = keys, values, offset - count, keep, size, keys.shape[2]
        else:
            layer.trim(count)


class Mark:
    """Where a cache stood, to go back to after single steps, which overwrite what a window forgets."""

    def __init__(self, layers: Layers) -> None:
        windows = any(type(one).__name__ == WINDOW for one in layers)
        # arrays are copied when they are written to
        self._copy: Layers | None = copy.deepcopy(layers) if windows else None
        self._layers = layers

    def back(self, steps: int, keep: int) -> tuple[Layers, int]:
        """The cache after `keep` of the `steps` single steps since the mark, or after fewer; and how many."""
        if self._copy is not None:
            return self._copy, 0
        rewind(self._layers, steps - keep)
        return self._layers, keep


def fresh(model: Any) -> Layers:
    """An empty cache of a model."""
    from mlx_lm.models.cache import make_prompt_cache

    layers: Layers = make_prompt_cache(model)
    return layers
