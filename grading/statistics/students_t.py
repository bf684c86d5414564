"""Quantiles of Student's t distribution, for confidence intervals of means."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

MOST_DEGREES = 1_000
"""Above these the normal distribution is as good: the quantiles differ by less than 0.003."""


@lru_cache(maxsize=2_048)
def t_quantile(probability: float, degrees: int) -> float:
    """The value that t with so many degrees of freedom stays below with this probability (0 to 1)."""
    if degrees < 1 or not 0 < probability < 1:
        raise ValueError("t needs a degree of freedom and a probability between 0 and 1")
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    if degrees > MOST_DEGREES:
        return NormalDist().inv_cdf(probability)
    low, high = 0.0, 1.0
    while t_below(high, degrees) < probability:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        if t_below(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_below(value: float, degrees: int) -> float:
    """The probability that t with a whole number of degrees of freedom is at most this value.

    By the finite sums that there are for whole numbers: over powers of cos(atan(value / √degrees)).
    """
    angle = math.atan(value / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    if degrees % 2:
        term, total = cosine, cosine if degrees > 1 else 0.0
        for k in range(3, degrees - 1, 2):
            term *= cosine * cosine * (k - 1) / k
            total += term
        between = 2 / math.pi * (angle + sine * total)
    else:
        term, total = 1.0, 1.0
        for k in range(2, degrees - 1, 2):
            term *= cosine * cosine * (k - 1) / k
            total += term
        between = sine * total
    return 0.5 + between / 2
