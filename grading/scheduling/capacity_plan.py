"""How long a class takes on given machines, what limits it, and what other machines would change."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from grading.scheduling.cluster_view import INTERACTIVE, Peer, SpeedProfile
from grading.scheduling.forecast import Worked, worked_off
from grading.scheduling.routing import rate
from grading.scheduling.speed_curve import grown

STEP = 0.1
"""How much is changed to see what limits; less would drown in which run ends last."""
MOST_PLAYED = 400
"""Larger classes go on at the pace of the second half of so many."""
MOST_ROLES = 4096
"""Ways of giving fixed roles that are tried."""


@dataclass(frozen=True)
class Machine:
    """One machine, its speeds, and how these are known."""

    peer: Peer
    kind: str = ""
    """Machines of one kind are alike."""
    known: str = ""
    """How: measured, configured, computed or given."""
    own: str = ""
    """The stage it would do if it did only one."""

    @property
    def name(self) -> str:
        """Of the machine."""
        return self.peer.name

    @property
    def rates(self) -> Mapping[str, float]:
        """Jobs a second of each stage, with all its slots."""
        return {stage: rate(self.peer, stage) for stage in self.peer.speed_profiles}


def speed_profile_of(rate: float, slots: int) -> SpeedProfile:
    """A speed of which only the jobs a second with all slots are known."""
    return SpeedProfile(slots / rate / grown(slots), slots / rate, slots)


@dataclass(frozen=True)
class Part:
    """What a machine does."""

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
    """The answer: what comes of playing the rule by which machines take work."""

    submissions: int
    hours: float
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
        """Submissions an hour."""
        return self.submissions / self.hours if self.hours else math.inf

    @property
    def bottleneck(self) -> str:
        """What limits, in a sentence."""
        first, *others = sorted(self.weights, key=lambda s: -self.weights[s])
        if self.weights[first] > 0.95:
            return f"The bottleneck is {first}: too few machines run it, or too slow ones."
        rest = ", ".join(f"of {stage} {self.weights[stage] / 10:.1%}" for stage in others)
        most = f"{self.weights[first] / 10:.1%}"
        return f"The bottleneck is {first}: 10 % less work for it saves {most} of the time, {rest}."


class NobodyDoes(ValueError):
    """No machine does a stage that is needed."""


def plan(machines: Sequence[Machine], stages: Sequence[str], submissions: int) -> Plan:
    """How these machines grade a class that submits at once, each submission once a stage.

    Raises NobodyDoes if a stage has no machine.
    """
    for stage in stages:
        if not any(stage in one.peer.speed_profiles for one in machines):
            raise NobodyDoes(f"no machine has the stage {stage}")
    work = dict.fromkeys(stages, submissions)
    peers = {one.name: one.peer for one in machines}
    best = _played(peers, work)
    kinds = {one.kind or one.name: one.peer for one in machines}
    saves = {kind: _saves_s(best, peer, peers, work) for kind, peer in kinds.items()}
    fixed = fixed_roles(machines, stages)
    return Plan(
        submissions,
        best.seconds / 3600,
        tuple(_part(best, one, saves[one.kind or one.name], stages) for one in machines),
        _weights(peers, work, best.seconds),
        {
            kind: _played({**peers, "+": replace(peer, name="+")}, work).seconds / 3600
            for kind, peer in kinds.items()
        },
        _with_roles(peers, {one.name: one.own for one in machines}, work),
        _with_roles(peers, fixed, work) if fixed else None,
    )


Peers = Mapping[str, Peer]


def _played(peers: Peers, work: Mapping[str, int]) -> Worked:
    """Of all this work, or of a part of it and at its pace for the rest."""
    share = min(1.0, MOST_PLAYED / max(1, *work.values()))
    lines = {(stage, INTERACTIVE): math.ceil(count * share) for stage, count in work.items()}
    found = worked_off(peers, lines)
    if share == 1:
        return found
    half = worked_off(peers, {line: math.ceil(count / 2) for line, count in lines.items()})
    more = 2 * (1 / share - 1)
    jobs = {at: round(count + more * (count - half.jobs.get(at, 0))) for at, count in found.jobs.items()}
    return Worked(found.seconds + more * (found.seconds - half.seconds), jobs)


def _part(best: Worked, one: Machine, saves_s: float, stages: Sequence[str]) -> Part:
    jobs = {stage: float(best.jobs.get((one.name, stage), 0)) for stage in stages}
    hours = {s: count / one.rates[s] / 3600 if count else 0.0 for s, count in jobs.items()}
    return Part(one.name, hours, jobs, saves_s)


def _saves_s(best: Worked, peer: Peer, peers: Peers, work: Mapping[str, int]) -> float:
    faster = {
        s: replace(p, alone_s=p.alone_s / (1 + STEP), full_s=p.full_s / (1 + STEP))
        for s, p in peer.speed_profiles.items()
    }
    sooner = _played({**peers, peer.name: replace(peer, speed_profiles=faster)}, work).seconds
    return max(0.0, best.seconds - sooner) / (STEP * 100)


def _weights(peers: Peers, work: Mapping[str, int], whole: float) -> dict[str, float]:
    longer = {
        stage: max(0.0, _played(peers, {**work, stage: math.ceil(jobs * (1 + STEP))}).seconds - whole)
        for stage, jobs in work.items()
    }
    total = sum(longer.values())
    return {stage: more / total if total else 0.0 for stage, more in longer.items()}


def fixed_roles(machines: Sequence[Machine], stages: Sequence[str]) -> Mapping[str, str]:
    """Who does which one stage so that all is done earliest, kinds being alike; empty: no way."""
    kinds: dict[str, list[Machine]] = {}
    for machine in machines:
        kinds.setdefault(machine.kind or machine.name, []).append(machine)
    ways = [list(itertools.combinations_with_replacement(stages, len(of))) for of in kinds.values()]
    if math.prod(map(len, ways)) > MOST_ROLES:
        return {}
    tried = [dict(_named(kinds.values(), way)) for way in itertools.product(*ways)]

    def slowest(roles: Mapping[str, str]) -> float:
        return min(sum(m.rates.get(s, 0.0) for m in machines if roles[m.name] == s) for s in stages)

    best = max(tried, key=slowest)
    return best if slowest(best) > 0 else {}


def _named(kinds: Iterable[list[Machine]], way: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    for of, roles in zip(kinds, way, strict=True):
        for one, role in zip(of, roles, strict=True):
            yield one.name, role


def _with_roles(peers: Peers, roles: Mapping[str, str], work: Mapping[str, int]) -> Fixed | None:
    fixed = {
        name: replace(
            peer,
            speed_profiles={s: profile for s, profile in peer.speed_profiles.items() if s == roles[name]},
        )
        for name, peer in peers.items()
    }
    if not set(work) <= {stage for peer in fixed.values() for stage in peer.speed_profiles}:
        return None
    return Fixed(_played(fixed, work).seconds / 3600, roles)
