"""Whether a machine that grades otherwise is noticed in the next night, and the same ones are not.

Nights of some machines are played with golden submissions whose levels have noise of sampling: most criteria
have little, some are near the edge of two levels. Then one machine is planted that grades otherwise.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args

import click

from grading.statistics.parity import Deviation, Levels, Runs, deviations, repeats

GOLDEN = 10
HIGHEST = 4
SHIFTED = 3
NIGHTS_KEPT = 14
EDGE = (0.2, 0.5)
"""Chance that a run gives the next level, of a criterion near the edge of two levels."""
Way = Literal["half the criteria", "half the runs"]
"""How levels shift by half a level: half of the criteria by one, or each of them in half of the runs."""
WAYS: tuple[Way, ...] = get_args(Way)


@dataclass(frozen=True)
class Setting:
    """A stage, and the machines that do it."""

    criteria: int
    noise: float
    """Share of criteria near an edge, and the chance of the next level in half of the others."""
    machines: int = 4
    nights: int = 1
    """Nights before the one in which a machine grades otherwise."""
    ends: bool = False
    """All levels are the lowest or the highest one."""
    uneven: bool = False
    """The first criterion is near an edge in all submissions."""

    def __str__(self) -> str:
        stage, cluster = f"{self.criteria} criteria, noise {self.noise:.0%}", f"{self.machines} machines"
        special = ", ends of the scale" * self.ends + ", one noisy criterion" * self.uneven
        return f"{stage}, {cluster}, {self.nights} nights{special}"


@dataclass
class Golden:
    """Ten submissions as a model grades them."""

    drawn: random.Random
    setting: Setting
    levels: list[list[int]] = field(init=False)
    flips: list[list[float]] = field(init=False)
    """Chance that a run gives the next level instead."""
    towards: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.levels = [[self._level() for _ in self.each] for _ in range(GOLDEN)]
        self.flips = [[self._flip(criterion) for criterion in self.each] for _ in range(GOLDEN)]
        self.towards = [[_inward(level, self.drawn.choice((-1, 1))) for level in row] for row in self.levels]

    @property
    def each(self) -> range:
        """The criteria."""
        return range(self.setting.criteria)

    def _level(self) -> int:
        return self.drawn.choice((0, HIGHEST)) if self.setting.ends else self.drawn.randint(1, HIGHEST - 1)

    def _flip(self, criterion: int) -> float:
        noise = self.setting.noise
        if self.drawn.random() < noise or (self.setting.uneven and criterion == 0):
            return self.drawn.uniform(*EDGE)
        return self.drawn.choice((0.0, noise))

    def night(self, shift: Mapping[int, Shift] | None = None) -> Runs:
        """All runs of one machine."""
        shifts, times = shift or {}, range(repeats(self.setting.criteria))
        return {str(at): [self._run(at, shifts.get(at)) for _ in times] for at in range(GOLDEN)}

    def _run(self, at: int, shift: Shift | None) -> Levels:
        found = {}
        for criterion in self.each:
            usual = self.levels[at][criterion]
            level = usual + self.towards[at][criterion] * (self.drawn.random() < self.flips[at][criterion])
            if shift is not None:
                level += _inward(usual, shift.by) * shift.moves(criterion, self.drawn)
            found[f"c{criterion}"] = min(HIGHEST, max(0, level))
        return found

    def shifts(self, way: Way) -> dict[int, Shift]:
        """Three submissions that are graded half a level better or worse."""
        found = {}
        for at in self.drawn.sample(range(GOLDEN), SHIFTED):
            half = frozenset(self.drawn.sample(self.each, (self.setting.criteria + 1) // 2))
            found[at] = Shift(way, self.drawn.choice((-1, 1)), half)
        return found

    def unlike(self, share: float) -> dict[int, Shift]:
        """How a machine grades that rounds otherwise: a share of the levels is one off, in each run."""
        found = {}
        for at in range(GOLDEN):
            moved = frozenset(one for one in self.each if self.drawn.random() < share)
            found[at] = Shift("half the criteria", self.drawn.choice((-1, 1)), moved)
        return found


def _inward(level: int, by: int) -> int:
    """The same, or the other way where it would leave the scale: there it would be no shift."""
    return by if 0 <= level + by <= HIGHEST else -by


@dataclass(frozen=True)
class Shift:
    """Of one submission."""

    way: Way
    by: int
    half: frozenset[int]

    def moves(self, criterion: int, drawn: random.Random) -> bool:
        """Whether a run gives another level."""
        return criterion in self.half if self.way == "half the criteria" else drawn.random() < 0.5


@dataclass
class Nights:
    """Machines that grade the same golden submissions night after night."""

    golden: Golden
    before: dict[str, list[Runs]] = field(default_factory=dict)
    """Machine -> its nights, the newest first."""

    def play(self, shift: Mapping[int, Shift] | None = None) -> tuple[Deviation, ...]:
        """One night; with `shift` the first machine grades otherwise."""
        names = [f"m{number}" for number in range(self.golden.setting.machines)]
        tonight = {name: self.golden.night(shift if name == names[0] else None) for name in names}
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

    setting: Setting
    quiet: int
    false_alarms: int
    """Machines of nights without a planted one."""
    planted: int
    noticed: Mapping[str, int]
    blamed: int
    """Others that were noticed instead of the planted one, or beside it."""
    seconds: float

    def __str__(self) -> str:
        caught = ", ".join(f"{way} {count}/{self.planted}" for way, count in self.noticed.items())
        return (
            f"{self.setting}: {self.false_alarms} false alarms in {self.quiet} nights; noticed: {caught}; "
            f"others blamed {self.blamed}; {self.seconds:.0f} s"
        )


def measure(setting: Setting, quiet: int, planted: int, seed: int) -> Figures:
    """Quiet nights, then nights after which one machine grades otherwise, each of a seed of its own."""
    began = time.perf_counter()
    calm = Nights(Golden(random.Random(f"{seed} quiet"), setting))
    false_alarms = sum(len(calm.play()) for _ in range(quiet))
    noticed, blamed = dict[str, int](), 0
    for way in WAYS:
        noticed[way] = 0
        for number in range(planted):
            golden = Golden(random.Random(f"{seed} {way} {number}"), setting)
            cluster = Nights(golden)
            for _ in range(setting.nights):
                cluster.play()
            names = {one.machine for one in cluster.play(golden.shifts(way))}
            noticed[way] += "m0" in names
            blamed += len(names - {"m0"})
    return Figures(setting, quiet, false_alarms, planted, noticed, blamed, time.perf_counter() - began)


@dataclass(frozen=True)
class Unlike:
    """Alarms about a machine that differs from the others in nothing but its rounding."""

    setting: Setting
    share: float
    """Of levels that are one off."""
    sets: int
    """Sets of golden submissions, two nights each."""
    alarms: int

    def __str__(self) -> str:
        return (
            f"unlike machine, {self.setting}, {self.share:.0%} of levels: {self.alarms} of {self.sets} sets"
        )


def unlike(setting: Setting, share: float, sets: int, seed: int) -> Unlike:
    """Two nights for each set; the second one has nights before to compare with."""
    alarms = 0
    for number in range(sets):
        golden = Golden(random.Random(f"{seed} unlike {share} {number}"), setting)
        cluster, shift = Nights(golden), golden.unlike(share)
        alarms += any(cluster.play(shift) for _ in range(2))
    return Unlike(setting, share, sets, alarms)


def unlike_settings() -> Iterator[tuple[Setting, float]]:
    """Those of the documentation."""
    for noise in (0.0, 0.05):
        for criteria in (1, 3, 5, 8):
            for share in (0.01, 0.02, 0.04, 0.08):
                yield Setting(criteria, noise), share


def settings() -> Iterator[Setting]:
    """Those of the documentation."""
    for noise in (0.0, 0.02, 0.05):
        for criteria in (3, 5, 8):
            yield Setting(criteria, noise)
    for machines in (3, 5, 6):
        yield Setting(5, 0.02, machines)
    for criteria in (1, 3, 8):
        yield Setting(criteria, 0.02, ends=True)
    for criteria in (3, 8):
        yield Setting(criteria, 0.02, uneven=True)
    for nights in (0, 2, NIGHTS_KEPT):
        yield Setting(5, 0.02, nights=nights)
    for machines in (3, 4, 6):
        for nights in (0, 1, 2, NIGHTS_KEPT):
            yield Setting(1, 0.02, machines, nights)


@click.command()
@click.option("--nights", default=200, show_default=True, help="Nights without a change.")
@click.option("--planted", default=20, show_default=True, help="Nights with a machine that grades otherwise.")
@click.option("--seed", default=1, show_default=True, help="Of all that is drawn.")
@click.option("--only", default="", help="Part of the names of the settings to play; else all.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(nights: int, planted: int, seed: int, only: str, as_json: bool) -> None:
    """Whether nightly parity notices a machine that grades otherwise."""
    found = list[Figures | Unlike]()
    for setting in settings():
        if only not in str(setting):
            continue
        one = measure(setting, nights, planted, seed)
        found.append(one)
        if not as_json:
            click.echo(str(one))
    for setting, share in unlike_settings():
        if only not in f"unlike machine, {setting}":
            continue
        alarms = unlike(setting, share, nights, seed)
        found.append(alarms)
        if not as_json:
            click.echo(str(alarms))
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
