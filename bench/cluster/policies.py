"""Ways of routing to compare with: the notes' pinning, fixed roles, and what balancers do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.cluster.bound import rates
from bench.cluster.cards import STAGES
from bench.cluster.world import PRIORITIES, Cluster, Key, Machine, Run, Setting
from grading.scheduling.cluster_view import Peer

HOME = {
    "dgx-spark-1": "analysis",
    "dgx-spark-2": "analysis",
    "mac-studio-1": "feedback",
    "mac-studio-2": "feedback",
}


_HOMES: dict[tuple[str, int], dict[str, str]] = {}


def homes(setting: Setting) -> dict[str, str]:
    """machine -> its home stage: those of `HOME`; elsewhere the one it does best beside the others."""
    key = setting.world.name, setting.slots
    if key not in _HOMES:
        of = rates(setting.cards, setting.slots, setting.works)
        all_ = {s: sum(r[s] for r in of.values()) for s in setting.works}
        best = {m: max(r, key=lambda s, r=r: r[s] / all_[s]) for m, r in of.items()}  # type: ignore[misc]
        _HOMES[key] = HOME if set(best) == set(HOME) else best
    return _HOMES[key]


@dataclass
class Passive:
    """The parts of a policy that most do not need."""

    name: str = ""

    def bind(self, cluster: Cluster, run: Run) -> str | None:
        """Nothing is bound early."""
        return None

    def queues(self, cluster: Cluster, machine: Machine) -> tuple[Key, ...]:
        """Nothing is taken from the common queues."""
        return ()

    def peer(self, cluster: Cluster, machine: Machine) -> Peer | None:
        """Nothing is told."""
        return None

    def looked(self, cluster: Cluster, machine: Machine) -> None:
        """Nothing is learned."""

    def began(self, cluster: Cluster, machine: Machine, run: Run) -> None:
        """Nothing is remembered."""

    def ended(self, cluster: Cluster, machine: Machine, run: Run) -> None:
        """Nothing is remembered."""


def _all(*stages: str) -> tuple[Key, ...]:
    return tuple((s, p) for p in PRIORITIES for s in stages)


@dataclass
class HomeFirst(Passive):
    """Late binding: a machine with a free slot takes its home stage, else the other one."""

    name: str = "late binding, home first"

    def queues(self, cluster: Cluster, machine: Machine) -> tuple[Key, ...]:
        """Home first."""
        home = homes(cluster.setting)[machine.name]
        return _all(home, *(s for s in STAGES if s != home))


@dataclass
class Pinned(Passive):
    """The notes: the primary pair, analysis on the Spark and feedback on the Mac; spares idle."""

    name: str = "pinned to the first pair"

    def queues(self, cluster: Cluster, machine: Machine) -> tuple[Key, ...]:
        """The home stage, on primaries."""
        return _all(homes(cluster.setting)[machine.name]) if machine.name.endswith("1") else ()


@dataclass
class Bound(Passive):
    """Binds each run when it comes, to the machine with the smallest key; ties by lot."""

    key: Callable[[Cluster, Machine, Run], float] = lambda cluster, machine, run: 0.0

    def bind(self, cluster: Cluster, run: Run) -> str | None:
        """The machine with the smallest key of those that are there."""
        alive = [m for m in cluster.machines.values() if m.alive] or list(cluster.machines.values())
        return min(alive, key=lambda m: (self.key(cluster, m, run), cluster.rng.random())).name


@dataclass
class FixedRoles(Passive):
    """Analysis on Sparks, feedback on Macs, in turns, bound when they come."""

    name: str = "fixed roles, round-robin"
    turn: dict[str, int] = field(default_factory=dict)

    def bind(self, cluster: Cluster, run: Run) -> str | None:
        """The next one of this role."""
        home = homes(cluster.setting)
        able = [m for m in cluster.machines if home[m] == run.stage and cluster.machines[m].alive]
        able = able or [m for m in cluster.machines if home[m] == run.stage] or list(cluster.machines)
        self.turn[run.stage] = self.turn.get(run.stage, -1) + 1
        return able[self.turn[run.stage] % len(able)]


def in_hand(cluster: Cluster, machine: Machine, run: Run) -> float:
    """Runs that a machine has and that wait for it."""
    return len(machine.runs) + len(machine.bound)


def same_in_hand(cluster: Cluster, machine: Machine, run: Run) -> float:
    """The same of this run's stage only: a balancer that counts for each model apart."""
    mine = [*machine.runs.values(), *machine.bound]
    return sum(r.stage == run.stage for r in mine)


def shortest_queue() -> Bound:
    """Join the shortest queue of all four."""
    return Bound("join shortest queue", in_hand)


def least_busy() -> Bound:
    """As litellm's least-busy: fewest requests in flight, counted for each model apart."""
    return Bound("least busy, a model", same_in_hand)


def shuffle() -> Bound:
    """By lot."""
    return Bound("random shuffle")


OTHERS: Mapping[str, Callable[[], Passive]] = {
    "home": HomeFirst,
    "pinned": Pinned,
    "fixed": FixedRoles,
    "jsq": shortest_queue,
    "busy": least_busy,
    "shuffle": shuffle,
}
