"""The plan of who does what: best for every small cluster, never more than a machine's time."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.router.lower_bound import shares

NEAR = 1e-6


def _vertex_best(rates: dict[str, dict[str, float]], work: dict[str, float]) -> float:
    """The least makespan for two stages, by trying every machine as the one that does both."""
    names = sorted(rates, key=lambda m: -rates[m]["a"] / rates[m]["b"])
    best = float("inf")
    for split in range(len(names)):
        a = sum(rates[m]["a"] for m in names[:split])
        b = sum(rates[m]["b"] for m in names[split + 1 :])
        mine = rates[names[split]]
        # x of its time at a: (a + x mine_a) / work_a == (b + (1 - x) mine_b) / work_b
        x = (work["a"] * (b + mine["b"]) - work["b"] * a) / (work["b"] * mine["a"] + work["a"] * mine["b"])
        x = min(1.0, max(0.0, x))
        done = min((a + x * mine["a"]) / work["a"], (b + (1 - x) * mine["b"]) / work["b"])
        best = min(best, 1 / done) if done > 0 else best
    return best


speeds = st.floats(0.01, 2.0)
clusters = st.lists(st.tuples(speeds, speeds), min_size=1, max_size=6).map(
    lambda found: {f"m{i}": {"a": a, "b": b} for i, (a, b) in enumerate(found)}
)


@given(clusters, st.floats(0.5, 1000), st.floats(0.5, 1000))
def test_two_stages_are_shared_best(rates: dict[str, dict[str, float]], a: float, b: float) -> None:
    plan = shares(rates, {"a": a, "b": b})
    assert plan.makespan_s == pytest.approx(_vertex_best(rates, {"a": a, "b": b}), rel=1e-6)
    for stage, jobs in (("a", a), ("b", b)):
        done = sum(rates[m][stage] * plan.seconds[m].get(stage, 0.0) for m in rates)
        assert done >= jobs * (1 - NEAR)
    for machine in rates:
        assert sum(plan.seconds[machine].values()) <= plan.makespan_s * (1 + NEAR)


@given(
    clusters,
    st.lists(st.floats(0, 500), min_size=6, max_size=6),
    st.floats(1, 500),
)
def test_who_comes_free_too_late_takes_nothing_and_hides_nothing(
    rates: dict[str, dict[str, float]], first: list[float], jobs: float
) -> None:
    committed = dict(zip(rates, first, strict=False))
    plan = shares(rates, {"a": jobs, "b": jobs}, committed)
    work = {"a": jobs, "b": jobs}
    best = min(
        shares({m: rates[m] for m in some}, work, {m: committed[m] for m in some}).makespan_s
        for count in range(1, len(rates) + 1)
        for some in combinations(rates, count)
    )
    assert plan.makespan_s == pytest.approx(best, rel=1e-6)
    for machine, of in plan.seconds.items():
        if sum(of.values()) > NEAR:
            assert committed[machine] + sum(of.values()) <= plan.makespan_s * (1 + NEAR)


def test_the_ratio_of_speeds_decides_and_not_the_speed() -> None:
    """The machine that is faster at both does what it is comparatively better at."""
    rates = {"fast": {"analysis": 4.0, "feedback": 1.0}, "slow": {"analysis": 1.0, "feedback": 0.9}}
    plan = shares(rates, {"analysis": 100, "feedback": 30})
    assert plan.seconds["slow"]["analysis"] == 0
    assert plan.seconds["fast"]["analysis"] == pytest.approx(25)


def test_what_nobody_can_do_is_left_out() -> None:
    plan = shares({"one": {"a": 2.0}}, {"a": 10, "b": 5})
    assert (plan.makespan_s, plan.seconds) == (5, {"one": {"a": 5}})
    assert shares({"one": {"a": 2.0}}, {}).makespan_s == 0
    assert shares({}, {"a": 1}).makespan_s == 0
