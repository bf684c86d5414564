"""Embeddings as servers answer them: one vector a text, of finite numbers, all of the same length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from workers.machine.engines.base import Embeddings
from workers.machine.engines.http.errors import garbled

LARGEST = 3.4e38
"""What a 32-bit float holds."""


def checked(vectors: Sequence[Any], texts: int, tokens: int, where: str) -> Embeddings:
    """The embeddings of so many texts. Raises EngineGarbled for anything else."""
    try:
        found = tuple(tuple(float(number) for number in vector) for vector in vectors)
    except (TypeError, ValueError):
        raise garbled(where) from None
    lengths = {len(vector) for vector in found}
    fits = all(math.isfinite(number) and abs(number) < LARGEST for vector in found for number in vector)
    if len(found) != texts or len(lengths) != 1 or lengths == {0} or not fits:
        raise garbled(where)
    return Embeddings(found, tokens)
