"""The weights that a machine had when it first told of a model, until a person accepts others."""

from __future__ import annotations

from typing import cast

from redis import Redis

KEPT_DIGESTS = "grader:kept_digests:"
"""And a machine's name: a hash, engine and model -> digest. The machine adds, only the server removes."""


class KeptDigests:
    """The digests of one machine over one Redis client. Methods raise redis errors."""

    def __init__(self, client: Redis, machine: str) -> None:
        self._redis = client
        self._key = KEPT_DIGESTS + machine

    def first(self, engine: str, model: str, digest: str) -> str:
        """What is kept for a model: this digest, where none was before."""
        place = f"{engine} {model}"
        if self._redis.hsetnx(self._key, place, digest):
            return digest
        return cast("str | None", self._redis.hget(self._key, place)) or digest

    def get(self, engine: str, model: str) -> str:
        """What is kept for a model; empty where nothing is."""
        return cast("str | None", self._redis.hget(self._key, f"{engine} {model}")) or ""

    def forget(self) -> int:
        """Accept whatever the machine has from now on; how many models that concerns."""
        models = self._redis.hlen(self._key)
        self._redis.delete(self._key)
        return models
