"""How values are spread: mean, quartiles, and how many lie in each part of a scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Of `n` values; `deviation` is that of a sample, nothing for one value."""

    n: int
    mean: float
    deviation: float | None
    least: float
    lower: float
    """A quarter of the values is at most this."""
    median: float
    upper: float
    most: float


def spread(values: Sequence[float]) -> Spread | None:
    """The spread of some values; nothing of none."""
    if not values:
        return None
    ordered = sorted(values)
    n, mean = len(ordered), math.fsum(ordered) / len(ordered)
    deviation = None
    if n > 1:
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in ordered) / (n - 1))
    return Spread(
        n=n,
        mean=mean,
        deviation=deviation,
        least=ordered[0],
        lower=quantile(ordered, 0.25),
        median=quantile(ordered, 0.5),
        upper=quantile(ordered, 0.75),
        most=ordered[-1],
    )


def quantile(ordered: Sequence[float], part: float) -> float:
    """The value below which this part of sorted values lies, on the straight line between neighbours."""
    at = part * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    if ordered[low] == ordered[high]:  # else rounding may lead out of the values
        return ordered[low]
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


@dataclass(frozen=True)
class Bin:
    """How many values are at least `start` and below `end`; the last one of a scale holds its end, too."""

    start: float
    end: float
    count: int


def bins(values: Sequence[float], highest: float, parts: int = 10) -> tuple[Bin, ...]:
    """The scale from 0 to `highest` in equal parts, and one more for values above it, where there are any.

    Values below 0 are counted in the first part. No parts of a scale without length.
    """
    if highest <= 0:
        return ()
    counts, above = [0] * parts, 0
    edges = [highest * part / parts for part in range(parts + 1)]
    for value in values:
        if value > highest:
            above += 1
        else:
            counts[_part(value, edges)] += 1
    made = [Bin(edges[part], edges[part + 1], count) for part, count in enumerate(counts)]
    if above:
        made.append(Bin(highest, max(values), above))
    return tuple(made)


def _part(value: float, edges: Sequence[float]) -> int:
    """The part a value is in; by comparing, as dividing rounds values on an edge to either side."""
    last = len(edges) - 2
    return next((part for part in range(last) if value < edges[part + 1]), last)
