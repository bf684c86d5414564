"""Plays scenarios in virtual time: `python -m bench.router.virtual_time --scenario NAME`."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.router.cost_model import CLUSTER_MODELS
from bench.router.lower_bound import bound_s
from bench.router.opinions_simulation import OpinionsSimulation
from bench.router.policies import BASELINES, BasePolicy, LearnedSpeeds, ProductPolicy
from bench.router.scenarios import SCENARIOS, Scenario, backlog, named
from bench.router.simulation import Run, Simulation


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which this part of them lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def returns(scenario: Scenario) -> tuple[str, float] | None:
    """The first machine that dies and comes back, and when it is back."""
    for name, changes in scenario.setting.changes.items():
        died = next((at for at, speed in changes if not speed), None)
        back = next((at for at, speed in changes if died is not None and at > died and speed), None)
        if back is not None:
            return name, back
    return None


def returned_s(scenario: Scenario, begun: Iterable[tuple[str, float]]) -> float | None:
    """Seconds from a dead machine's return until it works on something; `begun` are (machine, time)."""
    if (found := returns(scenario)) is None:
        return None
    name, back = found
    return min((at - back for machine, at in begun if machine == name and at >= back), default=float("inf"))


PRODUCT_POLICIES: dict[str, type[ProductPolicy]] = {"ours": ProductPolicy}
"""Policies of the product."""


@dataclass(frozen=True)
class Outcome:
    """What a simulation gave; seconds."""

    policy: str
    makespan_s: float
    bound_s: float
    """In which no schedule could do it, had all come at once."""
    p50_s: float
    p95_s: float
    """Of the time to grade: from submission until both stages are done."""
    done: Mapping[str, Mapping[str, int]]
    """machine -> stage -> runs."""
    runs: Sequence[Run]
    decisions: int = 0
    decision_ms: float = 0.0
    opinions: str = ""
    """What came of second opinions."""


def bound_of(scenario: Scenario) -> float:
    """Seconds in which no schedule does it, had all come at once and were all changes known."""
    of = scenario.setting
    return bound_s(of.cards, of.slots, scenario.arrivals, of.changes, typical=of.works)


def play(scenario: Scenario, policy: BasePolicy, *, opinions: bool = False) -> Outcome:
    """One simulation to its end, perhaps with second opinions on everything."""
    kind = OpinionsSimulation if opinions else Simulation
    simulation = kind(scenario.setting, scenario.arrivals, policy)
    simulation.finish()
    ends: dict[int, float] = {}
    for run in simulation.runs:
        ends[run.arrival] = max(ends.get(run.arrival, 0.0), run.done - run.came)
    times = list(ends.values())
    ours = policy if isinstance(policy, ProductPolicy) else None
    return Outcome(
        policy=f"{policy.name}, second opinions" if opinions else policy.name,
        makespan_s=max((run.done for run in simulation.runs), default=0.0),
        bound_s=bound_of(scenario),
        p50_s=quantile(times, 0.5),
        p95_s=quantile(times, 0.95),
        done={
            m: dict(Counter(r.stage for r in simulation.runs if r.machine == m)) for m in simulation.machines
        },
        runs=simulation.runs,
        decisions=ours.decisions if ours else 0,
        decision_ms=1000 * ours.spent_s / max(1, ours.decisions) if ours else 0.0,
        opinions=simulation.told() if isinstance(simulation, OpinionsSimulation) else "",
    )


def warm(scenario: Scenario) -> LearnedSpeeds:
    """What machines of this setting learn from a backlog of 200."""
    of = scenario.setting
    before = backlog(200, of.slots, of.seed + 1000, of.cluster_model)
    teacher = ProductPolicy(oracle=False)
    play(before, teacher)
    return teacher.said_by()


def line(outcome: Outcome) -> str:
    """A row of the table."""
    did = " ".join(f"{of.get('analysis', 0)}/{of.get('feedback', 0)}" for of in outcome.done.values())
    return (
        f"{outcome.policy:26} {outcome.makespan_s:7.0f} {outcome.makespan_s / outcome.bound_s:6.3f} "
        f"{outcome.p50_s:7.0f} {outcome.p95_s:7.0f}  {did:36}"
        + (f" {outcome.decisions} × {outcome.decision_ms:.2f} ms" if outcome.decisions else "")
        + (f" {outcome.opinions}" if outcome.opinions else "")
    )


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.router.virtual_time", description=__doc__)
    parser.add_argument("--scenario", nargs="*", default=["backlog400"], help="all, or names as lost1000")
    parser.add_argument(
        "--policies", nargs="*", default=["ours", *BASELINES], choices=[*PRODUCT_POLICIES, *BASELINES]
    )
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from 1 on")
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--cluster-model", default="own", choices=list(CLUSTER_MODELS))
    parser.add_argument("--learned", action="store_true", help="speeds are learned, not known")
    parser.add_argument("--second-opinions", action="store_true", help="ours also with second opinions")
    parser.add_argument("--release", default="any", choices=["any", "all", "everything"])
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table."""
    chosen = _options().parse_args(arguments)
    print(f"{'':26} {'last':>7} {'/bound':>6} {'p50':>7} {'p95':>7}  runs of analysis/feedback by machine")
    for name in SCENARIOS if "all" in chosen.scenario else chosen.scenario:
        for seed in range(1, chosen.seeds + 1):
            scenario = named(name, chosen.slots, seed, CLUSTER_MODELS[chosen.cluster_model])
            scenario = replace(scenario, setting=replace(scenario.setting, release=chosen.release))
            said = warm(scenario) if chosen.learned and not scenario.cold else {}
            print(f"{scenario.name}, seed {seed}, bound {bound_of(scenario):.0f} s")
            also = [
                (key, True) for key in chosen.policies if key in PRODUCT_POLICIES and chosen.second_opinions
            ]
            for key, opinions in [*((key, False) for key in chosen.policies), *also]:
                began = time.perf_counter()
                policy = (
                    BASELINES[key]()
                    if key in BASELINES
                    else PRODUCT_POLICIES[key](oracle=not chosen.learned, said=said)
                )
                outcome = play(scenario, policy, opinions=opinions)
                print(f"{line(outcome)} [{time.perf_counter() - began:.1f} s]", flush=True)


if __name__ == "__main__":
    main()
