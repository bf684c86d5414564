"""The prefix caches of the mlx engine: what a class shares, prefilled once, bounded in bytes."""

from __future__ import annotations

import copy
import os
from collections import OrderedDict
from typing import Any

Prefix = tuple[int, ...]
"""The tokens that a whole class's prompts begin with."""
Layers = list[Any]
"""mlx-lm's cache of one sequence: an object a layer."""
SHARE_OF_MEMORY = 0.1


def default_bytes() -> int:
    """A tenth of this machine's memory."""
    return int(SHARE_OF_MEMORY * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


class PrefixCaches:
    """Caches by model and exact prefix; when they are more than `most` bytes, the least used goes.

    Only prefixes as `LoadedModel.prompt` marks them come in, never a token of a submission. Used on the mlx
    thread only, but for `bytes` and `held`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[int, Prefix], tuple[Layers, int]] = OrderedDict()
        self._refused: dict[int, int] = {}
        self.bytes = 0
        """Held now."""

    def held(self) -> list[Prefix]:
        """The prefixes held now, the least used first."""
        return [prefix for _, prefix in list(self._kept)]

    def has(self, model: int, prefix: Prefix) -> bool:
        """Whether this one is kept now. May be asked on any thread."""
        return (model, prefix) in self._kept

    def takes(self, model: int, prefix: Prefix) -> bool:
        """Whether it is worth prefilling this one by itself: one as long as this was not too large before."""
        return self._most > 0 and len(prefix) < self._refused.get(model, len(prefix) + 1)

    def get(self, model: int, prefix: Prefix) -> Layers | None:
        """A copy, so that generating never changes what is kept; it costs memory when it is written to."""
        found = self._kept.get((model, prefix))
        if found is None:
            return None
        self._kept.move_to_end((model, prefix))
        return copy.deepcopy(found[0])

    def keep(self, model: int, prefix: Prefix, layers: Layers) -> None:
        """Keep a cache; one that is larger than all there may be is not kept."""
        import mlx.core as mx

        size = self._size(prefix, layers)
        if size > self._most:
            self._refused[model] = min(len(prefix), self._refused.get(model, len(prefix)))
            return
        mx.eval([layer.state for layer in layers])
        self._drop((model, prefix))
        while self.bytes + size > self._most:
            self._drop(next(iter(self._kept)))
        self._kept[(model, prefix)] = (layers, size)
        self.bytes += size

    def forget(self, model: int) -> None:
        """Drop all of a model."""
        for key in [key for key in self._kept if key[0] == model]:
            self._drop(key)
        self._refused.pop(model, None)

    def _size(self, prefix: Prefix, layers: Layers) -> int:
        """What a cache counts against `most`: its bytes."""
        return sum(layer.nbytes for layer in layers)

    def _drop(self, key: tuple[int, Prefix]) -> None:
        _, size = self._kept.pop(key, (None, 0))
        self.bytes -= size
