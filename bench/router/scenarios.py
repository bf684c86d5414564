"""What comes when, and what happens to machines meanwhile; all from a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bench.router.cost_model import OWN, World
from bench.router.lower_bound import per_hour
from bench.router.simulation import Arrival, Setting

USUAL = 400
"""Hand-ins of a scenario whose name has no number."""


@dataclass(frozen=True)
class Scenario:
    """Hand-ins, machines, and what is asked of it."""

    name: str
    hand_ins: tuple[Arrival, ...]
    setting: Setting = field(default_factory=Setting)
    cold: bool = False
    """Nothing is learned yet."""


def hand_in(rng: random.Random, at: float, priority: str = "batch", world: World = OWN) -> Arrival:
    """One of usual size, more or less."""
    return Arrival(at, {stage: world.output(rng, stage) for stage in world.works}, priority)


def backlog(count: int, slots: int, seed: int, world: World = OWN) -> Scenario:
    """All at once."""
    rng = random.Random(seed)
    hand_ins = tuple(hand_in(rng, 0.0, world=world) for _ in range(count))
    return Scenario(f"backlog{count}", hand_ins, Setting(slots=slots, seed=seed, world=world))


def _an_hour(world: World, slots: int) -> float:
    return per_hour(world.cards, slots, world.works)


def poisson(load: float, slots: int, seed: int, count: int = USUAL, world: World = OWN) -> Scenario:
    """People who hand in by themselves, at a part of the bound."""
    rng, at, found = random.Random(seed), 0.0, []
    a_second = load * _an_hour(world, slots) / 3600
    for _ in range(count):
        at += rng.expovariate(a_second)
        found.append(hand_in(rng, at, "interactive", world))
    setting = Setting(slots=slots, seed=seed, world=world)
    return Scenario(f"poisson{load:.0%}".rstrip("%"), tuple(found), setting)


def spike(slots: int, seed: int, count: int = 200, within_s: float = 600.0, world: World = OWN) -> Scenario:
    """A deadline: so many within ten minutes on top of 30 % load, ever more towards the end."""
    rng, at, found = random.Random(seed), 0.0, []
    a_second = 0.3 * _an_hour(world, slots) / 3600
    while (at := at + rng.expovariate(a_second)) < 3 * within_s:
        found.append(hand_in(rng, at, "interactive", world))
    found += [hand_in(rng, within_s * (1 + rng.random() ** 0.5), "interactive", world) for _ in range(count)]
    return Scenario("spike", tuple(found), Setting(slots=slots, seed=seed, world=world))


def lost(slots: int, seed: int, count: int = USUAL, world: World = OWN) -> Scenario:
    """The fastest Mac dies at 300 s and is back at 600 s, with nothing in memory; with fewer, sooner."""
    base = backlog(count, slots, seed, world)
    changes = {"mac-studio-1": ((0.75 * count, 0.0), (1.5 * count, 1.0))}
    return replace(base, name=_named("lost", count), setting=replace(base.setting, changes=changes))


def slow(slots: int, seed: int, count: int = USUAL, world: World = OWN) -> Scenario:
    """The fastest Mac is three times slower from 400 s on; with fewer, sooner."""
    base = backlog(count, slots, seed, world)
    changes = {"mac-studio-1": ((1.0 * count, 1 / 3),)}
    return replace(base, name=_named("slow", count), setting=replace(base.setting, changes=changes))


def _named(name: str, count: int) -> str:
    return name if count == USUAL else f"{name}{count}"


def mixed(slots: int, seed: int, count: int = 1000, every_s: float = 60.0, world: World = OWN) -> Scenario:
    """One a minute, by somebody who waits, during a batch of 1,000."""
    base = backlog(count, slots, seed, world)
    rng = random.Random(seed + 1)
    until = 0.8 * 3600 * count / _an_hour(world, slots)
    times = [every_s * (i + rng.random()) for i in range(int(until / every_s))]
    own = [hand_in(rng, at, "interactive", world) for at in times]
    return replace(base, name="mixed", hand_ins=(*base.hand_ins, *own))


def cold(slots: int, seed: int, count: int = USUAL, world: World = OWN) -> Scenario:
    """A backlog on machines that know no speed yet."""
    return replace(backlog(count, slots, seed, world), name="cold", cold=True)


SCENARIOS: Mapping[str, Callable[..., Scenario]] = {
    "backlog200": lambda slots, seed, world=OWN: backlog(200, slots, seed, world),
    "backlog400": lambda slots, seed, world=OWN: backlog(400, slots, seed, world),
    "backlog1000": lambda slots, seed, world=OWN: backlog(1000, slots, seed, world),
    "poisson50": lambda slots, seed, world=OWN: poisson(0.5, slots, seed, world=world),
    "poisson80": lambda slots, seed, world=OWN: poisson(0.8, slots, seed, world=world),
    "poisson95": lambda slots, seed, world=OWN: poisson(0.95, slots, seed, world=world),
    "spike": lambda slots, seed, world=OWN: spike(slots, seed, world=world),
    "lost": lambda slots, seed, world=OWN: lost(slots, seed, world=world),
    "slow": lambda slots, seed, world=OWN: slow(slots, seed, world=world),
    "mixed": lambda slots, seed, world=OWN: mixed(slots, seed, world=world),
    "cold": lambda slots, seed, world=OWN: cold(slots, seed, world=world),
}
SIZED: Mapping[str, Callable[..., Scenario]] = {
    "backlog": lambda slots, seed, count, world=OWN: backlog(count, slots, seed, world),
    "lost": lost,
    "slow": slow,
}
"""Those that there are with any number of hand-ins, as in `backlog50`."""


def named(name: str, slots: int, seed: int, world: World = OWN) -> Scenario:
    """One of `SCENARIOS`, or of `SIZED` with its number; a KeyError says what there is."""
    if name in SCENARIOS:
        return SCENARIOS[name](slots, seed, world)
    found = re.fullmatch(r"([a-z]+)([1-9]\d{0,4})", name)
    if found and found[1] in SIZED:
        return SIZED[found[1]](slots, seed, int(found[2]), world)
    sized = (f"{one}N" for one in SIZED)
    raise KeyError(f"{name!r} is none of {', '.join((*SCENARIOS, *sized))}.")
