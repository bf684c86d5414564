"""A candidate for the router's rule: late binding, long jobs first, comparative advantage, a tail rule.

A machine with a free slot takes the stage with the longest jobs, unless a shorter one needs it: unless
those who are at least as good at the shorter one as it is, itself included, would need longer for what waits
of that than all others for the long one. So models change about once a class, and its end is made of
short jobs. A job that others are expected to complete sooner is left to them, but not for ever.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.cluster.ours import Ours
from bench.cluster.world import Cluster, Key, Machine
from grading.cluster.routing import BATCH_EVERY, PATIENCE_S, seconds
from grading.cluster.view import BATCH, INTERACTIVE, Peer, View

ADVANTAGE = 1.15
"""By so much better a machine counts at the stage in its batch: measured speeds of equal machines differ."""
SWITCH, SWITCH_LITTLE = 1.1, 1.6
"""A machine changes its model only for so much less time; the second while little waits."""
DOUBT = 2.0
"""A job is left to machines without a free slot only if they end it in so much less time."""


def rate(peer: Peer, stage: str) -> float:
    """Jobs a second with all slots at a stage; 0 where it cannot do it."""
    return peer.paces[stage].rate(max(1, peer.slots)) if stage in peer.paces else 0.0


def advantage(peer: Peer, short: str, long: str) -> float:
    """How much better a machine is at the shorter stage than at the longer one."""
    if not rate(peer, long):
        return math.inf if rate(peer, short) else 0.0
    now = ADVANTAGE if peer.now == short else 1 / ADVANTAGE if peer.now == long else 1.0
    return now * rate(peer, short) / rate(peer, long)


def ends_s(view: View, stage: str, peers: list[Peer]) -> float:
    """Until these have done all that waits of a stage, the length of the last job included."""
    together = sum(rate(p, stage) for p in peers)
    in_hand = sum(p.left.get(stage, 0.0) for p in view.peers.values())
    more = in_hand if view.little else sum(p.slots for p in peers if rate(p, stage))
    return (view.count(stage) + more) / together if together else math.inf


def needed(view: View, me: Peer, short: str, long: str) -> bool:
    """Whether the shorter stage would end later with this machine than the longer one without it."""
    mine = (advantage(me, short, long), me.name)
    first = [p for p in view.peers.values() if (advantage(p, short, long), p.name) >= mine]
    rest = [p for p in view.peers.values() if p not in first]
    keep = SWITCH_LITTLE if view.little else SWITCH
    stays = keep if me.now == long else 1 / keep if me.now == short else 1.0
    return ends_s(view, long, rest) * stays <= ends_s(view, short, first)


def order(view: View, me: Peer) -> list[str]:
    """The stages as this machine would take them."""
    stages = sorted(me.paces, key=lambda s: -me.paces[s].seconds(max(1, me.slots)))
    free = (s for i, s in enumerate(stages) if not any(needed(view, me, u, s) for u in stages[i + 1 :]))
    first = next(free, stages[-1])
    return [first, *(s for s in stages if s != first)]


def elsewhere_s(view: View, me: Peer, stage: str) -> tuple[float, float]:
    """Until another machine would have done what waits of a stage, with doubts, and until it began that."""
    others = [p for p in view.peers.values() if p.name != me.name and stage in p.paces]
    at_it = [p for p in others if p.running.get(stage) or not p.now]
    together, waiting, best = (
        sum(rate(p, stage) for p in at_it),
        max(1, view.count(stage)),
        (math.inf, math.inf),
    )
    for peer in others:
        wait = 0.0 if waiting <= peer.free else waiting / (together if peer in at_it else rate(peer, stage))
        best = min(best, ((wait + seconds(peer, stage)) * (DOUBT if wait else 1.0), wait))
    return best


@dataclass
class Balance(Ours):
    """The candidate, with the same speeds and the same stale views as `Ours`."""

    name: str = "balance"
    _due: defaultdict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """machine -> stage -> when others were to have begun what it left to them."""

    def looked(self, cluster: Cluster, machine: Machine) -> None:
        """The learner looks; there is no plan."""
        self.learn(cluster, machine)

    def queues(self, cluster: Cluster, machine: Machine) -> tuple[Key, ...]:
        """One stage that it takes from, people first."""
        view = self.view(cluster, machine)
        left: dict[str, float] = {}
        turn = view.taken % BATCH_EVERY == BATCH_EVERY - 1
        due, priorities = self._due[machine.name], (BATCH, INTERACTIVE) if turn else (INTERACTIVE, BATCH)
        for stage in self._waiting(view, machine.name, priorities[0] == INTERACTIVE):
            me = view.peers[machine.name]
            done_s, begun_s = elsewhere_s(view, me, stage)
            late = cluster.now - due.get(stage, math.inf) > PATIENCE_S
            if late or seconds(me, stage) <= done_s:
                self._due[machine.name] = left
                return tuple((stage, p) for p in priorities)
            left[stage] = due.get(stage, cluster.now + begun_s)
        self._due[machine.name] = left
        return ()

    def _waiting(self, view: View, name: str, people: bool) -> Iterator[str]:
        """Stages of which something can be taken now, those with people who wait first."""
        stages = order(view, view.peers[name])
        if people:
            stages.sort(key=lambda s: not view.waiting.get((s, INTERACTIVE)))
        return (s for s in stages if any(view.waiting.get((s, p)) for p in (INTERACTIVE, BATCH)))
