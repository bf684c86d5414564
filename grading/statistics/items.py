"""A criterion as an item of a test: how difficult it was, and whether it tells good work from weak."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from grading.statistics.distribution import Spread, spread

HARD, EASY = 0.35, 0.8
"""Mean shares below and above which an item is hard or easy; as the next, they are those of Moodle."""
WEAK, GOOD = 0.3, 0.5
"""Discriminations below and from which an item is weak or good."""
Difficulty = Literal["hard", "medium", "easy"]
Discrimination = Literal["negative", "weak", "fair", "good"]


@dataclass(frozen=True)
class Item:
    """A criterion over the submissions in which it was judged; shares are points / highest points."""

    shares: Spread | None
    at_zero: int
    at_full: int
    discrimination: float | None
    """Correlation of its share with the share of all other criteria together."""
    compared: int
    """Submissions that `discrimination` rests on: those with a total."""

    @property
    def difficulty(self) -> Difficulty | None:
        """How hard it was; nothing where nobody was judged."""
        if self.shares is None:
            return None
        return "hard" if self.shares.mean < HARD else "easy" if self.shares.mean > EASY else "medium"

    @property
    def tells_apart(self) -> Discrimination | None:
        """How well it tells good work from weak; nothing where that cannot be said."""
        if self.discrimination is None:
            return None
        found = round(self.discrimination, 2)  # as it is shown
        return "negative" if found < 0 else "weak" if found < WEAK else "fair" if found < GOOD else "good"


def item(shares: Sequence[float], rests: Sequence[float | None]) -> Item:
    """An item from its share in each submission, and of all others there, nothing without a total."""
    known = [(share, rest) for share, rest in zip(shares, rests, strict=True) if rest is not None]
    return Item(
        shares=spread(shares),
        at_zero=sum(share <= 0 for share in shares),
        at_full=sum(share >= 1 for share in shares),
        discrimination=correlation([one for one, _ in known], [rest for _, rest in known]),
        compared=len(known),
    )


def correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Pearson's, of values pair by pair; nothing where either side is all the same."""
    n = len(one)
    if n < 2:
        return None
    mean_one, mean_other = math.fsum(one) / n, math.fsum(other) / n
    a, b = [value - mean_one for value in one], [value - mean_other for value in other]
    spread_a, spread_b = math.sqrt(math.fsum(v * v for v in a)), math.sqrt(math.fsum(v * v for v in b))
    if min(spread_a, spread_b) <= TINY:
        return None
    together = math.fsum(x * y for x, y in zip(a, b, strict=True))
    return max(-1.0, min(1.0, together / (spread_a * spread_b)))


TINY = 1e-9
"""Less than this is what rounding leaves of no difference."""
