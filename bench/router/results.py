"""Values and tables of one run of the benchmark, in emulated seconds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.router.lower_bound import bound_s
from bench.router.scenarios import Scenario, backlog
from bench.router.simulation import Arrival

OURS = "ours"
OPINIONS = "second-opinions"
"""Ours, with second opinions on everything."""
PRODUCT = (OURS, OPINIONS)
STUCK_S = 1800.0


@dataclass(frozen=True)
class Plan:
    """A scenario, and the speed at which it is played."""

    scenario: Scenario
    factor: float
    at_once: int = 64
    """Requests a client has under way at the most."""
    learn: int = 0
    """Submissions of usual size that are worked off before, so that whoever learns has learned."""

    @property
    def before(self) -> Sequence[Arrival]:
        """Those."""
        of = self.scenario.setting
        return backlog(self.learn, self.slots, of.seed + 1000, of.cluster_model).arrivals

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
    """A submission that is through; `at` is when it came."""

    number: int
    at: float
    ended: float
    ok: bool = True

    @property
    def took(self) -> float:
        """From submission to the last answer."""
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
    opinions: Sequence[float] = ()
    """When each second opinion came."""
    first_opinion: float = 0.0
    """When the first second opinion was sent: until then nothing of them can delay a grade."""
    early: int = 0
    """Runs of second opinions that were sent before the last submission was graded."""
    given_back: int = 0
    """Runs of second opinions that machines gave back as a run of grading came."""

    @property
    def makespan(self) -> float:
        """When the last one was through."""
        return max((one.ended for one in self.ended), default=0.0)

    @property
    def failed(self) -> int:
        """How many never got both answers."""
        return sum(not one.ok for one in self.ended)

    def took(self, quantile: float) -> float:
        """Seconds from submission to grade, of so large a part of all."""
        times = sorted(one.took for one in self.ended)
        if len(times) < 2:
            return times[0] if times else 0.0
        return statistics.quantiles(times, n=100, method="inclusive")[round(quantile * 100) - 1]


HEADS = ("scenario", "way", "makespan s", "× bound", "p50 s", "p95 s", "interactive p95 s", "failed", "cores")
KNOWN = "× bound, changes known"
"""A column where something happens to machines."""
GIVEN, GIVEN_AT = "second opinions", "the last one at s"
SENT_AT = "the first one sent at s"
EARLY, BACK = "sent before the last grade", "given back"
OF_OPINIONS = (GIVEN, GIVEN_AT, SENT_AT, EARLY, BACK)
"""Columns where there are second opinions."""


@dataclass(frozen=True)
class ScenarioResult:
    """One plan and what each way made of it, in emulated seconds."""

    plan: Plan
    outcomes: Sequence[Outcome]

    @property
    def bound_s(self) -> float:
        """In less nobody grades all of it, had it come at once."""
        of = self.plan.scenario
        return bound_s(of.setting.cards, self.plan.slots, of.arrivals, typical=of.setting.works)

    @property
    def at_once(self) -> bool:
        """Whether everything came at the beginning."""
        return all(one.at <= 0 for one in self.plan.scenario.arrivals)

    def rows(self) -> list[dict[str, Any]]:
        """A row a way."""
        return [self._row(one) for one in self.outcomes]

    def _row(self, outcome: Outcome) -> dict[str, Any]:
        waiting = self._interactive(outcome)
        return {
            "scenario": self.plan.scenario.name,
            "way": outcome.way,
            "makespan s": round(outcome.makespan),
            "× bound": round(outcome.makespan / self.bound_s, 3) if self.at_once else None,
            "p50 s": round(outcome.took(0.5)),
            "p95 s": round(outcome.took(0.95)),
            "interactive p95 s": round(waiting.took(0.95)) if waiting.ended else None,
            "failed": outcome.failed,
            "cores": round(outcome.cpu, 2),
            **self._changed(outcome),
            **_opinions(outcome),
        }

    def _changed(self, outcome: Outcome) -> dict[str, Any]:
        """Where something happens to machines."""
        changes = self.plan.scenario.setting.changes
        if not changes:
            return {}
        of = self.plan.scenario
        known = bound_s(of.setting.cards, self.plan.slots, of.arrivals, changes, typical=of.setting.works)
        return {KNOWN: round(outcome.makespan / known, 3) if self.at_once else None}

    def _interactive(self, outcome: Outcome) -> Outcome:
        """Only those of people who wait, where others do not."""
        arrivals = self.plan.scenario.arrivals
        if len({one.priority for one in arrivals}) < 2:
            return Outcome(outcome.way, ())
        mine = [one for one in outcome.ended if arrivals[one.number].priority == "interactive"]
        return Outcome(outcome.way, mine)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "scenario": self.plan.scenario.name,
            "arrivals": len(self.plan.scenario.arrivals),
            "slots": self.plan.slots,
            "factor": self.plan.factor,
            "at_once": self.plan.at_once,
            "learned_from": self.plan.learn,
            "seed": self.plan.scenario.setting.seed,
            "bound_s": round(self.bound_s, 1),
            "ways": [
                {**row, "wall_s": round(one.wall_s, 1), "done": one.done}
                for row, one in zip(self.rows(), self.outcomes, strict=True)
            ],
        }


def _opinions(outcome: Outcome) -> dict[str, Any]:
    if outcome.way != OPINIONS:
        return {}
    last = round(max(outcome.opinions, default=0.0))
    return {
        GIVEN: len(outcome.opinions),
        GIVEN_AT: last,
        SENT_AT: round(outcome.first_opinion),
        EARLY: outcome.early,
        BACK: outcome.given_back,
    }


def table(played: Sequence[ScenarioResult]) -> list[str]:
    """Lines of a Markdown table."""
    rows: list[Mapping[str, Any]] = [row for one in played for row in one.rows()]
    heads = (*HEADS, *(head for head in (KNOWN, *OF_OPINIONS) if any(head in row for row in rows)))
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]
    return [*lines, *(f"| {' | '.join(_cell(row.get(head)) for head in heads)} |" for row in rows)]


def _cell(value: Any) -> str:
    return "–" if value is None else str(value)
