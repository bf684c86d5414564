"""What a machine takes next: pure functions that each machine runs for itself, see docs/routing.md.

1. Plan: which stage each machine begins with, of the speeds that machines measured (`roles`).
2. A machine takes from the stage of its role while some of it waits, so that models do not mix; then others.
3. It leaves a job that would be done earlier elsewhere, but not for longer than that would take.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from grading.cluster.few import few
from grading.cluster.roles import PLANNED_JOBS, Roles, roles
from grading.cluster.view import BATCH, INTERACTIVE, PRIORITIES, Pace, Peer, View

BATCH_EVERY = 8
"""One of so many runs a machine takes is batch work, even while people wait."""
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
    leaves: Mapping[str, float] = field(default_factory=dict)
    """stage -> seconds in which others will have begun all that waits there, where it is left to them."""


@dataclass(frozen=True)
class _Others:
    """What a stage may expect of the other machines."""

    done_s: float
    """Until the last of what waits now would be done there, with the doubt about it."""
    begun_s: float
    """The same until it would be begun."""
    many: bool
    """Whether more waits than they have slots."""
    first: bool
    """Whether a primary machine goes first, as it has not waited long enough for a spare."""


def planned(view: View) -> Roles:
    """The plan as `view.me` sees it, with what can be counted on. Once a second is enough."""
    return _plan(_without_absent(view, view.peers[view.me]))


def _plan(view: View) -> Roles:
    return few(view) if view.little and view.peers[view.me].busy else roles(view)


def decide(view: View, plan: Roles | None = None) -> Choice:
    """What the machine `view.me` listens to now. `plan` was made a moment ago, or is made now."""
    me = view.peers[view.me]
    if not me.paces or me.reserved == "testing":
        return Choice((), "takes only what is sent to it by name" if me.paces else "can do nothing now")
    if not me.free:
        return Choice((), "all slots are in use")
    view = _without_absent(view, me)
    if plan is None or view.little or plan.first.get(me.name) not in me.paces:
        plan = _plan(view)
    first = plan.first[me.name]
    mine = {s for s in me.paces if s == first or _meant(me, plan, s) or _crowded(view, plan, s)}
    looked = _candidates(view, me, plan, mine)
    others = {s: _elsewhere(view, me, plan, s) for s in looked}
    take = [s for s in looked if _stays(view, me, others[s], s, mine)]
    leaves = {s: others[s].begun_s for s in looked if s not in take and not others[s].many}
    if not take:
        waits = any(view.count(stage) for stage in me.paces)
        return Choice((), "others are done with it earlier" if waits else "nothing waits", leaves)
    return Choice(_queues(view, me, take), _why(view, me, plan, take), leaves)


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


def _meant(peer: Peer, plan: Roles, stage: str) -> bool:
    """Whether the plan gives this machine work of the stage."""
    return plan.takes.get(peer.name, {}).get(stage, 0.0) > PLANNED_JOBS


def _begins(plan: Roles, peer: Peer, stage: str) -> bool:
    """Whether this machine is about to work at the stage, as it is its role."""
    return plan.first.get(peer.name) == stage and peer.free > 0 and peer.reserved != BATCH


def _crowded(view: View, plan: Roles, stage: str) -> bool:
    """Whether more people wait than those whose role it is have slots."""
    slots = sum(p.slots for p in view.peers.values() if plan.first.get(p.name) == stage)
    return not view.little and view.count(stage, (INTERACTIVE,)) > slots


def _candidates(view: View, me: Peer, plan: Roles, mine: Set[str]) -> list[str]:
    """The one stage that this machine should take from, or all where nothing waits that it is meant for.

    First one at which nobody works or is about to although people wait, then others at which they do, unless
    it is the turn of batch work; then the one of its role, as others would soon be mixed with it; then what
    takes longer, so that the end is made of short jobs.
    """
    others = [p for p in view.peers.values() if p.name != me.name]

    def rank(stage: str) -> tuple[bool, bool, bool, bool, float]:
        people = view.waiting.get((stage, INTERACTIVE), 0) > 0 and me.reserved != BATCH
        begins = stage != plan.first[me.name] and any(_begins(plan, p, stage) for p in others)
        alone = people and not begins and not any(p.running.get(stage) for p in others)
        behind = not people and not _batch_turn(view)
        long = me.paces[stage].seconds(me.slots)
        return stage not in mine, not alone, behind, stage != plan.first[me.name], -long

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


def _stays(view: View, me: Peer, others: _Others, stage: str, mine: Set[str]) -> bool:
    """Whether a job of this stage is best begun here and now."""
    if others.first:
        return False
    if others.many:
        return stage in mine or view.left_s.get(stage, 0.0) > PATIENCE_S
    return seconds(me, stage) <= others.done_s or view.late_s.get(stage, 0.0) > PATIENCE_S


def _only_batch(view: View, stage: str) -> bool:
    """Whether batch work, and nothing else, waits in a stage."""
    return not view.count(stage, (INTERACTIVE,)) and view.count(stage) > 0


def _elsewhere(view: View, me: Peer, plan: Roles, stage: str) -> _Others:
    """What comes of the work that waits in a stage if this machine takes none of it."""
    others = [p for p in view.peers.values() if p.name != me.name and stage in p.paces]
    if me.reserved != BATCH and not _only_batch(view, stage):
        others = [p for p in others if p.reserved != BATCH]
    early = view.waits_s.get(stage, 0.0) < me.joins_after_s
    first = early and any(not p.joins_after_s and p.free for p in others)
    waiting = max(1.0, view.count(stage))
    at_it = {p.name for p in others if _meant(p, plan, stage) or p.running.get(stage)}
    together = sum(p.paces[stage].rate(p.slots) for p in others if p.name in at_it)
    best = (math.inf, math.inf)
    for one in others:
        rate = together if one.name in at_it else one.paces[stage].rate(one.slots)
        wait = 0.0 if waiting <= one.free else waiting / rate
        best = min(best, ((wait + seconds(one, stage)) * (DOUBT if wait else MARGIN), wait))
    # with more than others can soon begin it is the plan that says who is meant
    return _Others(*best, view.count(stage) > sum(p.slots for p in others), first)


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


def _why(view: View, me: Peer, plan: Roles, take: list[str]) -> str:
    mine = {s: jobs for s, jobs in plan.takes[me.name].items() if jobs > 0}
    share = ", ".join(f"{s} {jobs / sum(mine.values()):.0%}" for s, jobs in mine.items()) or "nothing"
    return f"the plan gives it {share}; it takes {' and '.join(take)}"
