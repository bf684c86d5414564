"""What the emulated cluster is made of: hand-ins, runs, machines, and what machines see of each other."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bench.cluster.asking import Request
from bench.cluster.cards import Card, Work
from bench.cluster.costs import Box
from bench.cluster.worlds import OWN, World
from grading.scheduling.cluster_view import Peer

PRIORITIES = ("interactive", "batch")
Key = tuple[str, str]
"""(stage, priority): a queue."""


@dataclass(frozen=True)
class HandIn:
    """What is to be graded: when it comes, who waits for it, and how much each stage will write."""

    at: float
    output: Mapping[str, int]
    """stage -> output tokens."""
    priority: str = "batch"
    course: str = "course"


@dataclass(eq=False)
class Run:
    """One stage of one hand-in."""

    hand_in: int
    stage: str
    priority: str
    request: Request
    came: float
    """When it was handed in."""
    sent: float = 0.0
    """When it came into its queue."""
    began: float = 0.0
    done: float = math.inf
    machine: str = ""


@dataclass(frozen=True)
class Beat:
    """What a machine said of itself at some moment."""

    at: float
    peer: Peer | None
    """Only where the policy wants to know."""


@dataclass(frozen=True)
class Look:
    """What a machine saw of the cluster at some moment."""

    at: float = -math.inf
    beats: Mapping[str, Beat] = field(default_factory=dict)
    lengths: Mapping[Key, int] = field(default_factory=dict)
    oldest_s: Mapping[str, float] = field(default_factory=dict)
    backlog: Mapping[Key, int] = field(default_factory=dict)


@dataclass
class Machine:
    """A worker and its box."""

    name: str
    card: Card
    box: Box
    slots: int
    runs: dict[str, Run] = field(default_factory=dict)
    bound: deque[Run] = field(default_factory=deque)
    """Runs that were bound to it before it had a slot."""
    beat: Beat | None = None
    look: Look = Look()
    taken: int = 0
    since: Counter[Key] = field(default_factory=Counter)
    """Runs taken from each queue since it looked last."""
    listens: tuple[Key, ...] = ()
    """Queues it blocks on."""

    @property
    def alive(self) -> bool:
        """Whether it works at all, which the others learn by its beats only."""
        return self.box.speed > 0

    @property
    def free(self) -> int:
        """Slots that are free."""
        return max(0, self.slots - len(self.runs)) if self.alive else 0

    def running(self) -> Counter[str]:
        """stage -> runs in hand."""
        return Counter(run.stage for run in self.runs.values())


@dataclass(frozen=True)
class Setting:
    """The machines and what happens to them."""

    slots: int = 16
    world: World = OWN
    changes: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """machine -> (time, speed)s; speed 0: dead."""
    seed: int = 1
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """machine -> models loaded at the start; those that are not named have both."""
    release: Literal["any", "all", "everything"] = "any"
    """Rounds leave SQL while any stage's queue has room, as in the product; or all have; or at once."""
    deepest: int = 8
    """No queue gets longer than this many times the live slots, as in `grading.broker.dispatch`."""

    @property
    def cards(self) -> Mapping[str, Card]:
        """machine -> card."""
        return self.world.cards

    @property
    def works(self) -> Mapping[str, Work]:
        """stage -> its usual job."""
        return self.world.works
