"""Fingerprints of token sequences by winnowing (Schleimer, Wilkerson and Aiken, SIGMOD 2003).

Every `k` tokens in a row have a hash; of every `window` hashes in a row the smallest is a fingerprint, the
rightmost of several. So any run of `k + window - 1` tokens that two sequences share gives them a fingerprint
in common, wherever it stands, and none shorter than `k` does.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

_BASE = 1_000_003
_MODULUS = (1 << 61) - 1


def k_gram_hashes(tokens: Sequence[str], k: int) -> Iterator[int]:
    """The hash of every `k` tokens in a row, each computed from the one before (Karp and Rabin)."""
    top = pow(_BASE, k - 1, _MODULUS)
    single = list(map(_token_hash, tokens))
    value = 0
    for at, new in enumerate(single):
        if at >= k:
            value -= single[at - k] * top
        value = (value * _BASE + new) % _MODULUS
        if at >= k - 1:
            yield value


@lru_cache(maxsize=20_000)
def _token_hash(token: str) -> int:
    """Equal in every process, as fingerprints are stored."""
    digest = hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % _MODULUS


def winnowed(hashes: Sequence[int], window: int) -> Iterator[tuple[int, int]]:
    """The chosen hashes in order, each with its place; of fewer than `window` hashes the smallest."""
    if not hashes:
        return
    chosen = _rightmost_smallest(hashes, 0, min(window, len(hashes)))
    yield hashes[chosen], chosen
    for last in range(window, len(hashes)):
        if hashes[last] <= hashes[chosen]:
            chosen = last
        elif chosen <= last - window:  # it left the window
            chosen = _rightmost_smallest(hashes, last - window + 1, last + 1)
        else:
            continue
        yield hashes[chosen], chosen


def _rightmost_smallest(hashes: Sequence[int], start: int, end: int) -> int:
    return min(range(start, end), key=lambda at: (hashes[at], -at))


def fingerprints(tokens: Sequence[str], k: int, window: int) -> tuple[tuple[int, int], ...]:
    """Fingerprints in order, each with the place of its first token."""
    return tuple(winnowed(list(k_gram_hashes(tokens, k)), window))


def packed(found: Iterable[int], most: int) -> bytes:
    """At most so many different fingerprints as bytes: the smallest, which are a fair sample of all."""
    kept = sorted(set(found))[:most]
    return struct.pack(f"<{len(kept)}Q", *kept)


def unpacked(content: bytes) -> frozenset[int]:
    """The fingerprints of `packed`."""
    return frozenset(struct.unpack(f"<{len(content) // 8}Q", content))
