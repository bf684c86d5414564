"""The plan while less waits than there are slots: a small linear program over the jobs at hand.

Roles say nothing then, as no batch is full for long; who can end the next jobs earliest does.
"""

from __future__ import annotations

from dataclasses import replace

from grading.cluster.roles import PLANNED_JOBS, Roles
from grading.cluster.shares import Shares, shares
from grading.cluster.view import BATCH, PRIORITIES, Peer, View

CHANGE = 0.07
CHANGE_S = 120.0
"""A machine changes to another model only if all is done earlier by that part, or by so many seconds."""


def few(view: View) -> Roles:
    """What machines take of little work, and for `view.me` the stage it goes on with; empty: none of it."""
    found = divided(view)
    takes = {
        name: {
            stage: jobs
            for stage, seconds in of.items()
            if (jobs := seconds * view.peers[name].paces[stage].rate(view.peers[name].slots)) > PLANNED_JOBS
        }
        for name, of in found.seconds.items()
    }
    first = {name: _first(peer, found) for name, peer in view.peers.items() if peer.paces}
    me = view.peers[view.me]
    if me.now in me.paces:
        mine = takes[me.name]
        if me.now in mine or stays_with(view, me, found, me.now):
            first[me.name] = me.now
        else:
            first[me.name] = max(mine, key=lambda stage: me.paces[stage].seconds(me.slots), default="")
    return Roles(first, takes, found.makespan_s)


def _first(peer: Peer, found: Shares) -> str:
    """The stage in its batch, or the one that most of its time is planned for."""
    return (
        peer.now
        if peer.now in peer.paces
        else max(peer.paces, key=lambda s: (found.seconds[peer.name].get(s, 0.0), peer.paces[s].seconds(1)))
    )


def divided(view: View) -> Shares:
    """The fastest way through what waits, after what machines have in hand, if jobs could be divided."""
    rates = {p.name: {s: pace.rate(p.slots) for s, pace in p.paces.items()} for p in view.peers.values()}
    stages = {s for of in rates.values() for s in of}
    committed = {p.name: _committed(p) for p in view.peers.values()}
    batch_only = {p.name for p in view.peers.values() if p.reserved == BATCH}
    if not batch_only:
        return shares(rates, {s: max(1.0, view.count(s)) for s in stages}, committed)
    # what people wait for is no work of these: the two priorities are planned as two kinds of work, the
    # second of which is for all
    kinds = {s: [f"{s} {p}" for p in PRIORITIES] for s in stages}
    work = {f"{s} {p}": max(1.0, view.count(s, (p,))) for s in stages for p in PRIORITIES}
    may = {
        m: {kind: rate for s, rate in of.items() for kind in kinds[s][m in batch_only :]}
        for m, of in rates.items()
    }
    found = shares(may, work, committed)
    merged = {m: {s: sum(found.seconds[m].get(k, 0.0) for k in kinds[s]) for s in rates[m]} for m in rates}
    return Shares(merged, found.makespan_s)


def _committed(peer: Peer) -> float:
    """Seconds a machine is not there for new work: with what it has in hand, and at the end with emptying.

    The last job ends its whole length after it was begun, in a batch that gets smaller; the plan, in which
    work can be divided at will, knows nothing of that.
    """
    in_hand = sum(
        left / peer.paces[stage].rate(peer.slots) for stage, left in peer.left.items() if stage in peer.paces
    )
    lengths = {s: pace.seconds(peer.slots) for s, pace in peer.paces.items()}
    return in_hand + (lengths[peer.now] if peer.now in lengths else min(lengths.values(), default=0.0))


def stays_with(view: View, me: Peer, plan: Shares, stage: str) -> bool:
    """Whether a machine may go on with the model in its batch although the plan has something better.

    While it changes, each step reads both models; and what was measured is not so exact.
    """
    only = {**view.peers, me.name: replace(me, paces={stage: me.paces[stage]})}
    later_s = divided(replace(view, peers=only)).makespan_s - plan.makespan_s
    return later_s <= min(CHANGE * plan.makespan_s, CHANGE_S)
