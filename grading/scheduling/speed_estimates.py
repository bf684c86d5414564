"""Speeds that nobody has measured yet, guessed from those of other machines and stages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from grading.scheduling.cluster_view import Peer, SpeedProfile
from grading.scheduling.speed_curve import grown

NOTHING_KNOWN_S = 60.0
"""Seconds of a job alone when nobody knows anything; only that all are equal matters."""
ENOUGH = 8.0
"""A speed of fewer jobs is mixed with what others let expect: a job or two say little."""
TURNS = 20
Rates = Mapping[tuple[str, str], tuple[float, float]]
"""(machine, stage) -> the logarithm of jobs a second, and how much that counts"""


def with_guesses(peers: Mapping[str, Peer]) -> dict[str, Peer]:
    """The peers, each with a speed profile for all its stages.

    A machine that is twice as fast as another in one stage is taken to be so in the other, too; `seen` is 0.
    What was measured with few jobs is drawn towards that.
    """
    known = {
        (p.name, s): (math.log(max(1e-9, profile.rate(max(1, p.slots)) / profile.health)), _counts(profile))
        for p in peers.values()
        for s, profile in p.speed_profiles.items()
    }
    if not known:
        return {n: replace(p, speed_profiles=dict.fromkeys(p.stages, _nothing(p))) for n, p in peers.items()}
    factors = _factors(known)
    return {
        name: replace(peer, speed_profiles=_speed_profiles(peers.values(), peer, factors))
        for name, peer in peers.items()
    }


@dataclass(frozen=True)
class _Factors:
    """Logarithms of jobs a second."""

    mean: float
    machines: Mapping[str, float]
    """How fast each is beside the usual."""
    stages: Mapping[str, float]

    def of(self, machine: str, stage: str) -> float:
        """Jobs a second that are likely."""
        return math.exp(self.mean + self.machines.get(machine, 0.0) + self.stages.get(stage, 0.0))


def _factors(known: Rates) -> _Factors:
    """Where machines share no stage nothing tells a slow machine from a long stage: then it is the stage."""
    mean = _mean(known.values())
    of_machines: dict[str, list[tuple[float, str, float]]] = {m: [] for m, _ in known}
    of_stages: dict[str, list[tuple[float, str, float]]] = {s: [] for _, s in known}
    for (machine, stage), (rate, weight) in known.items():
        of_machines[machine].append((rate - mean, stage, weight))
        of_stages[stage].append((rate - mean, machine, weight))
    machines = dict.fromkeys(of_machines, 0.0)
    for _ in range(TURNS):
        before = machines
        stages = {s: _beside(machines, of) for s, of in of_stages.items()}
        machines = {m: _beside(stages, of) for m, of in of_machines.items()}
        if machines == before:  # nor would the next turns change anything
            break
    return _Factors(mean, machines, stages)


def _beside(others: Mapping[str, float], rates: Iterable[tuple[float, str, float]]) -> float:
    """The mean of (rate, name, weight)s beside what others of these names give."""
    return _mean([(rate - others[name], weight) for rate, name, weight in rates])


def _counts(profile: SpeedProfile) -> float:
    return min(1.0, max(0.01, profile.seen / ENOUGH))


def _speed_profiles(peers: Iterable[Peer], peer: Peer, factors: _Factors) -> dict[str, SpeedProfile]:
    guessed = {s: _guess(peers, peer, s, factors) for s in peer.stages if s not in peer.speed_profiles}
    measured = {
        s: _drawn(profile, peer, factors.of(peer.name, s)) for s, profile in peer.speed_profiles.items()
    }
    measured = {s: replace(p, tokens=p.tokens or _length(peers, s)) for s, p in measured.items()}
    return measured | guessed


def _guess(peers: Iterable[Peer], peer: Peer, stage: str, factors: _Factors) -> SpeedProfile:
    slots = max(1, peer.slots)
    full_s = slots / factors.of(peer.name, stage)
    return SpeedProfile(full_s / grown(slots), full_s, slots, peer_health(peer), _length(peers, stage))


def _length(peers: Iterable[Peer], stage: str) -> float:
    """Tokens of a usual job, by those who know it; 0: nobody."""
    return _mean(
        (p.speed_profiles[stage].tokens, 1.0)
        for p in peers
        if stage in p.speed_profiles and p.speed_profiles[stage].tokens
    )


def lengths(me: str, peers: Mapping[str, Peer]) -> dict[str, float]:
    """stage -> tokens of a usual answer, as machines other than `me` measured it; 0: none did."""
    others = [
        replace(
            peer, speed_profiles={s: profile for s, profile in peer.speed_profiles.items() if profile.seen}
        )
        for name, peer in peers.items()
        if name != me
    ]
    return {stage: _length(others, stage) for peer in others for stage in peer.speed_profiles}


def _nothing(peer: Peer) -> SpeedProfile:
    slots = max(1, peer.slots)
    return SpeedProfile(NOTHING_KNOWN_S, NOTHING_KNOWN_S * grown(slots), slots)


def _drawn(profile: SpeedProfile, peer: Peer, likely: float) -> SpeedProfile:
    """A profile of few jobs, with what is likely for the rest of its weight."""
    if (mine := _counts(profile)) >= 1:
        return profile
    rate = profile.rate(max(1, peer.slots)) / profile.health
    by = (rate / likely) ** (1 - mine)
    return replace(profile, alone_s=profile.alone_s * by, full_s=profile.full_s * by)


def peer_health(peer: Peer) -> float:
    """Of the machine as a whole: heat slows all its stages."""
    return min((profile.health for profile in peer.speed_profiles.values()), default=1.0)


def _mean(values: Iterable[tuple[float, float]]) -> float:
    """Of (value, weight)s."""
    total = weights = 0.0
    for value, weight in values:
        total += value * weight
        weights += weight
    return total / weights if weights else 0.0
