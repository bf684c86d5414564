"""Speeds that nobody has measured yet, guessed from those of other machines and stages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from grading.cluster.curve import grown
from grading.cluster.view import Pace, Peer

OPTIMISM = 1.25
"""So much faster than is likely: what was never tried is tried soon."""
NOTHING_KNOWN_S = 60.0
"""Seconds of a job alone when nobody knows anything; only that all are equal matters."""
TURNS = 20
Rates = dict[tuple[str, str], float]


def with_guesses(peers: Mapping[str, Peer]) -> dict[str, Peer]:
    """The peers, each with a pace for all its stages.

    A machine that is twice as fast as another in one stage is taken to be so in the other, too; `seen` is 0.
    """
    missing = {(p.name, s) for p in peers.values() for s in p.stages if s not in p.paces}
    if not missing:
        return dict(peers)
    known = {
        (p.name, s): math.log(max(1e-9, pace.rate(max(1, p.slots)) / pace.health))
        for p in peers.values()
        for s, pace in p.paces.items()
    }
    of_machine, of_stage, usual = _factors(known)
    return {
        name: replace(
            peer,
            paces={
                **peer.paces,
                **{
                    s: _guess(peers.values(), peer, s, usual, of_machine.get(name), of_stage.get(s))
                    for s in peer.stages
                    if (name, s) in missing
                },
            },
        )
        for name, peer in peers.items()
    }


def _factors(known: Rates) -> tuple[dict[str, float], dict[str, float], float | None]:
    """Logarithms: how fast each machine and stage is beside the usual, and the usual rate."""
    if not known:
        return {}, {}, None
    usual = sum(known.values()) / len(known)
    machines = {m: 0.0 for m, _ in known}
    stages = {s: 0.0 for _, s in known}
    for _ in range(TURNS):
        machines = {
            m: _mean(v - usual - stages[s] for (n, s), v in known.items() if n == m) for m in machines
        }
        stages = {s: _mean(v - usual - machines[m] for (m, t), v in known.items() if t == s) for s in stages}
    return machines, stages, usual


def _guess(
    peers: Iterable[Peer],
    peer: Peer,
    stage: str,
    usual: float | None,
    machine: float | None,
    of: float | None,
) -> Pace:
    slots = max(1, peer.slots)
    others = [p.paces[stage] for p in peers if stage in p.paces]
    tokens = _mean(pace.tokens for pace in others)
    if usual is None:
        return Pace(NOTHING_KNOWN_S, NOTHING_KNOWN_S * grown(slots), slots, tokens=tokens)
    full_s = slots / (OPTIMISM * math.exp(usual + (machine or 0.0) + (of or 0.0)))
    return Pace(full_s / grown(slots), full_s, slots, peer_health(peer), tokens)


def peer_health(peer: Peer) -> float:
    """Of the machine as a whole: heat slows all its stages."""
    return min((pace.health for pace in peer.paces.values()), default=1.0)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
