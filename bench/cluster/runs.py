"""Values of one run of the benchmark: what is put in, and what came of it, in emulated seconds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.cluster.scenarios import Scenario, backlog
from bench.cluster.world import HandIn

OURS = "ours"
STUCK_S = 1800.0


@dataclass(frozen=True)
class Plan:
    """A scenario, and the speed at which it is played."""

    scenario: Scenario
    factor: float
    at_once: int = 64
    """Requests a client has under way at the most."""
    learn: int = 0
    """Hand-ins of usual size that are worked off before, so that whoever learns has learned."""

    @property
    def before(self) -> Sequence[HandIn]:
        """Those."""
        of = self.scenario.setting
        return backlog(self.learn, self.slots, of.seed + 1000, of.world).hand_ins

    @property
    def slots(self) -> int:
        """Generations at once of each machine."""
        return self.scenario.setting.slots

    @property
    def stuck_s(self) -> float:
        """Real seconds without one that ends, after which the rest is given up."""
        return max(20.0, STUCK_S / self.factor)


@dataclass(frozen=True)
class Ended:
    """A hand-in that is through; `at` is when it came."""

    number: int
    at: float
    ended: float
    ok: bool = True

    @property
    def took(self) -> float:
        """From hand-in to the last answer."""
        return self.ended - self.at


@dataclass(frozen=True)
class Outcome:
    """What one way of routing made of a plan."""

    way: str
    ended: Sequence[Ended]
    done: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """machine -> how requests ended there -> how many."""
    cpu: float = 0.0
    """Cores that everything together used, the emulated machines included."""
    wall_s: float = 0.0

    @property
    def makespan(self) -> float:
        """When the last one was through."""
        return max((one.ended for one in self.ended), default=0.0)

    @property
    def failed(self) -> int:
        """How many never got both answers."""
        return sum(not one.ok for one in self.ended)

    def took(self, quantile: float) -> float:
        """Seconds from hand-in to grade, of so large a part of all."""
        times = sorted(one.took for one in self.ended)
        if len(times) < 2:
            return times[0] if times else 0.0
        return statistics.quantiles(times, n=100, method="inclusive")[round(quantile * 100) - 1]
