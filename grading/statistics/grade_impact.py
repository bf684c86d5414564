"""The impact of a dry run on grades: how many move, which way, how far, as figures and as a plot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

SAME = 0.005
"""Points below which a grade does not move: they are shown with two digits."""
PASS = 50.0
"""Per cent of the points that are a boundary as long as nobody names another."""
SIZE, EDGE = 300.0, 34.0
"""Of the plot and of the room for its axes, in its own units."""


@dataclass(frozen=True)
class Points:
    """The points of one grade before and after, and the highest there are."""

    before: float
    before_max: float
    after: float
    after_max: float

    @property
    def delta(self) -> float:
        """How far it moves, in points."""
        return round(self.after - self.before, 2)

    @property
    def shares(self) -> tuple[float, float]:
        """Before and after as parts of the highest points."""
        return (
            self.before / self.before_max if self.before_max else 0.0,
            self.after / self.after_max if self.after_max else 0.0,
        )


@dataclass(frozen=True)
class Summary:
    """All grades together; mean and median in points of change, nothing where there are none."""

    compared: int = 0
    up: int = 0
    down: int = 0
    same: int = 0
    mean: float | None = None
    middle: float | None = None
    most: float | None = None
    """The furthest any moves, up or down."""
    over: int = 0
    """Come over the boundary."""
    under: int = 0


def summary(found: Sequence[Points], boundary: float = PASS) -> Summary:
    """Of grades that have points before and after; the boundary in per cent of the highest points."""
    if not found:
        return Summary()
    moved = [one.delta for one in found]
    line = boundary / 100 - 1e-9
    sides = [(before >= line, after >= line) for before, after in (one.shares for one in found)]
    return Summary(
        compared=len(found),
        up=sum(one > SAME for one in moved),
        down=sum(one < -SAME for one in moved),
        same=sum(abs(one) <= SAME for one in moved),
        mean=round(fmean(moved), 2),
        middle=round(median(moved), 2),
        most=max(moved, key=abs),
        over=sum(after and not before for before, after in sides),
        under=sum(before and not after for before, after in sides),
    )


@dataclass(frozen=True)
class Dot:
    """Grades at one place of the plot."""

    x: float
    y: float
    radius: float
    count: int
    before: float
    after: float
    """Per cent."""


def dots(found: Iterable[Points]) -> tuple[Dot, ...]:
    """Before from left to right, after from bottom to top, in whole per cent; equal ones are one dot."""
    counts: dict[tuple[int, int], int] = {}
    for one in found:
        before, after = one.shares
        key = round(100 * min(before, 1.2)), round(100 * min(after, 1.2))
        counts[key] = counts.get(key, 0) + 1
    return tuple(
        Dot(at(x), below(y), min(3 + count**0.5, 14), count, x, y) for (x, y), count in sorted(counts.items())
    )


def at(percent: float) -> float:
    """Where so many per cent stand from left to right."""
    return round(EDGE + min(percent, 100.0) / 100 * SIZE, 1)


def below(percent: float) -> float:
    """Where so many per cent stand from top to bottom."""
    return round(SIZE + EDGE / 2 - min(percent, 100.0) / 100 * SIZE, 1)
