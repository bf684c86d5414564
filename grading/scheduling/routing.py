"""What a machine takes next: pure functions that each machine runs for itself, see routing.md.

1. Late binding, longest jobs first: with a free slot it takes the stage with the longest jobs that waits.
2. Comparative advantage: unless those who are at least as good at a shorter stage as it is, itself included,
   would need longer for that than all others for the longer one.
3. Shortest expected completion: it leaves a job that others are done with sooner, but not for ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from grading.domain.messages import Message, define_message
from grading.scheduling.cluster_view import BATCH, INTERACTIVE, PRIORITIES, Peer, SpeedProfile, View

BATCH_EVERY = 8
"""One of so many runs a machine takes is batch work, even while people wait."""
ADVANTAGE = 1.15
"""By so much better a machine counts at the stage in its batch: measured speeds of equal machines differ."""
SWITCH, SWITCH_LOW_LOAD = 1.1, 2.5
"""A machine changes its model only for so much less time; the second while little waits, and for
who is `FAR` times better at what it does than those who would go on with it."""
FAR = 4.0
"""Less than that learned speeds reach by being wrong."""
ONLY_BY_NAME = define_message("machine.only_by_name", "takes only runs that are assigned to it by name")
NOTHING_NOW = define_message("machine.nothing_now", "no stage is available")
SLOTS_IN_USE = define_message("machine.slots_in_use", "all slots are in use")
COMES_SOON = define_message("machine.comes_soon", "more runs of %(stage)s are expected soon")
TAKES = define_message("machine.takes", "it takes runs of %(stage)s")
OTHERS_EARLIER = define_message("machine.others_earlier", "other machines should finish sooner")
NOTHING_WAITS = define_message("machine.nothing_waits", "the queues are empty")
NOT_LOOKED_YET = define_message("machine.not_looked_yet", "it has not checked the queues yet")
SPARE_JUST_STARTED = define_message(
    "machine.spare_just_started", "a spare machine that has just started waits for other machines"
)
JUST_TAKEN_IN = define_message(
    "machine.just_taken_in", "it has just rejoined and waits for the state of the other machines"
)
CROWDED = 7.0
"""So many runs of a stage wait in Redis for each slot: nearly all that may, and others stay in SQL."""
DOUBT = 2.0
"""A job is left to machines without a free slot only if they end it in so much less time."""
PATIENCE = 0.2
"""What is left for faster machines longer than foreseen by this part of the longest job here is taken."""
SOON_S = 5.0
"""For so long a machine waits for more of the stage in its batch that is on its way out of SQL."""


@dataclass(frozen=True)
class Choice:
    """The queues to take from now, as (stage, priority), first ones first, and why in a few words."""

    queues: tuple[tuple[str, str], ...]
    why: Message
    deferrals: Mapping[str, float] = field(default_factory=dict)
    """stage -> seconds in which others will have begun all that waits there, where it is left to them."""

    def due(self, now: float, before: Mapping[str, float]) -> Mapping[str, float]:
        """stage -> when others were to have begun what is left to them, as was foreseen when that began."""
        return {stage: before.get(stage, now + seconds) for stage, seconds in self.deferrals.items()}


def decide(view: View) -> Choice:
    """What the machine `view.me` listens to now."""
    me = view.peers[view.me]
    if not me.speed_profiles or me.reserved == "testing":
        return Choice((), ONLY_BY_NAME() if me.speed_profiles else NOTHING_NOW())
    if not me.free:
        return Choice((), SLOTS_IN_USE())
    view, priorities = _counted_on(view, me), _priorities(view, me)
    stages = _order(view, me, priorities)
    deferrals: dict[str, float] = {}
    waits = [stage for stage in stages if any(view.waiting.get((stage, p)) for p in priorities)]
    if waits and me.now not in waits and _comes_soon(view, me.now, waits[0]):
        return Choice(_queues((me.now,), priorities), COMES_SOON(stage=me.now), {waits[0]: 0.0})
    for stage in waits:
        done_s, begun_s = _elsewhere(view, me, stage)
        late = view.late_s.get(stage, 0.0) > patience_s(me)
        if seconds(me, stage) <= done_s or (late and done_s):
            return Choice(_queues((stage,), priorities), TAKES(stage=stage), deferrals)
        deferrals[stage] = begun_s
    # what comes next goes to who is done with it first
    listens = [s for s in stages if s not in waits and seconds(me, s) <= _elsewhere(view, me, s)[0]]
    return Choice(_queues(listens, priorities), OTHERS_EARLIER() if waits else NOTHING_WAITS(), deferrals)


def _counted_on(view: View, me: Peer) -> View:
    """What can be counted on: no machine that is for tests, no spare while it leaves work to others.

    Nor one for batch work where people wait, too.
    """
    primary = {
        stage
        for p in view.peers.values()
        if not p.joins_after_s and p.reserved != "testing" and p.free
        for stage in p.speed_profiles
    }

    def does(peer: Peer, stage: str) -> bool:
        early = view.waits_s.get(stage, 0.0) < peer.joins_after_s and stage in primary
        people = peer.reserved == BATCH and (view.count(stage, (INTERACTIVE,)) or not view.count(stage))
        return peer.reserved != "testing" and not early and not people

    peers = {
        peer.name: peer
        if peer.name == me.name or not (peer.joins_after_s or peer.reserved)
        else replace(
            peer, speed_profiles={s: profile for s, profile in peer.speed_profiles.items() if does(peer, s)}
        )
        for peer in view.peers.values()
    }
    return replace(view, peers=peers)


def seconds(peer: Peer, stage: str) -> float:
    """Of one more job of a stage on a machine, from its beginning there to its end."""
    mine = peer.running.get(stage, 0) + 1
    own = peer.speed_profiles[stage]
    beside = (
        _slowed(own, peer.speed_profiles[other], count)
        for other, count in peer.running.items()
        if other != stage and count and other in peer.speed_profiles
    )
    return peer.load_s.get(stage, 0.0) + own.seconds(mine) + sum(beside)


def patience_s(peer: Peer) -> float:
    """For how much longer than foreseen a machine leaves work to others."""
    return PATIENCE * max(profile.seconds(max(1, peer.slots)) for profile in peer.speed_profiles.values())


def _slowed(own: SpeedProfile, other: SpeedProfile, count: int) -> float:
    """What jobs of another model in the same batch add: each step reads its weights, too."""
    steps = own.tokens / other.tokens if own.tokens and other.tokens else 1.0
    return other.seconds(count) * min(steps, 4.0)


def rate(peer: Peer, stage: str) -> float:
    """Jobs a second with all slots at a stage; 0 where it cannot do it."""
    return peer.speed_profiles[stage].rate(max(1, peer.slots)) if stage in peer.speed_profiles else 0.0


def _advantage(peer: Peer, short: str, long: str) -> float:
    """How much better a machine is at the shorter stage than at the longer one."""
    if not rate(peer, long):
        return math.inf if rate(peer, short) else 0.0
    now = ADVANTAGE if peer.now == short else 1 / ADVANTAGE if peer.now == long else 1.0
    return now * rate(peer, short) / rate(peer, long)


def _ends_s(view: View, stage: str, peers: Sequence[Peer]) -> float:
    """Until these have done all that waits of a stage, the length of the last job included."""
    together = sum(rate(p, stage) for p in peers)
    in_hand = sum(p.remaining.get(stage, 0.0) for p in view.peers.values())
    more = in_hand if view.low_load else sum(p.slots for p in peers if rate(p, stage))
    return (view.count(stage) + more) / together if together else math.inf


def _needed(view: View, me: Peer, short: str, long: str) -> bool:
    """Whether the shorter stage would end later with this machine than the longer one without it."""
    apt = {p.name: _advantage(p, short, long) for p in view.peers.values()}
    first = [p for p in view.peers.values() if (apt[p.name], p.name) >= (apt[me.name], me.name)]
    rest = [p for p in view.peers.values() if p not in first]
    if first == [me] and _crowded(view, short, me.now):
        return True
    # who is far better at what it does than the next one would lose most by helping with the other stage
    far = apt[me.name] > FAR * max((apt[p.name] for p in rest), default=0.0)
    keep = SWITCH_LOW_LOAD if view.low_load or (far and me.now == short) else SWITCH
    stays = keep if me.now == long else 1 / keep if me.now == short else 1.0
    return _ends_s(view, long, rest) * stays <= _ends_s(view, short, first)


def _crowded(view: View, stage: str, now: str) -> bool:
    """Whether so much of a stage waits in Redis that others, which leave SQL with it, run out; until half."""
    waits = sum(view.waiting.get((stage, p), 0) for p in PRIORITIES)
    most = CROWDED * sum(p.slots for p in view.peers.values())
    return any(view.backlog.values()) and waits > (most / 2 if now == stage else most)


def _priorities(view: View, me: Peer) -> tuple[str, ...]:
    """People who wait go first, but every so often batch work does."""
    if me.reserved == BATCH:
        return (BATCH,)
    return PRIORITIES[::-1] if view.taken % BATCH_EVERY == BATCH_EVERY - 1 else PRIORITIES


def _order(view: View, me: Peer, priorities: Sequence[str]) -> list[str]:
    """The stages as this machine would take them; those first of which its first priority waits."""
    stages = sorted(me.speed_profiles, key=lambda s: -me.speed_profiles[s].seconds(max(1, me.slots)))
    free = (s for i, s in enumerate(stages) if not any(_needed(view, me, u, s) for u in stages[i + 1 :]))
    first = next(free, stages[-1])
    return sorted(stages, key=lambda s: (not view.waiting.get((s, priorities[0])), s != first))


def _comes_soon(view: View, now: str, instead: str) -> bool:
    """Whether to wait for more of the stage in the batch, on its way out of SQL, and not mix models."""
    on_its_way = any(view.backlog.get((now, p)) for p in PRIORITIES)
    people = view.waiting.get((instead, INTERACTIVE), 0) > 0
    return on_its_way and not people and view.late_s.get(instead, 0.0) <= SOON_S


def _elsewhere(view: View, me: Peer, stage: str) -> tuple[float, float]:
    """Until another machine would have done what waits of a stage, with doubts, and until it began that."""
    others = [p for p in view.peers.values() if p.name != me.name and stage in p.speed_profiles]
    if view.waits_s.get(stage, 0.0) < me.joins_after_s and any(
        not p.joins_after_s and p.free for p in others
    ):
        return 0.0, 0.0  # primary machines go first
    at_it = [p for p in others if p.running.get(stage) or not p.now]
    together, waiting = sum(rate(p, stage) for p in at_it), max(1, view.count(stage))
    best = (math.inf, math.inf)
    for peer in others:
        wait = 0.0 if waiting <= peer.free else waiting / (together if peer in at_it else rate(peer, stage))
        best = min(best, ((wait + seconds(peer, stage)) * (DOUBT if wait else 1.0), wait))
    return best


def _queues(stages: Sequence[str], priorities: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((s, p) for p in priorities for s in stages)
