"""What a machine takes next: pure functions that each machine runs for itself, see docs/routing.md.

1. Plan: the fastest way through all known work, with the speeds that machines measured (`shares`).
2. A machine takes from the stages the plan gives it, the one in its batch first, so that models do not mix.
3. It leaves a job that would be done earlier elsewhere, but not for longer than that would take.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass, replace

from grading.cluster.shares import Shares, shares
from grading.cluster.view import Pace, Peer, View

INTERACTIVE, BATCH = "interactive", "batch"
PRIORITIES = (INTERACTIVE, BATCH)
CHANGE = 0.07
CHANGE_S = 120.0
"""A machine changes to another model only if all is done earlier by that part, or by so many seconds."""
BATCH_EVERY = 8
"""One of so many runs a machine takes is batch work, even while people wait."""
PLANNED_JOBS = 0.3
"""A stage of which the plan gives a machine less than this is not meant for it."""
MARGIN = 1.25
"""A job is left only for who is done with it in so much less time: what is foreseen may be wrong."""
DOUBT = 2.0
"""The same where all slots are in use: when the next is free is known badly."""
PATIENCE_S = 5.0
"""What is left for faster machines this much longer than foreseen is taken."""


@dataclass(frozen=True)
class Choice:
    """The queues to take from now, as (stage, priority), first ones first, and why in a few words."""

    queues: tuple[tuple[str, str], ...]
    why: str


def decide(view: View) -> Choice:
    """What the machine `view.me` listens to now."""
    me = view.peers[view.me]
    if not me.paces or me.reserved == "testing":
        return Choice((), "takes only what is sent to it by name" if me.paces else "can do nothing now")
    if not me.free:
        return Choice((), "all slots are in use")
    view = _without_absent(view, me)
    plan = plan_for(view)
    mine = {s for s in me.paces if _meant(me, plan, s)}
    if (now := _now(me)) not in mine and _stays_with(view, me, plan, now):
        mine.add(now)
    take = [s for s in _candidates(view, me, plan, mine) if _stays(view, me, plan, s, mine)]
    if not take:
        waits = any(_waiting(view, stage) for stage in me.paces)
        return Choice((), "others are done with it earlier" if waits else "nothing waits")
    return Choice(_queues(view, me, take), _why(view, me, plan, take))


def plan_for(view: View) -> Shares:
    """The fastest way through what waits, after what machines have in hand."""
    rates = {p.name: {s: pace.rate(p.slots) for s, pace in p.paces.items()} for p in view.peers.values()}
    stages = {s for of in rates.values() for s in of}
    committed = {p.name: _committed(p) for p in view.peers.values()}
    batch_only = {p.name for p in view.peers.values() if p.reserved == BATCH}
    if not batch_only:
        return shares(rates, {s: max(1.0, _waiting(view, s)) for s in stages}, committed)
    # what people wait for is no work of these: the two priorities are planned as two kinds of work, the
    # second of which is for all
    kinds = {s: [f"{s} {p}" for p in PRIORITIES] for s in stages}
    work = {f"{s} {p}": max(1.0, _waiting(view, s, (p,))) for s in stages for p in PRIORITIES}
    may = {
        m: {kind: rate for s, rate in of.items() for kind in kinds[s][m in batch_only :]}
        for m, of in rates.items()
    }
    found = shares(may, work, committed)
    merged = {m: {s: sum(found.seconds[m].get(k, 0.0) for k in kinds[s]) for s in rates[m]} for m in rates}
    return Shares(merged, found.makespan_s)


def _without_absent(view: View, me: Peer) -> View:
    """What can be counted on: no machine that is for tests, no spare while it leaves work to others."""
    primary = [p for p in view.peers.values() if not p.joins_after_s and p.reserved != "testing" and p.free]
    peers = {}
    for peer in view.peers.values():
        waits = {s for s in peer.paces if view.waits_s.get(s, 0.0) < peer.joins_after_s}
        leaves = {s for s in waits if any(s in p.paces for p in primary)}
        if peer.name == me.name:
            peers[peer.name] = peer
        elif peer.reserved != "testing":
            kept = {s: pace for s, pace in peer.paces.items() if s not in leaves}
            peers[peer.name] = replace(peer, paces=kept)
    return replace(view, peers=peers)


def seconds(peer: Peer, stage: str) -> float:
    """Of one more job of a stage on a machine, from its beginning there to its end."""
    mine = peer.running.get(stage, 0) + 1
    own = peer.paces[stage]
    beside = (
        _slowed(own, peer.paces[other], count)
        for other, count in peer.running.items()
        if other != stage and count and other in peer.paces
    )
    return peer.load_s.get(stage, 0.0) + own.seconds(mine) + sum(beside)


def _slowed(own: Pace, other: Pace, count: int) -> float:
    """What jobs of another model in the same batch add: each step reads its weights, too."""
    steps = own.tokens / other.tokens if own.tokens and other.tokens else 1.0
    return other.seconds(count) * min(steps, 4.0)


def _takeable(view: View, me: Peer, stage: str) -> int:
    """Runs in the queues that this machine may take; those in SQL come there soon."""
    return sum(view.waiting.get((stage, p), 0) for p in ((BATCH,) if me.reserved == BATCH else PRIORITIES))


def _waiting(view: View, stage: str, priorities: tuple[str, ...] = PRIORITIES) -> float:
    return float(sum(of.get((stage, p), 0) for of in (view.waiting, view.backlog) for p in priorities))


def _committed(peer: Peer) -> float:
    """Seconds a machine is not there for new work: with what it has in hand, and at the end with emptying.

    The last job ends its whole length after it was begun, in a batch that gets smaller; the plan, in which
    work can be divided at will, knows nothing of that.
    """
    in_hand = sum(
        left / peer.paces[stage].rate(peer.slots) for stage, left in peer.left.items() if stage in peer.paces
    )
    lengths = {s: pace.seconds(peer.slots) for s, pace in peer.paces.items()}
    now = max((s for s in peer.running if s in lengths), key=lambda s: peer.running[s], default=None)
    return in_hand + (lengths[now] if now else min(lengths.values(), default=0.0))


def _meant(peer: Peer, plan: Shares, stage: str) -> bool:
    """Whether the plan gives this machine work of the stage."""
    pace = peer.paces.get(stage)
    return pace is not None and plan.seconds[peer.name].get(stage, 0.0) * pace.rate(peer.slots) > PLANNED_JOBS


def _now(peer: Peer) -> str:
    """The stage of most runs in its batch; empty where it has none."""
    return max((s for s in peer.running if peer.running[s]), key=lambda s: peer.running[s], default="")


def _candidates(view: View, me: Peer, plan: Shares, mine: Set[str]) -> list[str]:
    """The one stage that this machine should take from, or all where nothing waits that it is meant for.

    First one at which nobody works although people wait, then others at which they do, unless it is the turn
    of batch work; then the one of its batch, or to begin with the one that most of its time is planned for,
    as others would soon be mixed with it; then what takes longer, so that the end is made of short jobs.
    """
    now = _now(me)
    others = [p for p in view.peers.values() if p.name != me.name]

    def rank(stage: str) -> tuple[bool, bool, bool, bool, float, float]:
        people = view.waiting.get((stage, INTERACTIVE), 0) > 0 and me.reserved != BATCH
        alone = people and not any(p.running.get(stage) for p in others)
        behind = not people and not _batch_turn(view)
        share = 0.0 if now else plan.seconds[me.name].get(stage, 0.0)
        long = me.paces[stage].seconds(me.slots)
        return stage not in mine, not alone, behind, stage != now, -share, -long

    order = sorted(me.paces, key=rank)
    first = [s for s in order if not rank(s)[0] and _takeable(view, me, s)]
    if first and _comes_soon(view, order[0], first[0]):
        return order[:1]
    return first[:1] or order


def _comes_soon(view: View, best: str, instead: str) -> bool:
    """Whether to wait for work of the best stage, which is on its way out of SQL, and not mix models."""
    people = view.waiting.get((instead, INTERACTIVE), 0) > 0
    on_its_way = sum(view.backlog.get((best, p), 0) for p in PRIORITIES) > 0
    return best != instead and on_its_way and not people and view.left_s.get(instead, 0.0) <= PATIENCE_S


def _stays_with(view: View, me: Peer, plan: Shares, stage: str) -> bool:
    """Whether this machine may go on with the model in its batch although the plan has something better.

    While it changes, each step reads both models; and what was measured is not so exact.
    """
    if stage not in me.paces:
        return False
    only = {**view.peers, me.name: replace(me, paces={stage: me.paces[stage]})}
    later_s = plan_for(replace(view, peers=only)).makespan_s - plan.makespan_s
    return later_s <= min(CHANGE * plan.makespan_s, CHANGE_S)


def _stays(view: View, me: Peer, plan: Shares, stage: str, mine: Set[str]) -> bool:
    """Whether a job of this stage is best begun here and now."""
    others = [p for p in view.peers.values() if p.name != me.name and stage in p.paces]
    if me.reserved != BATCH and not _only_batch(view, stage):
        others = [p for p in others if p.reserved != BATCH]
    if view.waits_s.get(stage, 0.0) < me.joins_after_s and any(
        not p.joins_after_s and p.free for p in others
    ):
        return False
    done, begun = _elsewhere(view, plan, stage, others)
    # with more than others can soon begin it is the plan that says who is meant
    many = _waiting(view, stage) > sum(p.slots for p in others)
    good = stage in mine if many else seconds(me, stage) <= done
    return good or view.left_s.get(stage, 0.0) > PATIENCE_S + (0.0 if many else begun)


def _only_batch(view: View, stage: str) -> bool:
    """Whether batch work, and nothing else, waits in a stage."""
    return not _waiting(view, stage, (INTERACTIVE,)) and _waiting(view, stage) > 0


def _elsewhere(view: View, plan: Shares, stage: str, others: list[Peer]) -> tuple[float, float]:
    """Seconds until the last of what waits now would be done and begun, if this machine took none of it."""
    waiting = max(1.0, _waiting(view, stage))
    at_it = {p.name for p in others if _meant(p, plan, stage) or p.running.get(stage)}
    together = sum(p.paces[stage].rate(p.slots) for p in others if p.name in at_it)
    best = (math.inf, math.inf)
    for one in others:
        rate = together if one.name in at_it else one.paces[stage].rate(one.slots)
        wait = 0.0 if waiting <= one.free else waiting / rate
        best = min(best, ((wait + seconds(one, stage)) * (DOUBT if wait else MARGIN), wait))
    return best


def _queues(view: View, me: Peer, stages: list[str]) -> tuple[tuple[str, str], ...]:
    """People who wait go first, but every so often batch work does."""
    order: tuple[str, ...] = PRIORITIES
    if me.reserved == BATCH:
        order = (BATCH,)
    elif _batch_turn(view):
        order = (BATCH, INTERACTIVE)
    return tuple((s, p) for p in order for s in stages)


def _batch_turn(view: View) -> bool:
    return view.taken % BATCH_EVERY == BATCH_EVERY - 1


def _why(view: View, me: Peer, plan: Shares, take: list[str]) -> str:
    mine = {s: t for s, t in plan.seconds[me.name].items() if t > 0}
    share = ", ".join(f"{s} {t / sum(mine.values()):.0%}" for s, t in mine.items()) or "nothing"
    return f"the plan gives it {share}; it takes {' and '.join(take)}"
