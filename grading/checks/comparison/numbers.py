"""Whether two numbers are the same within tolerances."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

_WHOLE = re.compile(r"[-+]?\d+")
_FRACTION = re.compile(r"([-+]?\d{1,300})/(\d{1,300})")
MAX_DIGITS = 4_000
"""Longer numbers are compared as text."""
EXACT = 2**53
"""Whole numbers beyond this are compared to the last digit."""


@dataclass(frozen=True)
class Tolerance:
    """Two numbers are the same when they are closer than either of these."""

    rel: float = 1e-9
    absolute: float = 1e-9


def number_of(text: str) -> int | complex | None:
    """The number a text holds: whole numbers exactly, others as complex ones; None when it is none."""
    return _number_of(text) if len(text) <= MAX_DIGITS else None


@lru_cache(maxsize=4096)
def _number_of(text: str) -> int | complex | None:
    plain = text.strip().lower()
    if _WHOLE.fullmatch(plain):
        return int(plain)
    if plain in ("na", "nan"):
        return complex(math.nan)
    fraction = _FRACTION.fullmatch(plain)
    if fraction is not None and int(fraction[2]):
        return complex(int(fraction[1]) / int(fraction[2]))
    if plain.endswith("i") and "inf" not in plain[-3:]:
        plain = plain[:-1] + "j"
    try:
        return complex(plain)
    except (ValueError, OverflowError):
        return None


def close(expected: int | complex, got: int | complex, tolerance: Tolerance) -> bool:
    """Whether two numbers are the same; not a number is the same as itself."""
    whole = isinstance(expected, int) and isinstance(got, int)
    if whole and (expected == got or max(abs(expected), abs(got)) > EXACT):
        return expected == got
    try:
        a, b = complex(expected), complex(got)
    except OverflowError:  # a whole number larger than any other
        return False
    return _near(a.real, b.real, tolerance) and _near(a.imag, b.imag, tolerance)


def _near(a: float, b: float, tolerance: Tolerance) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if math.isinf(a) or math.isinf(b):
        return a == b
    return abs(a - b) <= max(tolerance.absolute, tolerance.rel * abs(a))
