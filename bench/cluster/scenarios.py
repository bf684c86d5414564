"""What comes when, and what happens to machines meanwhile; all from a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bench.cluster.bound import per_hour
from bench.cluster.cards import CARDS, STAGES
from bench.cluster.world import HandIn, Setting

USUAL = 400
"""Hand-ins of a scenario whose name has no number."""
SPREAD = 0.25
"""Of the logarithm of output lengths."""


@dataclass(frozen=True)
class Scenario:
    """Hand-ins, machines, and what is asked of it."""

    name: str
    hand_ins: tuple[HandIn, ...]
    setting: Setting = field(default_factory=Setting)
    cold: bool = False
    """Nothing is learned yet."""


def hand_in(rng: random.Random, at: float, priority: str = "batch") -> HandIn:
    """One of usual size, more or less."""
    output = {s: round(w.output * rng.lognormvariate(-(SPREAD**2) / 2, SPREAD)) for s, w in STAGES.items()}
    return HandIn(at, output, priority)


def _setting(slots: int, seed: int) -> Setting:
    return Setting(slots=slots, seed=seed)


def backlog(count: int, slots: int, seed: int) -> Scenario:
    """All at once."""
    rng = random.Random(seed)
    return Scenario(f"backlog{count}", tuple(hand_in(rng, 0.0) for _ in range(count)), _setting(slots, seed))


def poisson(load: float, slots: int, seed: int, count: int = 400) -> Scenario:
    """People who hand in by themselves, at a part of the bound."""
    rng, at, found = random.Random(seed), 0.0, []
    a_second = load * per_hour(CARDS, slots) / 3600
    for _ in range(count):
        at += rng.expovariate(a_second)
        found.append(hand_in(rng, at, "interactive"))
    return Scenario(f"poisson{load:.0%}".rstrip("%"), tuple(found), _setting(slots, seed))


def spike(slots: int, seed: int, count: int = 200, within_s: float = 600.0) -> Scenario:
    """A deadline: so many within ten minutes on top of 30 % load, ever more towards the end."""
    rng, at, found = random.Random(seed), 0.0, []
    a_second = 0.3 * per_hour(CARDS, slots) / 3600
    while (at := at + rng.expovariate(a_second)) < 3 * within_s:
        found.append(hand_in(rng, at, "interactive"))
    found += [hand_in(rng, within_s * (1 + rng.random() ** 0.5), "interactive") for _ in range(count)]
    return Scenario("spike", tuple(found), _setting(slots, seed))


def lost(slots: int, seed: int, count: int = USUAL) -> Scenario:
    """The fastest Mac dies at 300 s and is back at 600 s, with nothing in memory; with fewer, sooner."""
    base = backlog(count, slots, seed)
    changes = {"mac-studio-1": ((0.75 * count, 0.0), (1.5 * count, 1.0))}
    return replace(base, name=_named("lost", count), setting=replace(base.setting, changes=changes))


def slow(slots: int, seed: int, count: int = USUAL) -> Scenario:
    """The fastest Mac is three times slower from 400 s on; with fewer, sooner."""
    base = backlog(count, slots, seed)
    changes = {"mac-studio-1": ((1.0 * count, 1 / 3),)}
    return replace(base, name=_named("slow", count), setting=replace(base.setting, changes=changes))


def _named(name: str, count: int) -> str:
    return name if count == USUAL else f"{name}{count}"


def mixed(slots: int, seed: int, count: int = 1000, every_s: float = 60.0) -> Scenario:
    """One a minute, by somebody who waits, during a batch of 1,000."""
    base = backlog(count, slots, seed)
    rng = random.Random(seed + 1)
    until = 0.8 * 3600 * count / per_hour(CARDS, slots)
    own = [hand_in(rng, every_s * (i + rng.random()), "interactive") for i in range(int(until / every_s))]
    return replace(base, name="mixed", hand_ins=(*base.hand_ins, *own))


def cold(slots: int, seed: int, count: int = 400) -> Scenario:
    """A backlog on machines that know no speed yet."""
    return replace(backlog(count, slots, seed), name="cold", cold=True)


SCENARIOS: Mapping[str, Callable[[int, int], Scenario]] = {
    "backlog200": lambda slots, seed: backlog(200, slots, seed),
    "backlog400": lambda slots, seed: backlog(400, slots, seed),
    "backlog1000": lambda slots, seed: backlog(1000, slots, seed),
    "poisson50": lambda slots, seed: poisson(0.5, slots, seed),
    "poisson80": lambda slots, seed: poisson(0.8, slots, seed),
    "poisson95": lambda slots, seed: poisson(0.95, slots, seed),
    "spike": spike,
    "lost": lost,
    "slow": slow,
    "mixed": mixed,
    "cold": cold,
}
SIZED: Mapping[str, Callable[[int, int, int], Scenario]] = {
    "backlog": lambda slots, seed, count: backlog(count, slots, seed),
    "lost": lost,
    "slow": slow,
}
"""Those that there are with any number of hand-ins, as in `backlog50`."""


def named(name: str, slots: int, seed: int) -> Scenario:
    """One of `SCENARIOS`, or of `SIZED` with its number; a KeyError says what there is."""
    if name in SCENARIOS:
        return SCENARIOS[name](slots, seed)
    found = re.fullmatch(r"([a-z]+)([1-9]\d{0,4})", name)
    if found and found[1] in SIZED:
        return SIZED[found[1]](slots, seed, int(found[2]))
    sized = (f"{one}N" for one in SIZED)
    raise KeyError(f"{name!r} is none of {', '.join((*SCENARIOS, *sized))}.")
