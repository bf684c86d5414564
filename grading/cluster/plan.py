"""How long a class takes on given machines, what limits it, and what other machines would change."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from grading.cluster.shares import shares

OVER_THE_BOUND = 1.1
"""What the router needs over the bound with a few hundred hand-ins; see docs/benchmarks-router.md."""
STEP = 0.02
"""How much is changed to see what limits."""
MOST_ROLES = 4096
"""Ways of giving fixed roles that are tried."""


@dataclass(frozen=True)
class Station:
    """One machine: jobs a second of each stage with all its slots, and how that is known."""

    name: str
    rates: Mapping[str, float]
    kind: str = ""
    """Machines of one kind are alike."""
    known: str = ""
    """How: measured, a first guess, or reckoned."""
    own: str = ""
    """The stage it would do if it did only one."""


@dataclass(frozen=True)
class Part:
    """What a machine does in the plan."""

    machine: str
    hours: Mapping[str, float]
    """stage -> hours it spends on it."""
    jobs: Mapping[str, float]
    saves_s: float
    """By how much all is done earlier if this machine is one per cent faster."""


@dataclass(frozen=True)
class Fixed:
    """How long it takes if each machine does only one stage."""

    hours: float
    roles: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """The answer. Hours are those of a bound which no schedule beats, if they are not called likely."""

    submissions: int
    hours: float
    likely_hours: float
    parts: tuple[Part, ...]
    weights: Mapping[str, float]
    """stage -> its part in the time: 0.7 says that a tenth more work there takes 7 % longer."""
    more: Mapping[str, float]
    """kind -> hours with one more machine of it."""
    own: Fixed | None
    """With each machine at its own stage; nothing if that leaves a stage out."""
    fixed: Fixed | None
    """The best fixed roles; nothing if there are too many ways to try, or none does all stages."""

    @property
    def an_hour(self) -> float:
        """Submissions an hour, at best."""
        return self.submissions / self.hours if self.hours else math.inf

    @property
    def bottleneck(self) -> str:
        """What limits, in a sentence."""
        first, *others = sorted(self.weights, key=lambda s: -self.weights[s])
        if self.weights[first] > 0.95:
            return f"Only {first} limits: the machines that can do it are too few or too slow for it."
        rest = ", ".join(f"of {stage} {self.weights[stage] / 10:.1%}" for stage in others)
        most = f"{self.weights[first] / 10:.1%}"
        return f"{first} weighs most: 10 % less of it saves {most} of the time, {rest}."


class NobodyDoes(ValueError):
    """No machine does a stage that is needed."""


def plan(stations: Sequence[Station], stages: Sequence[str], submissions: int) -> Plan:
    """How these machines grade a class that hands in at once, each submission once a stage.

    Raises NobodyDoes if a stage has no machine.
    """
    for stage in stages:
        if not any(one.rates.get(stage, 0.0) > 0 for one in stations):
            raise NobodyDoes(f"no machine does {stage}")
    rates = {one.name: {s: one.rates[s] for s in stages if one.rates.get(s, 0.0) > 0} for one in stations}
    work = dict.fromkeys(stages, float(submissions))
    best = shares(rates, work)
    whole = best.makespan_s
    parts = tuple(
        Part(
            one.name,
            {s: best.seconds[one.name].get(s, 0.0) / 3600 for s in stages},
            {s: best.seconds[one.name].get(s, 0.0) * rates[one.name].get(s, 0.0) for s in stages},
            _saves(rates, work, whole, one.name),
        )
        for one in stations
    )
    kinds = {one.kind or one.name: one for one in stations}
    more = {kind: shares({**rates, "+": rates[one.name]}, work).makespan_s for kind, one in kinds.items()}
    return Plan(
        submissions,
        whole / 3600,
        whole * OVER_THE_BOUND / 3600,
        parts,
        _weights(rates, work, whole),
        {kind: seconds / 3600 for kind, seconds in more.items()},
        _with_roles(stations, {one.name: one.own for one in stations}, stages, submissions),
        fixed_roles(stations, stages, submissions),
    )


Rates = Mapping[str, Mapping[str, float]]


def _saves(rates: Rates, work: Mapping[str, float], whole: float, machine: str) -> float:
    faster = {s: r * (1 + STEP) for s, r in rates[machine].items()}
    return max(0.0, whole - shares({**rates, machine: faster}, work).makespan_s) / (STEP * 100)


def _weights(rates: Rates, work: Mapping[str, float], whole: float) -> dict[str, float]:
    longer = {
        stage: max(0.0, shares(rates, {**work, stage: jobs * (1 + STEP)}).makespan_s - whole)
        for stage, jobs in work.items()
    }
    total = sum(longer.values())
    return {stage: more / total if total else 0.0 for stage, more in longer.items()}


def fixed_roles(stations: Sequence[Station], stages: Sequence[str], submissions: int) -> Fixed | None:
    """The fastest way in which each machine does one stage only; machines of a kind count as alike."""
    kinds: dict[str, list[Station]] = {}
    for station in stations:
        kinds.setdefault(station.kind or station.name, []).append(station)
    ways = [list(itertools.combinations_with_replacement(stages, len(of))) for of in kinds.values()]
    if math.prod(map(len, ways)) > MOST_ROLES:
        return None
    best: Fixed | None = None
    for way in itertools.product(*ways):
        roles = dict(_named(kinds.values(), way))
        one = _with_roles(stations, roles, stages, submissions)
        if one is not None and (best is None or one.hours < best.hours):
            best = one
    return best


def _named(kinds: Iterable[list[Station]], way: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    for of, roles in zip(kinds, way, strict=True):
        for one, role in zip(of, roles, strict=True):
            yield one.name, role


def _with_roles(
    stations: Sequence[Station], roles: Mapping[str, str], stages: Sequence[str], submissions: int
) -> Fixed | None:
    speed = dict.fromkeys(stages, 0.0)
    for one in stations:
        if roles[one.name] in speed:
            speed[roles[one.name]] += one.rates.get(roles[one.name], 0.0)
    slowest = min(speed.values())
    return Fixed(submissions / slowest / 3600, roles) if slowest > 0 else None
