"""Scenarios in virtual time for ways of routing: `python -m bench.cluster.simulate --scenario NAME`."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bench.cluster.bound import bound_s
from bench.cluster.measures import quantile, recognised_s, returned_s, waits
from bench.cluster.ours import Ours, Said
from bench.cluster.policies import OTHERS, Passive
from bench.cluster.scenarios import SCENARIOS, Scenario, backlog, named
from bench.cluster.world import Cluster, Run
from bench.cluster.worlds import WORLDS

__all__ = ["Outcome", "bound_of", "line", "main", "play", "quantile", "remarks", "warm"]

OWN_WAYS: dict[str, type[Ours]] = {"ours": Ours}
"""Ways that machines decide for themselves with the product's speeds."""


@dataclass(frozen=True)
class Outcome:
    """What a simulation gave; seconds."""

    policy: str
    makespan_s: float
    bound_s: float
    """In which no schedule could do it, had all come at once."""
    p50_s: float
    p95_s: float
    """Of the time to grade: from handing in until both stages are done."""
    done: Mapping[str, Mapping[str, int]]
    """machine -> stage -> runs."""
    runs: Sequence[Run]
    decisions: int = 0
    decision_ms: float = 0.0
    healths: Sequence[tuple[str, float, float]] = ()


def bound_of(scenario: Scenario) -> float:
    """Seconds in which no schedule does it, had all come at once and were all changes known."""
    of = scenario.setting
    return bound_s(of.cards, of.slots, scenario.hand_ins, of.changes, usual=of.works)


def play(scenario: Scenario, policy: Passive) -> Outcome:
    """One simulation to its end."""
    cluster = Cluster(scenario.setting, scenario.hand_ins, policy)
    cluster.finish()
    ends: dict[int, float] = {}
    for run in cluster.runs:
        ends[run.hand_in] = max(ends.get(run.hand_in, 0.0), run.done - run.came)
    times = list(ends.values())
    ours = policy if isinstance(policy, Ours) else None
    return Outcome(
        policy=policy.name,
        makespan_s=max((run.done for run in cluster.runs), default=0.0),
        bound_s=bound_of(scenario),
        p50_s=quantile(times, 0.5),
        p95_s=quantile(times, 0.95),
        done={m: dict(Counter(r.stage for r in cluster.runs if r.machine == m)) for m in cluster.machines},
        runs=cluster.runs,
        decisions=ours.decisions if ours else 0,
        healths=ours.healths if ours else (),
        decision_ms=1000 * ours.spent_s / max(1, ours.decisions) if ours else 0.0,
    )


def warm(scenario: Scenario) -> Said:
    """What machines of this setting learn from a backlog of 200."""
    of = scenario.setting
    before = backlog(200, of.slots, of.seed + 1000, of.world)
    teacher = Ours(oracle=False)
    play(before, teacher)
    return teacher.said_by()


def line(outcome: Outcome) -> str:
    """A row of the table."""
    did = " ".join(f"{of.get('analysis', 0)}/{of.get('feedback', 0)}" for of in outcome.done.values())
    return (
        f"{outcome.policy:26} {outcome.makespan_s:7.0f} {outcome.makespan_s / outcome.bound_s:6.3f} "
        f"{outcome.p50_s:7.0f} {outcome.p95_s:7.0f}  {did:36}"
        + (f" {outcome.decisions} × {outcome.decision_ms:.2f} ms" if outcome.decisions else "")
    )


def remarks(scenario: Scenario, outcome: Outcome) -> str:
    """What the scenario is about."""
    if {h.priority for h in scenario.hand_ins} == {"interactive", "batch"}:
        of = waits(outcome.runs)
        batch = max(r.done for r in outcome.runs if r.priority == "batch")
        return (
            f"slot p50 {of.slot_p50_s:.0f} s, p95 {of.slot_p95_s:.0f} s (residual {of.residual_s:.0f} s), "
            f"of a stage × {of.stretch_p50:.2f}, p95 × {of.stretch_p95:.2f}, "
            f"of a hand-in p95 × {of.whole_p95:.2f}; batch done {batch:.0f} s"
        )
    if (back := returned_s(scenario, [(r.machine, r.began) for r in outcome.runs])) is not None:
        return f"used {back:.0f} s after its return"
    recognised = recognised_s(scenario, outcome.healths)
    return "" if recognised is None or not outcome.healths else f"recognised after {recognised:.0f} s"


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster.simulate", description=__doc__)
    parser.add_argument("--scenario", nargs="*", default=["backlog400"], help="all, or names as lost1000")
    parser.add_argument("--policies", nargs="*", default=["ours", *OTHERS], choices=[*OWN_WAYS, *OTHERS])
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from 1 on")
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--world", default="own", choices=list(WORLDS))
    parser.add_argument("--learned", action="store_true", help="speeds are learned, not known")
    parser.add_argument("--release", default="any", choices=["any", "all", "everything"])
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table."""
    chosen = _options().parse_args(arguments)
    print(f"{'':26} {'last':>7} {'/bound':>6} {'p50':>7} {'p95':>7}  runs of analysis/feedback by machine")
    for name in SCENARIOS if "all" in chosen.scenario else chosen.scenario:
        for seed in range(1, chosen.seeds + 1):
            scenario = named(name, chosen.slots, seed, WORLDS[chosen.world])
            scenario = replace(scenario, setting=replace(scenario.setting, release=chosen.release))
            said = warm(scenario) if chosen.learned and not scenario.cold else {}
            print(f"{scenario.name}, seed {seed}, bound {bound_of(scenario):.0f} s")
            for key in chosen.policies:
                began = time.perf_counter()
                policy = (
                    OTHERS[key]() if key in OTHERS else OWN_WAYS[key](oracle=not chosen.learned, said=said)
                )
                outcome = play(scenario, policy)
                print(f"{line(outcome)} [{time.perf_counter() - began:.1f} s]", flush=True)
                if said_more := remarks(scenario, outcome):
                    print(f"{'':26} {said_more}")


if __name__ == "__main__":
    main()
