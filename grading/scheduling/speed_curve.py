"""Seconds of something (a token, the reading of a prompt) by how many runs are in a machine's batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

MEMORY_S = 900.0
"""Of so many seconds at about one concurrency, the last ones count."""
GROWS = 0.15
"""What one more in the batch adds to the seconds alone, as long as nothing else is known."""
CERTAIN_S = 60.0
"""Seconds after which a figure counts fully for the line through all figures."""
LINE_WEIGHT = 4 * CERTAIN_S
"""How much two figures close together are distrusted to give the slope of that line."""
FIRM_S = 15.0
"""A figure with fewer seconds behind it is drawn to that line."""
LEAST_S = 1e-6


@dataclass
class Cell:
    """What was measured at about one concurrency."""

    seconds: float = 0.0
    events: float = 0.0
    at: float = 0.0
    """Seconds times concurrency, so that at / seconds is the mean concurrency."""


@dataclass
class Curve:
    """Sums of seconds and events a concurrency; a figure is their ratio, so no single outlier weighs much.

    Between figures it is interpolated; beyond them the line through all of them gives the slope, as a step
    of a batch reads the weights once and each one's own cache.
    """

    least: float
    """Events from which on a figure counts."""
    enough: float
    """Events of one model by itself, after which times that models shared count no more."""
    cells: dict[int, Cell] = field(default_factory=dict)
    pure: float = 0.0
    """Events that were measured while no other model shared the machine."""

    def add(self, at_once: int, seconds: float, events: float, passed_s: float) -> None:
        """`seconds` of all runs together, in which `events` happened, while `passed_s` went by."""
        cell = self.cells.setdefault(bucket(at_once), Cell())
        keep = math.exp(-passed_s / MEMORY_S)
        cell.seconds = cell.seconds * keep + seconds
        cell.events = cell.events * keep + events
        cell.at = cell.at * keep + seconds * at_once

    @property
    def sure(self) -> bool:
        """Whether enough was measured of the model by itself."""
        return self.pure >= self.enough

    def by_itself(self, events: float) -> None:
        """What is added next was measured while no other model shared the machine."""
        before, self.pure = self.sure, self.pure + events
        if self.sure and not before:
            self.cells.clear()

    def take_back(self, number: int, seconds: float, events: float) -> None:
        """Forget what was added to a bucket, as far as it still counts."""
        cell = self.cells.get(number)
        if cell is not None and cell.seconds > 0:
            left = max(0.0, 1 - seconds / cell.seconds)
            cell.seconds, cell.at = cell.seconds * left, cell.at * left
            cell.events = max(0.0, cell.events - events)

    @property
    def known(self) -> bool:
        """Whether there is any figure."""
        return any(self._counts(cell) for cell in self.cells.values())

    def value(self, at_once: float, below: float = 1.0) -> float:
        """Seconds an event with so many in the batch; 0 when nothing is known.

        `below` is the part of the slope that counts under all figures.
        """
        points = self._points()
        if not points:
            return 0.0
        line = Line.through(points)
        firm = [(n, (w * v + FIRM_S * line.value(n)) / (w + FIRM_S)) for n, v, w in points]
        after = next((i for i, (n, _) in enumerate(firm) if n >= at_once), len(firm))
        if 0 < after < len(firm):
            (n1, v1), (n2, v2) = firm[after - 1], firm[after]
            return v1 + (v2 - v1) * (at_once - n1) / (n2 - n1)
        n, v = firm[0] if after == 0 else firm[-1]
        slope = min(max(0.0, line.slope), v / n) * (1.0 if after else below)
        return max(LEAST_S, v / 10, v + slope * (at_once - n))

    def near(self, at_once: int) -> bool:
        """Whether it was measured with about as many in the batch, so that its value is no mere guess."""
        return any(self._counts(cell) and cell.seconds >= FIRM_S for cell in self._about(at_once))

    def close(self, at_once: int) -> float:
        """Events that were measured with about as many in the batch: beyond these the slope is a guess."""
        return sum(cell.events for cell in self._about(at_once))

    def _about(self, at_once: int) -> list[Cell]:
        return [cell for number, cell in self.cells.items() if abs(number - bucket(at_once)) <= 1]

    def _counts(self, cell: Cell) -> bool:
        return cell.events >= self.least and cell.seconds > 0

    def _points(self) -> list[tuple[float, float, float]]:
        """(mean concurrency, seconds an event, seconds behind it), by concurrency."""
        return [
            (max(1.0, cell.at / cell.seconds), max(LEAST_S, cell.seconds / cell.events), cell.seconds)
            for _, cell in sorted(self.cells.items())
            if self._counts(cell)
        ]

    def dump(self) -> dict[str, object]:
        """As JSON."""
        cells = {str(k): [round(v, 6) for v in (c.seconds, c.events, c.at)] for k, c in self.cells.items()}
        return {"cells": cells, "pure": round(self.pure, 3)}

    def restore(self, said: object) -> None:
        """From what `dump` gave; anything else is ignored."""
        if not isinstance(said, dict) or not isinstance(said.get("cells"), dict):
            return
        self.pure = _number(said.get("pure"))
        for key, row in said["cells"].items():
            if str(key).isdigit() and isinstance(row, list) and len(row) == 3:
                seconds, events, at = (_number(one) for one in row)
                self.cells[int(key)] = Cell(seconds, events, max(at, seconds))


def bucket(at_once: int) -> int:
    """1, 2, 3-4, 5-8, 9-16, 17-32, …: the number of the range."""
    return max(0, at_once - 1).bit_length()


def grown(at_once: float) -> float:
    """How much longer than alone something takes in a batch, as long as nothing is known."""
    return 1 + GROWS * (at_once - 1)


@dataclass(frozen=True)
class Line:
    """The line through figures; near to what is usual when they are few or close together."""

    at: float
    mean: float
    slope: float

    @classmethod
    def through(cls, points: Sequence[tuple[float, float, float]]) -> Line:
        """Of (concurrency, seconds, seconds behind it), at least one."""
        rows = [(n, v, min(w, CERTAIN_S)) for n, v, w in points]
        total = sum(w for _, _, w in rows)
        at = sum(n * w for n, _, w in rows) / total
        mean = sum(v * w for _, v, w in rows) / total
        both = sum(w * (n - at) * (v - mean) for n, v, w in rows)
        spread = sum(w * (n - at) ** 2 for n, _, w in rows)
        expected = mean * GROWS / grown(at)
        return cls(at, mean, (both + LINE_WEIGHT * expected) / (spread + LINE_WEIGHT))

    def value(self, at_once: float) -> float:
        """Seconds with so many in the batch."""
        return max(LEAST_S, self.mean / 10, self.mean + self.slope * (at_once - self.at))


def _number(said: object) -> float:
    """A number that is no nonsense, else 0."""
    usable = isinstance(said, int | float) and math.isfinite(said) and said > 0
    return float(said) if usable else 0.0  # type: ignore[arg-type]
