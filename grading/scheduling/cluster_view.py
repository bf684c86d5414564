"""What a machine knows of the cluster when it decides what to take; values only, seconds are durations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

INTERACTIVE, BATCH = "interactive", "batch"
PRIORITIES = (INTERACTIVE, BATCH)


@dataclass(frozen=True)
class SpeedProfile:
    """How fast one machine does one stage, for jobs of usual size, as it measured itself.

    Between one at once and `full` at once, seconds of a job grow linearly: a step of a batch reads the
    weights once and each one's own cache.
    """

    alone_s: float
    """Seconds of a job with nobody beside it."""
    full_s: float
    """Seconds of a job among `full` at once."""
    full: int
    health: float = 1.0
    """Speed of the last half minute over what is usual here; 0.33: three times slower, of heat perhaps."""
    tokens: float = 0.0
    """Output tokens of a usual job; 0: not known."""
    seen: float = 0.0
    """Jobs behind these figures; 0: a guess."""

    def seconds(self, at_once: int) -> float:
        """Of a job that has `at_once` in its batch, itself included, as things are now."""
        share = (at_once - 1) / (self.full - 1) if self.full > 1 else 0.0
        return max(0.001, self.alone_s + share * (self.full_s - self.alone_s)) / self.health

    def rate(self, at_once: int) -> float:
        """Jobs a second with always `at_once` in the batch."""
        return at_once / self.seconds(at_once)


@dataclass(frozen=True, kw_only=True)
class RoutingFacts:
    """What a machine tells of itself for routing: heartbeats carry these fields by name, a `Peer` has them.

    Their types are numbers, texts, truth values, and mappings of texts to one of these.
    """

    joins_after_s: float = 0.0
    """A spare leaves what has waited for less to the primary machines."""
    reserved: str = ""
    """`batch`: it takes batch work only; `testing`: nothing but what is sent to it by name."""
    running: Mapping[str, int] = field(default_factory=dict)
    """stage -> runs in hand."""
    remaining: Mapping[str, float] = field(default_factory=dict)
    """stage -> jobs' worth of work that is left of those in hand."""
    load_s: Mapping[str, float] = field(default_factory=dict)
    """stage -> seconds until its model is loaded; none or 0 where it is."""

    def facts(self) -> dict[str, Any]:
        """These fields by name."""
        return {one.name: getattr(self, one.name) for one in fields(RoutingFacts)}


@dataclass(frozen=True)
class Peer(RoutingFacts):
    """A machine, as its last heartbeat tells; the decider itself is one, too."""

    name: str
    slots: int
    """Generations at once that it takes now; see `grading/scheduling/concurrency.py`."""
    stages: tuple[str, ...] = ()
    """Stages it can do now: those of a drained, dead or broken one are left out."""
    speed_profiles: Mapping[str, SpeedProfile] = field(default_factory=dict)
    """Of its stages whose speed is known; `grading.scheduling.speed_profile.with_guesses` has the others."""

    @property
    def busy(self) -> int:
        """Runs in hand."""
        return sum(self.running.values())

    @property
    def now(self) -> str:
        """The stage of most runs in its batch; empty where it has none."""
        return max((s for s in self.running if self.running[s]), key=lambda s: self.running[s], default="")

    @property
    def free(self) -> int:
        """Runs it would begin at once."""
        return max(0, self.slots - self.busy)


@dataclass(frozen=True)
class View:
    """All that a decision is made of."""

    me: str
    peers: Mapping[str, Peer]
    """Live machines by name, the decider included."""
    waiting: Mapping[tuple[str, str], int]
    """(stage, priority) -> runs in the queues of Redis, which can be taken now."""
    backlog: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(stage, priority) -> runs that still wait in SQL."""
    waits_s: Mapping[str, float] = field(default_factory=dict)
    """stage -> how long the oldest in its queues has waited since it was sent."""
    late_s: Mapping[str, float] = field(default_factory=dict)
    """stage -> for how much longer the decider leaves it to others than was foreseen when that began."""
    taken: int = 0
    """Runs this machine has taken so far: every so many is batch work, whatever waits."""

    def count(self, stage: str, priorities: tuple[str, ...] = PRIORITIES) -> int:
        """Runs of a stage that wait, in Redis and in SQL."""
        return sum(of.get((stage, p), 0) for of in (self.waiting, self.backlog) for p in priorities)

    @property
    def low_load(self) -> bool:
        """Whether less waits than there are slots."""
        waits = sum(self.waiting.values()) + sum(self.backlog.values())
        return waits < sum(peer.slots for peer in self.peers.values())
