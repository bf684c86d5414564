"""What comes when, and what happens to machines meanwhile; all from a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bench.router.cost_model import OWN, ClusterModel
from bench.router.lower_bound import per_hour
from bench.router.simulation import Arrival, Setting

USUAL = 400
"""Submissions of a scenario whose name has no number."""


@dataclass(frozen=True)
class Scenario:
    """Submissions, machines, and what is asked of it."""

    name: str
    arrivals: tuple[Arrival, ...]
    setting: Setting = field(default_factory=Setting)
    cold: bool = False
    """Nothing is learned yet."""


def arrival(
    rng: random.Random, at: float, priority: str = "batch", cluster_model: ClusterModel = OWN
) -> Arrival:
    """One of usual size, more or less."""
    return Arrival(at, {stage: cluster_model.output(rng, stage) for stage in cluster_model.works}, priority)


def backlog(count: int, slots: int, seed: int, cluster_model: ClusterModel = OWN) -> Scenario:
    """All at once."""
    rng = random.Random(seed)
    arrivals = tuple(arrival(rng, 0.0, cluster_model=cluster_model) for _ in range(count))
    return Scenario(f"backlog{count}", arrivals, Setting(slots=slots, seed=seed, cluster_model=cluster_model))


def _an_hour(cluster_model: ClusterModel, slots: int) -> float:
    return per_hour(cluster_model.cards, slots, cluster_model.works)


def poisson(
    load: float, slots: int, seed: int, count: int = USUAL, cluster_model: ClusterModel = OWN
) -> Scenario:
    """People who submit by themselves, at a part of the bound."""
    rng, at, found = random.Random(seed), 0.0, []
    a_second = load * _an_hour(cluster_model, slots) / 3600
    for _ in range(count):
        at += rng.expovariate(a_second)
        found.append(arrival(rng, at, "interactive", cluster_model))
    setting = Setting(slots=slots, seed=seed, cluster_model=cluster_model)
    return Scenario(f"poisson{load:.0%}".rstrip("%"), tuple(found), setting)


def spike(
    slots: int, seed: int, count: int = 200, within_s: float = 600.0, cluster_model: ClusterModel = OWN
) -> Scenario:
    """A deadline: so many within ten minutes on top of 30 % load, ever more towards the end."""
    rng, at, found = random.Random(seed), 0.0, []
    a_second = 0.3 * _an_hour(cluster_model, slots) / 3600
    while (at := at + rng.expovariate(a_second)) < 3 * within_s:
        found.append(arrival(rng, at, "interactive", cluster_model))
    found += [
        arrival(rng, within_s * (1 + rng.random() ** 0.5), "interactive", cluster_model) for _ in range(count)
    ]
    return Scenario("spike", tuple(found), Setting(slots=slots, seed=seed, cluster_model=cluster_model))


def lost(slots: int, seed: int, count: int = USUAL, cluster_model: ClusterModel = OWN) -> Scenario:
    """The fastest Mac dies at 300 s and is back at 600 s, with nothing in memory; with fewer, sooner."""
    base = backlog(count, slots, seed, cluster_model)
    changes = {"mac-studio-1": ((0.75 * count, 0.0), (1.5 * count, 1.0))}
    return replace(base, name=_named("lost", count), setting=replace(base.setting, changes=changes))


def slow(slots: int, seed: int, count: int = USUAL, cluster_model: ClusterModel = OWN) -> Scenario:
    """The fastest Mac is three times slower from 400 s on; with fewer, sooner."""
    base = backlog(count, slots, seed, cluster_model)
    changes = {"mac-studio-1": ((1.0 * count, 1 / 3),)}
    return replace(base, name=_named("slow", count), setting=replace(base.setting, changes=changes))


def _named(name: str, count: int) -> str:
    return name if count == USUAL else f"{name}{count}"


def mixed(
    slots: int, seed: int, count: int = 1000, every_s: float = 60.0, cluster_model: ClusterModel = OWN
) -> Scenario:
    """One a minute, by somebody who waits, during a batch of 1,000."""
    base = backlog(count, slots, seed, cluster_model)
    rng = random.Random(seed + 1)
    until = 0.8 * 3600 * count / _an_hour(cluster_model, slots)
    times = [every_s * (i + rng.random()) for i in range(int(until / every_s))]
    own = [arrival(rng, at, "interactive", cluster_model) for at in times]
    return replace(base, name="mixed", arrivals=(*base.arrivals, *own))


def cold(slots: int, seed: int, count: int = USUAL, cluster_model: ClusterModel = OWN) -> Scenario:
    """A backlog on machines that know no speed yet."""
    return replace(backlog(count, slots, seed, cluster_model), name="cold", cold=True)


SCENARIOS: Mapping[str, Callable[..., Scenario]] = {
    "backlog200": lambda slots, seed, cluster_model=OWN: backlog(200, slots, seed, cluster_model),
    "backlog400": lambda slots, seed, cluster_model=OWN: backlog(400, slots, seed, cluster_model),
    "backlog1000": lambda slots, seed, cluster_model=OWN: backlog(1000, slots, seed, cluster_model),
    "poisson50": lambda slots, seed, cluster_model=OWN: poisson(
        0.5, slots, seed, cluster_model=cluster_model
    ),
    "poisson80": lambda slots, seed, cluster_model=OWN: poisson(
        0.8, slots, seed, cluster_model=cluster_model
    ),
    "poisson95": lambda slots, seed, cluster_model=OWN: poisson(
        0.95, slots, seed, cluster_model=cluster_model
    ),
    "spike": lambda slots, seed, cluster_model=OWN: spike(slots, seed, cluster_model=cluster_model),
    "lost": lambda slots, seed, cluster_model=OWN: lost(slots, seed, cluster_model=cluster_model),
    "slow": lambda slots, seed, cluster_model=OWN: slow(slots, seed, cluster_model=cluster_model),
    "mixed": lambda slots, seed, cluster_model=OWN: mixed(slots, seed, cluster_model=cluster_model),
    "cold": lambda slots, seed, cluster_model=OWN: cold(slots, seed, cluster_model=cluster_model),
}
SIZED: Mapping[str, Callable[..., Scenario]] = {
    "backlog": lambda slots, seed, count, cluster_model=OWN: backlog(count, slots, seed, cluster_model),
    "lost": lost,
    "slow": slow,
}
"""Those that there are with any number of submissions, as in `backlog50`."""


def named(name: str, slots: int, seed: int, cluster_model: ClusterModel = OWN) -> Scenario:
    """One of `SCENARIOS`, or of `SIZED` with its number; a KeyError says what there is."""
    if name in SCENARIOS:
        return SCENARIOS[name](slots, seed, cluster_model)
    found = re.fullmatch(r"([a-z]+)([1-9]\d{0,4})", name)
    if found and found[1] in SIZED:
        return SIZED[found[1]](slots, seed, int(found[2]), cluster_model)
    sized = (f"{one}N" for one in SIZED)
    raise KeyError(f"{name!r} is not one of {', '.join((*SCENARIOS, *sized))}.")
