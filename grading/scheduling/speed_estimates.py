"""Speeds that nobody has measured yet, guessed from those of other machines and stages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from grading.scheduling.cluster_view import Pace, Peer
from grading.scheduling.speed_curve import grown

NOTHING_KNOWN_S = 60.0
"""Seconds of a job alone when nobody knows anything; only that all are equal matters."""
ENOUGH = 8.0
"""A speed of fewer jobs is mixed with what others let expect: a job or two say little."""
TURNS = 20
Rates = Mapping[tuple[str, str], tuple[float, float]]
"""(machine, stage) -> the logarithm of jobs a second, and how much that counts"""


def with_guesses(peers: Mapping[str, Peer]) -> dict[str, Peer]:
    """The peers, each with a pace for all its stages.

    A machine that is twice as fast as another in one stage is taken to be so in the other, too; `seen` is 0.
    What was measured with few jobs is drawn towards that.
    """
    known = {
        (p.name, s): (math.log(max(1e-9, pace.rate(max(1, p.slots)) / pace.health)), _counts(pace))
        for p in peers.values()
        for s, pace in p.paces.items()
    }
    if not known:
        return {n: replace(p, paces=dict.fromkeys(p.stages, _nothing(p))) for n, p in peers.items()}
    factors = _factors(known)
    return {name: replace(peer, paces=_paces(peers.values(), peer, factors)) for name, peer in peers.items()}


@dataclass(frozen=True)
class _Factors:
    """Logarithms of jobs a second."""

    usual: float
    machines: Mapping[str, float]
    """How fast each is beside the usual."""
    stages: Mapping[str, float]

    def of(self, machine: str, stage: str) -> float:
        """Jobs a second that are likely."""
        return math.exp(self.usual + self.machines.get(machine, 0.0) + self.stages.get(stage, 0.0))


def _factors(known: Rates) -> _Factors:
    """Where machines share no stage nothing tells a slow machine from a long stage: then it is the stage."""
    usual = _mean(known.values())
    machines = {m: 0.0 for m, _ in known}
    stages = {s: 0.0 for _, s in known}
    for _ in range(TURNS):
        stages = {
            s: _mean((v - usual - machines[m], w) for (m, t), (v, w) in known.items() if t == s)
            for s in stages
        }
        machines = {
            m: _mean((v - usual - stages[s], w) for (n, s), (v, w) in known.items() if n == m)
            for m in machines
        }
    return _Factors(usual, machines, stages)


def _counts(pace: Pace) -> float:
    return min(1.0, max(0.01, pace.seen / ENOUGH))


def _paces(peers: Iterable[Peer], peer: Peer, factors: _Factors) -> dict[str, Pace]:
    guessed = {s: _guess(peers, peer, s, factors) for s in peer.stages if s not in peer.paces}
    measured = {s: _drawn(pace, peer, factors.of(peer.name, s)) for s, pace in peer.paces.items()}
    measured = {s: replace(p, tokens=p.tokens or _length(peers, s)) for s, p in measured.items()}
    return measured | guessed


def _guess(peers: Iterable[Peer], peer: Peer, stage: str, factors: _Factors) -> Pace:
    slots = max(1, peer.slots)
    full_s = slots / factors.of(peer.name, stage)
    return Pace(full_s / grown(slots), full_s, slots, peer_health(peer), _length(peers, stage))


def _length(peers: Iterable[Peer], stage: str) -> float:
    """Tokens of a usual job, by those who know it; 0: nobody."""
    return _mean((p.paces[stage].tokens, 1.0) for p in peers if stage in p.paces and p.paces[stage].tokens)


def lengths(me: str, peers: Mapping[str, Peer]) -> dict[str, float]:
    """stage -> tokens of a usual answer, as machines other than `me` measured it; 0: none did."""
    others = [
        replace(peer, paces={s: pace for s, pace in peer.paces.items() if pace.seen})
        for name, peer in peers.items()
        if name != me
    ]
    return {stage: _length(others, stage) for peer in others for stage in peer.paces}


def _nothing(peer: Peer) -> Pace:
    slots = max(1, peer.slots)
    return Pace(NOTHING_KNOWN_S, NOTHING_KNOWN_S * grown(slots), slots)


def _drawn(pace: Pace, peer: Peer, likely: float) -> Pace:
    """A pace of few jobs, with what is likely for the rest of its weight."""
    if (mine := _counts(pace)) >= 1:
        return pace
    rate = pace.rate(max(1, peer.slots)) / pace.health
    by = (rate / likely) ** (1 - mine)
    return replace(pace, alone_s=pace.alone_s * by, full_s=pace.full_s * by)


def peer_health(peer: Peer) -> float:
    """Of the machine as a whole: heat slows all its stages."""
    return min((pace.health for pace in peer.paces.values()), default=1.0)


def _mean(values: Iterable[tuple[float, float]]) -> float:
    """Of (value, weight)s."""
    found = list(values)
    return sum(v * w for v, w in found) / sum(w for _, w in found) if found else 0.0
