import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from bench.router.cost_model import ANALYSIS, CARDS, STAGES, Card, Work, job_s, prefill_s, rate, step_s
from bench.router.lower_bound import bound_s, works_of
from bench.router.policies import BASELINES, HomeFirst, ProductPolicy
from bench.router.scenarios import SCENARIOS, backlog
from bench.router.simulation import Arrival, Setting
from bench.router.virtual_time import PRODUCT_POLICIES, Outcome, play, returned_s


def summary(outcome: Outcome) -> list[tuple[str, float, float]]:
    return [(run.machine, run.began, run.done) for run in outcome.runs]


TRIES = 400


def mixed_rates(card: Card, batch: Mapping[str, int], works: Mapping[str, Work]) -> dict[str, float]:
    """stage -> jobs a second with always this many of each stage in the batch.

    In a second each one that decodes gets 1/step tokens for the part of it that is not spent on prompts.
    """
    total = sum(batch.values())
    cache = {
        works[s].model: n * works[s].model.cache(works[s].prompt + works[s].output / 2)
        for s, n in batch.items()
    }
    step = step_s(card, {works[s].model: n for s, n in batch.items() if n}, cache)
    # jobs of a stage end at n / output a step; each brings a new prompt
    prompts = sum(
        n / work.output * prefill_s(card, work.model, work.prompt - work.shared, total, work.shared)
        for work, n in ((works[s], n) for s, n in batch.items())
    )
    return {s: n / works[s].output / (step + prompts) for s, n in batch.items()}


def bound_by_search_s(cards: Mapping[str, Card], slots: int, arrivals: Sequence[Arrival]) -> float:
    """The same bound over all batches, mixed and small ones too, by scanning the price of a job.

    With a price for a job of each stage no machine earns more a second than with its best batch; the work is
    worth no less than all machines earn until the end. The best prices give the bound (duality).
    """
    works = works_of(arrivals)
    first, second = works
    counts = {s: sum(s in h.output for h in arrivals) for s in works}
    pairs = [(a, b) for a in range(slots + 1) for b in range(slots + 1 - a) if a + b]
    earns = {
        card: [mixed_rates(card, {first: a, second: b}, works) for a, b in pairs]
        for card in set(cards.values())
    }
    best = 0.0
    for i in range(TRIES + 1):
        # what all work of a stage is worth, so that both stages matter alike
        price = {first: i / TRIES / counts[first], second: (1 - i / TRIES) / counts[second]}
        most = {
            c: max(sum(price[s] * r for s, r in of.items()) for of in table) for c, table in earns.items()
        }
        best = max(best, 1.0 / sum(most[card] for card in cards.values()))
    return best


@pytest.mark.parametrize("slots", [1, 8, 16])
def test_the_linear_program_is_within_a_per_cent_of_what_any_batch_gives(slots):
    arrivals = backlog(50, slots, 1).arrivals
    bound = bound_s(CARDS, slots, arrivals)
    # at 8 a Mac is quicker with 7 at once: its efficiency falls until then
    assert 0.99 * bound < bound_by_search_s(CARDS, slots, arrivals) < 1.0001 * bound


def test_mixed_batches_are_worth_less_than_their_parts_one_after_the_other():
    for card in CARDS.values():
        mixed = mixed_rates(card, {"analysis": 8, "feedback": 8}, STAGES)
        used = sum(mixed[s] / rate(card, work, 16) for s, work in STAGES.items())
        assert used < 1


@pytest.mark.parametrize("key", [*PRODUCT_POLICIES, *BASELINES])
def test_every_way_grades_all_and_none_beats_the_bound(key):
    scenario = backlog(40, 8, 1)
    outcome = play(scenario, {**PRODUCT_POLICIES, **BASELINES}[key]())
    assert all(run.began >= run.came and run.done < math.inf and run.machine for run in outcome.runs)
    assert sum(sum(of.values()) for of in outcome.done.values()) == 80
    assert outcome.makespan_s > outcome.bound_s


@pytest.mark.parametrize("key", ["ours", *BASELINES])
def test_every_way_grades_all_although_a_machine_dies(key):
    scenario = backlog(40, 8, 1)
    changes = {"mac-studio-1": ((30.0, 0.0), (200.0, 1.0))}
    scenario = replace(scenario, setting=replace(scenario.setting, changes=changes))
    outcome = play(scenario, {**PRODUCT_POLICIES, **BASELINES}[key]())
    assert all(run.done < math.inf for run in outcome.runs)
    in_dead = [r for r in outcome.runs if r.machine == "mac-studio-1" and 30 < r.done < 200]
    assert not in_dead


def test_the_same_seed_gives_the_same_run():
    one, again, other = (summary(play(backlog(24, 4, seed), ProductPolicy())) for seed in (5, 5, 6))
    assert one == again != other


def test_known_speeds_are_used():
    scenario = backlog(120, 16, 1)
    ours = play(scenario, ProductPolicy()).makespan_s
    assert ours < play(scenario, BASELINES["jsq"]()).makespan_s * 0.75
    assert ours < play(scenario, BASELINES["pinned"]()).makespan_s * 0.75


def test_learned_speeds_come_near_the_true_ones_and_can_be_kept():
    one = backlog(40, 8, 1)
    alone = tuple(replace(h, output={"analysis": h.output["analysis"]}) for h in one.arrivals)
    teacher = ProductPolicy(oracle=False)
    did = play(replace(one, arrivals=alone), teacher).done
    for machine, stages in did.items():
        if stages.get("analysis", 0) >= 8:
            profile = teacher.learners[machine].speed_profiles(1e6, 8)["analysis"]
            assert profile.full_s == pytest.approx(job_s(CARDS[machine], ANALYSIS, 8), rel=0.3)
    pupil = ProductPolicy(oracle=False, said=teacher.said_by())
    play(backlog(1, 8, 1), pupil)
    assert all(
        pupil.learners[m].speed_profiles(0.0, 8)
        for m, stages in did.items()
        if stages.get("analysis", 0) >= 8
    )


@pytest.mark.parametrize(("release", "most"), [("all", 2), ("any", 4), ("everything", 5)])
def test_rounds_wait_in_sql_until_queues_have_room(release, most):
    seen: list[int] = []

    class Watching(HomeFirst):
        def queues(self, simulation, machine):
            seen.append(max(len(q) for q in simulation.queues.values()))
            return super().queues(simulation, machine)

    scenario = backlog(80, 4, 1)
    play(replace(scenario, setting=replace(scenario.setting, release=release, deepest=4)), Watching())
    assert 0.5 * most < max(seen) / 16 <= most


def test_a_lost_machine_is_used_again():
    scenario = backlog(80, 16, 1)
    changes = {"mac-studio-1": ((100.0, 0.0), (150.0, 1.0))}
    scenario = replace(scenario, setting=replace(scenario.setting, changes=changes))
    outcome = play(scenario, ProductPolicy())
    back = returned_s(scenario, [(run.machine, run.began) for run in outcome.runs])
    assert back is not None
    assert back < 15
    without = bound_s(CARDS, 16, scenario.arrivals)
    # the fastest Mac, away for 50 s, does a third of the work
    assert without + 10 < outcome.bound_s < without + 25
    assert outcome.makespan_s > outcome.bound_s


def test_scenarios_are_there_and_come_from_their_seed():
    for make in SCENARIOS.values():
        one, again, other = make(16, 1), make(16, 1), make(16, 2)
        assert one == again != other
        assert all(isinstance(h, Arrival) and h.at >= 0 for h in one.arrivals)
        assert isinstance(one.setting, Setting)
