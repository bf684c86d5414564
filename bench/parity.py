"""Whether a machine that grades otherwise is noticed in the next night, and the same ones are not.

Nights of four machines are played with golden submissions whose levels have noise of sampling: most criteria
have little, some are near the edge of two levels. Then one machine is planted that grades otherwise.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

import click

from grading.statistics.parity import Deviation, Levels, Runs, deviations

GOLDEN = 10
REPEATS = 8
HIGHEST = 4
SHIFTED = 3
NIGHTS_KEPT = 14
Way = Literal["half the criteria", "half the runs"]
"""How levels shift by half a level: half of the criteria by one, or each of them in half of the runs."""


@dataclass
class Golden:
    """Ten submissions as a model grades them."""

    drawn: random.Random
    criteria: int
    noise: float
    levels: list[list[int]] = field(init=False)
    flips: list[list[float]] = field(init=False)
    """Chance that a run gives the next level instead."""
    towards: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        each, drawn = range(self.criteria), self.drawn
        self.levels = [[drawn.randint(1, HIGHEST - 1) for _ in each] for _ in range(GOLDEN)]
        self.flips = [[self._flip() for _ in each] for _ in range(GOLDEN)]
        self.towards = [[drawn.choice((-1, 1)) for _ in each] for _ in range(GOLDEN)]

    def _flip(self) -> float:
        if self.drawn.random() < self.noise:
            return self.drawn.uniform(0.2, 0.5)  # near the edge of two levels
        return self.drawn.choice((0.0, self.noise))

    def night(self, repeats: int, shift: Mapping[int, Shift] | None = None) -> Runs:
        """All runs of one machine."""
        return {
            str(at): [self._run(at, (shift or {}).get(at)) for _ in range(repeats)] for at in range(GOLDEN)
        }

    def _run(self, at: int, shift: Shift | None) -> Levels:
        found = {}
        for criterion in range(self.criteria):
            level = self.levels[at][criterion]
            level += self.towards[at][criterion] * (self.drawn.random() < self.flips[at][criterion])
            level += shift.of(criterion, self.drawn) if shift is not None else 0
            found[f"c{criterion}"] = float(min(HIGHEST, max(0, level)))
        return found

    def shifts(self, way: Way) -> dict[int, Shift]:
        """Three submissions that are graded half a level better or worse."""
        found = {}
        for at in self.drawn.sample(range(GOLDEN), SHIFTED):
            half = frozenset(self.drawn.sample(range(self.criteria), (self.criteria + 1) // 2))
            found[at] = Shift(way, self.drawn.choice((-1, 1)), half)
        return found


@dataclass(frozen=True)
class Shift:
    """Of one submission."""

    way: Way
    by: int
    half: frozenset[int]

    def of(self, criterion: int, drawn: random.Random) -> int:
        """Levels that a run of it gives more."""
        moves = criterion in self.half if self.way == "half the criteria" else drawn.random() < 0.5
        return self.by * moves


@dataclass
class Nights:
    """Machines that grade the same golden submissions night after night."""

    golden: Golden
    machines: int = 4
    repeats: int = REPEATS
    before: dict[str, list[Runs]] = field(default_factory=dict)
    """Machine -> its nights, the newest first."""

    def play(self, shift: Mapping[int, Shift] | None = None) -> tuple[Deviation, ...]:
        """One night; with `shift` the first machine grades otherwise."""
        names = [f"m{number}" for number in range(self.machines)]
        tonight = {
            name: self.golden.night(self.repeats, shift if name == names[0] else None) for name in names
        }
        known = {name: _merged(self.before.get(name, ())) for name in names}
        found = deviations(tonight, known)
        for name in names:
            self.before[name] = [tonight[name], *self.before.get(name, ())][:NIGHTS_KEPT]
        return found


def _merged(nights: Sequence[Runs]) -> Runs:
    return {at: [run for night in nights for run in night[at]] for at in (nights[0] if nights else ())}


@dataclass(frozen=True)
class Figures:
    """What came of one setting."""

    criteria: int
    noise: float
    nights: int
    false_alarms: int
    """Machines of nights without a planted one."""
    planted: int
    noticed: Mapping[str, int]
    blamed: int
    """Others that were noticed instead of the planted one, or beside it."""
    seconds: float


def measure(criteria: int, noise: float, nights: int, planted: int, seed: int) -> Figures:
    """Quiet nights, then nights after which one machine grades otherwise."""
    drawn, began = random.Random(seed), time.perf_counter()
    quiet = Nights(Golden(drawn, criteria, noise))
    false_alarms = sum(len(quiet.play()) for _ in range(nights))
    noticed, blamed = dict[str, int](), 0
    ways: tuple[Way, ...] = ("half the criteria", "half the runs")
    for way in ways:
        noticed[way] = 0
        for _ in range(planted):
            golden = Golden(drawn, criteria, noise)
            cluster = Nights(golden)
            cluster.play()
            names = {one.machine for one in cluster.play(golden.shifts(way))}
            noticed[way] += "m0" in names
            blamed += len(names - {"m0"})
    return Figures(
        criteria, noise, nights, false_alarms, planted, noticed, blamed, time.perf_counter() - began
    )


def settings() -> Iterator[tuple[int, float]]:
    """Criteria of a stage, and noise."""
    for noise in (0.0, 0.02, 0.05):
        for criteria in (3, 5, 8):
            yield criteria, noise


@click.command()
@click.option("--nights", default=200, show_default=True, help="Nights without a change.")
@click.option("--planted", default=20, show_default=True, help="Nights with a machine that grades otherwise.")
@click.option("--seed", default=1, show_default=True, help="Of all that is drawn.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(nights: int, planted: int, seed: int, as_json: bool) -> None:
    """Whether nightly parity notices a machine that grades otherwise."""
    found = []
    for criteria, noise in settings():
        one = measure(criteria, noise, nights, planted, seed)
        found.append(one)
        if not as_json:
            caught = ", ".join(f"{way}: {count}/{one.planted}" for way, count in one.noticed.items())
            click.echo(
                f"{criteria} criteria, noise {noise:.0%}: {one.false_alarms} false alarms in {nights} "
                f"nights; noticed {caught}; others blamed {one.blamed}; {one.seconds:.0f} s"
            )
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
