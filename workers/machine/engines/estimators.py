"""Estimators of times and rates in which old measurements fade: least squares, weighted means.

Times in seconds, lengths in tokens. Pure values; planners keep them as jobs end.
"""

from __future__ import annotations

from dataclasses import dataclass

FADES = 0.9
"""What a measurement still counts when the next one comes."""
AGAIN = 64
"""A way that nearly wins is taken once in so many jobs, as what is known of it gets old."""
NEARLY = 1.25
"""A way nearly wins when it is expected to take less than this factor of the best one."""


@dataclass(frozen=True)
class LeastSquares:
    """Least squares of the relative error for y = a·u + b·v with a, b ≥ 0; each point fades by `FADES`."""

    uu: float = 0.0
    uv: float = 0.0
    vv: float = 0.0
    u: float = 0.0
    v: float = 0.0
    points: int = 0

    def seen(self, u: float, v: float, y: float) -> LeastSquares:
        """With one more measurement."""
        if y <= 0:
            return self
        u, v = u / y, v / y
        return LeastSquares(
            FADES * self.uu + u * u,
            FADES * self.uv + u * v,
            FADES * self.vv + v * v,
            FADES * self.u + u,
            FADES * self.v + v,
            self.points + 1,
        )

    def at(self, u: float, v: float) -> float:
        """The expected y."""
        a, b = self._factors()
        return a * u + b * v

    def _factors(self) -> tuple[float, float]:
        det = self.uu * self.vv - self.uv * self.uv
        if det > 1e-6 * self.uu * self.vv:
            a = (self.u * self.vv - self.v * self.uv) / det
            b = (self.v * self.uu - self.u * self.uv) / det
            if a >= 0 and b >= 0:
                return a, b
            if a < 0:
                return 0.0, self.v / self.vv
        return (self.u / self.uu, 0.0) if self.uu else (0.0, 0.0)


@dataclass(frozen=True)
class PrefillSpeed:
    """Seconds to prefill tokens behind others: a cost a token, and one a pair with an earlier token."""

    fit: LeastSquares = LeastSquares()

    def seen(self, have: int, count: int, seconds: float) -> PrefillSpeed:
        """With one more measurement."""
        return PrefillSpeed(self.fit.seen(count, _pairs(have, count), seconds)) if count else self

    def seconds(self, have: int, count: int) -> float:
        """To read `count` tokens after `have` others."""
        return self.fit.at(count, _pairs(have, count)) if count > 0 else 0.0


def _pairs(have: int, count: int) -> float:
    return ((have + count) ** 2 - have**2) / 2


@dataclass(frozen=True)
class WeightedMean:
    """Exponentially weighted mean; `weight` is the sum of the weights so far."""

    value: float = 0.0
    weight: float = 0.0

    def seen(self, value: float) -> WeightedMean:
        """With one more value."""
        weight = FADES * self.weight + 1
        return WeightedMean(self.value + (value - self.value) / weight, weight)
