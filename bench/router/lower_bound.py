"""Lower bound of the makespan on the emulated machines, by a linear program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bench.router.cost_model import STAGES, Card, Work, rate
from bench.router.simulation import Arrival

Rates = Mapping[str, Mapping[str, float]]
"""machine -> stage -> jobs a second with all its slots at that stage; a stage it cannot do is left out."""
TINY = 1e-9
STEEPEST = 4
"""Turns for each column by the quick rule; it may go round in circles."""


@dataclass(frozen=True)
class Shares:
    """The plan: the seconds each machine spends on each stage, and when all is done."""

    seconds: Mapping[str, Mapping[str, float]]
    """machine -> stage -> seconds; for every machine and stage that was asked about."""
    makespan_s: float


def shares(rates: Rates, work: Mapping[str, float], committed_s: Mapping[str, float] | None = None) -> Shares:
    """How machines share `work` (stage -> jobs) so that the last job is done earliest.

    A machine is busy with other things for `committed_s` first. Work can be divided at will here, which real
    jobs cannot, so the makespan is a bound from below. A stage that no machine can do is left out.
    """
    first = dict.fromkeys(rates, 0.0) | dict(committed_s or {})
    taking = {m: {s: r for s, r in of.items() if r > 0 and work.get(s, 0.0) > 0} for m, of in rates.items()}
    needed = {s for of in taking.values() for s in of}
    plan, makespan = _solved(taking, work, first)
    # one that comes free when the others would be done would only hide how they share best
    while late := [m for m, of in taking.items() if of and first[m] > makespan - TINY and first[m] > 0]:
        without = {m: of for m, of in taking.items() if m not in late}
        if {s for of in without.values() for s in of} != needed:
            break
        taking = {m: without.get(m, {}) for m in taking}
        plan, makespan = _solved(taking, work, first)
    return Shares({m: {s: plan[m].get(s, 0.0) for s in of} for m, of in rates.items()}, makespan)


def _solved(
    rates: Rates, work: Mapping[str, float], first: Mapping[str, float]
) -> tuple[dict[str, dict[str, float]], float]:
    """The plan and the least T with first + sum of x <= T a machine and sum of rate x >= work a stage.

    Solved in its dual, where the origin is feasible: a price p for a job of each stage and q for a second of
    each machine; maximise work p + first q with rate p <= q for each pair, and q at most 1 in all. The x are
    the reduced costs of the pairs.
    """
    pairs = [(m, s) for m, of in rates.items() for s in of]
    columns = sorted({s for _, s in pairs}) + sorted({m for m, _ in pairs})
    at = {name: i for i, name in enumerate(columns)}
    stages = len({s for _, s in pairs})
    gain = [work[c] if i < stages else first[c] for i, c in enumerate(columns)]
    rows = []
    for machine, stage in pairs:
        row = [0.0] * len(columns)
        row[at[stage]], row[at[machine]] = rates[machine][stage], -1.0
        rows.append(row)
    rows.append([0.0 if i < stages else 1.0 for i in range(len(columns))])
    costs, makespan = simplex(rows, [0.0] * len(pairs) + [1.0], gain)
    plan: dict[str, dict[str, float]] = {m: {} for m in rates}
    for (machine, stage), value in zip(pairs, costs, strict=False):
        plan[machine][stage] = max(0.0, value)
    return plan, makespan


def simplex(
    rows: Sequence[Sequence[float]], most: Sequence[float], gain: Sequence[float]
) -> tuple[list[float], float]:
    """The dual values and the value of: maximise gain · y with rows · y <= most, y >= 0, where most >= 0.

    The steepest column first, which needs far fewer turns; after many of them Bland's rule, so that it ends
    although many rows have a zero on the right.
    """
    count, width = len(rows), len(gain)
    table = [
        [*row, *(1.0 if i == j else 0.0 for j in range(count)), bound]
        for i, (row, bound) in enumerate(zip(rows, most, strict=True))
    ]
    cost = [-g for g in gain] + [0.0] * (count + 1)
    basis = list(range(width, width + count))
    turns = 0
    while better := [j for j in range(width + count) if cost[j] < -TINY]:
        turns += 1
        enters = min(better, key=cost.__getitem__) if turns <= STEEPEST * (width + count) else better[0]
        ratios = [(row[-1] / row[enters], basis[i], i) for i, row in enumerate(table) if row[enters] > TINY]
        if not ratios:
            break  # cannot be: the prices of machines add up to 1
        _, _, leaves = min(ratios)
        pivot = table[leaves][enters]
        table[leaves] = [value / pivot for value in table[leaves]]
        for i, row in enumerate(table):
            if i != leaves and row[enters]:
                factor = row[enters]
                table[i] = [a - factor * b for a, b in zip(row, table[leaves], strict=True)]
        factor = cost[enters]
        cost = [a - factor * b for a, b in zip(cost, table[leaves], strict=True)]
        basis[leaves] = enters
    return cost[width : width + count], cost[-1]


TURNS = 50


def rates(cards: Mapping[str, Card], slots: int, works: Mapping[str, Work]) -> dict[str, dict[str, float]]:
    """machine -> stage -> jobs a second in its best batch of that stage, with the class's prefix kept."""
    return {
        m: {s: max(rate(card, w, n) for n in range(1, slots + 1)) for s, w in works.items()}
        for m, card in cards.items()
    }


def works_of(arrivals: Sequence[Arrival], typical: Mapping[str, Work] = STAGES) -> dict[str, Work]:
    """The usual work of each stage with the mean output of these."""
    found = {}
    for stage, work in typical.items():
        outputs = [h.output[stage] for h in arrivals if stage in h.output]
        if outputs:
            found[stage] = replace(work, output=round(sum(outputs) / len(outputs)))
    return found


def bound_s(
    cards: Mapping[str, Card],
    slots: int,
    arrivals: Sequence[Arrival],
    changes: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    typical: Mapping[str, Work] = STAGES,
) -> float:
    """Seconds by the linear program for all these, had they all come at once, in the best batches.

    `changes` of speed, machine -> (time, speed)s, are known from the beginning. Batches of two models are
    left out: a test tries them all.
    """
    works = works_of(arrivals, typical)
    counts = {s: float(sum(s in h.output for h in arrivals)) for s in works}
    speeds = rates(cards, slots, works)
    makespan = before = shares(speeds, counts).makespan_s
    for _ in range(TURNS if changes else 0):
        missing = {m: missing_s(of, makespan) for m, of in (changes or {}).items()}
        before, makespan = makespan, shares(speeds, counts, missing).makespan_s
        if abs(makespan - before) < 0.01:
            break
    return makespan


def missing_s(changes: Sequence[tuple[float, float]], until: float) -> float:
    """Seconds at usual speed that a machine lacks by then."""
    missing, since, speed = 0.0, 0.0, 1.0
    for at, after in [*changes, (until, 1.0)]:
        missing += max(0.0, min(at, until) - since) * (1 - speed)
        since, speed = max(since, min(at, until)), after
    return missing


def per_hour(cards: Mapping[str, Card], slots: int, typical: Mapping[str, Work] = STAGES) -> float:
    """Submissions of usual size an hour that no way of routing exceeds."""
    return 3600 * 1000 / shares(rates(cards, slots, typical), dict.fromkeys(typical, 1000.0)).makespan_s
