"""The prefix caches of a rank, bounded in tokens: ranks hold different layers, and must keep the same."""

from __future__ import annotations

from workers.machine.engines.mlx.prefix_caches import Layers, Prefix, Prefixes


class TokenPrefixes(Prefixes):
    """Caches by exact prefix; when they have more than `most` tokens together, the least used goes."""

    @property
    def held_bytes(self) -> int:
        """What they take in this rank."""
        return sum(layer.nbytes for layers, _ in self._kept.values() for layer in layers)

    def _size(self, prefix: Prefix, layers: Layers) -> int:
        return len(prefix)
