"""The cluster models on which ways of routing are compared: what is special in each of them holds."""

from __future__ import annotations

import random

import pytest

from bench.router.cost_model import CLUSTER_MODELS, OWN, TUNED, job_s, rate, step_s
from bench.router.lower_bound import per_hour
from bench.router.policies import HomeFirst, ProductPolicy, homes
from bench.router.scenarios import backlog
from bench.router.simulation import Setting
from bench.router.virtual_time import bound_of, play

STAGES = ("analysis", "feedback")


@pytest.mark.parametrize("name", CLUSTER_MODELS)
def test_late_binding_works_a_class_off_in_every_world_and_never_beats_the_bound(name: str) -> None:
    scenario = backlog(60, 16, 1, CLUSTER_MODELS[name])
    outcome = play(scenario, HomeFirst())
    assert len(outcome.runs) == 120
    assert bound_of(scenario) < outcome.makespan_s < 4 * bound_of(scenario)


@pytest.mark.parametrize("name", TUNED)
def test_long_jobs_first_by_comparative_advantage_beats_home_stages(name: str) -> None:
    scenario = backlog(200, 16, 1, CLUSTER_MODELS[name])
    assert play(scenario, ProductPolicy()).makespan_s < 0.96 * play(scenario, HomeFirst()).makespan_s


def test_rules_are_tuned_on_two_worlds_and_three_others_judge() -> None:
    assert len(CLUSTER_MODELS) == 5
    assert set(TUNED) < set(CLUSTER_MODELS)


def test_the_other_world_has_the_figures_of_its_own_formulas() -> None:
    """Written out here once more; 893 an hour is what that emulator's own program says."""
    other = CLUSTER_MODELS["other"]
    spark, work = other.cards["dgx-spark-1"], other.works["analysis"]
    alone = step_s(spark, {work.model: 1}, {work.model: 2413 * 98_304})
    read = work.model.weights(1) + 2413 * 98_304
    assert alone == pytest.approx(read / 273e9 / 0.65)
    prompt = work.model.read_flop(805, 1008) / spark.read_power(16)
    assert prompt == pytest.approx(805 * (2 * 2.7e9 + 4 * 1410.5 * 32 * 128 * 48) / 60e12)
    assert per_hour(other.cards, 16, other.works) == pytest.approx(893, rel=0.01)


def test_two_models_in_a_batch_step_one_after_the_other_in_the_other_world() -> None:
    other = CLUSTER_MODELS["other"]
    mac, (qwen, gemma) = other.cards["mac-studio-1"], (other.works[s].model for s in STAGES)
    caches = {qwen: 1e9, gemma: 2e9}
    apart = sum(step_s(mac, {m: 4}, {m: caches[m]}) for m in (qwen, gemma))
    assert step_s(mac, {qwen: 4, gemma: 4}, caches) == pytest.approx(apart)


def test_a_batch_beyond_four_gains_nothing_in_the_flat_world() -> None:
    flat = CLUSTER_MODELS["flat"]
    for card in flat.cards.values():
        for work in flat.works.values():
            four, sixteen = rate(card, work, 4), rate(card, work, 16)
            assert sixteen == pytest.approx(four, rel=0.03)
            assert rate(card, work, 1) < 0.85 * four
    # the same cards gain without that
    assert rate(OWN.cards["dgx-spark-1"], OWN.works["feedback"], 16) > 3 * rate(
        flat.cards["dgx-spark-1"], flat.works["feedback"], 16
    )


def test_lengths_have_a_long_tail_in_the_long_world_and_none_in_the_other() -> None:
    rng, long, other = random.Random(1), CLUSTER_MODELS["long"], CLUSTER_MODELS["other"]
    assert long.works["feedback"].output == 5 * long.works["analysis"].output
    tails = [long.output(rng, "feedback") for _ in range(4000)]
    assert sum(tails) / len(tails) == pytest.approx(2000, rel=0.05)
    assert sum(n > 5000 for n in tails) > 100
    assert max(tails) <= 8000
    assert {960 <= other.output(rng, "analysis") <= 1440 for _ in range(1000)} == {True}


def test_homes_come_from_speeds_where_machines_are_others() -> None:
    sparks = dict.fromkeys(("dgx-spark-1", "dgx-spark-2", "dgx-spark-3"), "feedback")
    assert homes(Setting(cluster_model=CLUSTER_MODELS["one-mac"])) == {**sparks, "mac-studio-1": "analysis"}
    mac = CLUSTER_MODELS["one-mac"].cards["mac-studio-1"]
    assert job_s(mac, OWN.works["analysis"], 16) < job_s(mac, OWN.works["feedback"], 16)


def test_second_opinions_come_after_grading_and_take_nothing_from_it() -> None:
    scenario = backlog(3, 4, seed=1)
    alone = play(scenario, ProductPolicy(oracle=True))
    beside = play(scenario, ProductPolicy(oracle=True), opinions=True)
    assert [run.done for run in beside.runs] == [run.done for run in alone.runs]
    assert beside.opinions.startswith("6 second opinions until ")
