"""What a machine takes next: the plan, one model in a batch, what is left for faster ones, priorities."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from grading.cluster.guesses import with_guesses
from grading.cluster.left import Left
from grading.cluster.routing import BATCH, BATCH_EVERY, INTERACTIVE, PATIENCE_S, Choice, decide, planned
from grading.cluster.view import Pace, Peer, View

STAGES = ("analysis", "feedback")


def pace(alone_s: float, full_s: float, full: int = 8) -> Pace:
    return Pace(alone_s, full_s, full, seen=100)


SPARK = Peer("spark", 8, STAGES, paces={"analysis": pace(10, 50), "feedback": pace(100, 200)})
STUDIO = Peer("studio", 8, STAGES, paces={"analysis": pace(5, 30), "feedback": pace(40, 150)})


def view(me: str, *peers: Peer, analysis: int = 0, feedback: int = 0, **others: object) -> View:
    waiting = {("analysis", INTERACTIVE): analysis, ("feedback", INTERACTIVE): feedback}
    return View(me, {p.name: p for p in peers}, waiting, **others)  # type: ignore[arg-type]


def stages(seen: View) -> list[str]:
    return list(dict.fromkeys(stage for stage, _ in decide(seen).queues))


def test_a_backlog_is_shared_by_the_ratio_of_speeds() -> None:
    # spark: 0.16 and 0.04 a second; studio: 0.27 and 0.053, comparatively better at analysis
    peers = (SPARK, STUDIO)
    assert stages(view("studio", *peers, analysis=400, feedback=40)) == ["analysis"]
    # spark does some of both, and begins with what takes longer, so that the end is made of short jobs
    assert stages(view("spark", *peers, analysis=400, feedback=40)) == ["feedback"]


def test_a_machine_says_what_part_of_its_jobs_the_plan_makes_of_which_stage() -> None:
    seen = view("spark", SPARK, STUDIO, analysis=400, feedback=40)
    jobs = planned(seen).takes["spark"]
    share = round(100 * jobs["feedback"] / sum(jobs.values()))
    plan = f"the plan gives it feedback {share}%, analysis {100 - share}%"
    assert 0 < share < 100
    assert decide(seen).why == f"{plan}; it takes feedback"
    assert "analysis 100%;" in decide(view("studio", SPARK, STUDIO, analysis=400, feedback=40)).why


def test_an_empty_machine_begins_with_the_stage_that_leads_to_the_earliest_end() -> None:
    # comparatively best at analyses; with these it is busy until the end
    assert stages(view("studio", SPARK, STUDIO, analysis=400, feedback=60)) == ["analysis"]
    # not quite: a long feedback at the end would keep all waiting for the longest of its batch
    assert stages(view("studio", SPARK, STUDIO, analysis=400, feedback=90)) == ["feedback"]
    # with few analyses both begin with what takes long, and the analyses fill their batches as these empty
    assert stages(view("studio", SPARK, STUDIO, analysis=100, feedback=400)) == ["feedback"]


def test_a_machine_changes_its_model_only_for_a_gain_that_counts() -> None:
    """Each change costs a mixed batch, and what was measured is not so exact."""
    spark = replace(SPARK, running={"feedback": 8}, left={"feedback": 4.0})
    studio = replace(STUDIO, running={"analysis": 7}, left={"analysis": 4.0})
    assert stages(view("studio", spark, studio, analysis=100, feedback=60)) == ["analysis"]
    # one more that does only analyses: then the studio is needed for the other stage
    helper = Peer("helper", 8, ("analysis",), paces={"analysis": pace(4, 20)}, running={"analysis": 8})
    assert stages(view("studio", spark, studio, helper, analysis=600, feedback=200)) == ["feedback"]


def test_changes_of_health_that_say_little_turn_no_plan() -> None:
    for health, first in ((0.8, "analysis"), (1.3, "analysis")):
        studio = replace(STUDIO, paces={s: replace(p, health=health) for s, p in STUDIO.paces.items()})
        plans = [planned(view("spark", SPARK, one, analysis=400, feedback=60)) for one in (studio, STUDIO)]
        assert plans[0] == plans[1]
        assert plans[0].first["studio"] == first
    slow = replace(STUDIO, paces={s: replace(p, health=0.33) for s, p in STUDIO.paces.items()})
    assert planned(view("spark", SPARK, slow, analysis=400, feedback=60)).makespan_s > plans[0].makespan_s


def test_what_is_known_of_few_jobs_is_taken_for_slower() -> None:
    """The first jobs to end are short ones: a machine that has done few of a stage looks quick at it."""
    paces = {"analysis": pace(5, 30), "feedback": replace(pace(40, 130), seen=4)}
    few = replace(STUDIO, name="few", paces=paces)
    many = replace(STUDIO, name="many")
    seen = view("few", few, many, analysis=400, feedback=75)
    assert planned(seen).first == {"few": "analysis", "many": "feedback"}
    sure = replace(few, paces={s: replace(p, seen=100) for s, p in paces.items()})
    assert planned(view("few", sure, many, analysis=400, feedback=75)).first["few"] == "feedback"


MEASURED = {
    "spark-1": {"analysis": (30, 103, 67), "feedback": (225, 233, 22)},
    "studio-1": {"analysis": (20, 63, 29), "feedback": (78, 178, 48)},
    "spark-2": {"analysis": (30, 102, 67), "feedback": (250, 238, 25)},
    "studio-2": {"analysis": (30, 95, 28), "feedback": (115, 257, 40)},
}
"""machine -> stage -> seconds of a job alone, among 16, and jobs seen, as a cluster once measured itself."""


@pytest.mark.parametrize("waiting", [0, 400, 1000])
def test_ways_that_are_equal_but_for_the_end_are_told_apart(waiting: int) -> None:
    """Else chance decides: a cluster that ends with feedbacks took 9 % longer than the bound, not 4."""
    peers = [
        Peer(name, 16, STAGES, paces={s: Pace(a, f, 16, seen=seen) for s, (a, f, seen) in of.items()})
        for name, of in MEASURED.items()
    ]
    plan = planned(view("studio-1", *peers, analysis=waiting, feedback=waiting))
    assert [name for name, stage in plan.first.items() if stage == "analysis"] == ["studio-2"]


def test_a_machine_that_has_nothing_to_do_prepares_for_a_class() -> None:
    """The first jobs of many come before anybody has heard of the others."""
    paces = {"analysis": pace(10, 100), "feedback": pace(20, 60)}
    busy = replace(SPARK, paces=paces, running={"feedback": 2}, left={"feedback": 1.0})
    plan = planned(view("studio", busy, STUDIO))
    assert plan.first == {"spark": "feedback", "studio": "analysis"}
    # what is at work keeps to it while little waits
    studio = replace(STUDIO, running={"feedback": 1}, left={"feedback": 1.0})
    assert planned(view("studio", busy, studio, analysis=3)).first["studio"] == "feedback"


def test_the_model_in_the_batch_is_kept_while_the_plan_has_work_for_it() -> None:
    rates = {"analysis": pace(10, 50), "feedback": pace(10, 50)}
    alone = Peer("one", 8, STAGES, paces=rates)
    for running in STAGES:
        busy = replace(alone, running={running: 3}, left={running: 1.5})
        assert stages(view("one", busy, analysis=50, feedback=50)) == [running]


def test_a_machine_without_work_of_its_own_helps() -> None:
    full = replace(STUDIO, running={"feedback": 8}, left={"feedback": 8.0})
    assert stages(view("spark", SPARK, full, feedback=40)) == ["feedback"]


def test_the_last_job_is_left_to_who_is_done_with_it_earlier() -> None:
    nearly = replace(STUDIO, running={"feedback": 2}, left={"feedback": 1.0})
    left = Choice((), "others are done with it earlier", {"feedback": 0.0})
    assert decide(view("spark", SPARK, nearly, feedback=1)) == left
    assert stages(view("studio", SPARK, nearly, feedback=1)) == ["feedback"]


def test_a_job_is_not_left_for_ever() -> None:
    assert stages(view("spark", SPARK, STUDIO, feedback=1, late_s={"feedback": PATIENCE_S - 0.1})) == []
    late = {"feedback": PATIENCE_S + 0.1}
    assert stages(view("spark", SPARK, STUDIO, feedback=1, late_s=late)) == ["feedback"]


def test_what_goes_as_was_foreseen_is_left_until_the_end() -> None:
    """Once half of that time had passed a slow machine took the last jobs, and all waited for it."""
    left, now = Left(), 0.0
    slow = replace(SPARK, paces={"feedback": pace(500, 800)})
    studio = replace(STUDIO, running={"feedback": 8}, left={"feedback": 4.0})
    every = 1 / STUDIO.paces["feedback"].rate(8)
    for waits in (4, 3, 2, 1):
        for _ in range(3):
            seen = view("spark", slow, studio, feedback=waits, left_s=left.left_s(now))
            choice = decide(replace(seen, late_s=left.late_s(now)))
            assert not choice.queues
            left.note(now, ["feedback"], choice)
            now += every / 3
    # nobody takes the last one
    late = left.late_s(now + PATIENCE_S + 0.1)
    assert stages(view("spark", slow, studio, feedback=1, late_s=late)) == ["feedback"]


def test_the_time_that_was_foreseen_begins_again_once_something_was_taken_or_no_slot_is_free() -> None:
    left, takes = Left(), Choice((("feedback", INTERACTIVE),), "")
    leaves = Choice((), "", {"feedback": 30.0})
    left.note(0.0, ["analysis", "feedback"], leaves)
    left.note(20.0, ["analysis", "feedback"], Choice((), "", {"feedback": 12.0}))
    assert left.left_s(40.0) == {"analysis": 40.0, "feedback": 40.0}
    assert left.late_s(40.0) == {"feedback": 10.0}
    left.note(50.0, ["analysis", "feedback"], takes)
    assert (left.left_s(50.0), left.late_s(50.0)) == ({"analysis": 50.0}, {})
    left.note(60.0, ["analysis", "feedback"], leaves)
    assert (left.left_s(60.0)["feedback"], left.late_s(60.0)["feedback"]) == (0.0, -30.0)
    left.note(61.0, [], leaves)
    assert (left.left_s(61.0), left.late_s(61.0)) == ({}, {})


def test_an_idle_cluster_listens_so_that_the_fastest_takes_what_comes() -> None:
    assert stages(view("studio", SPARK, STUDIO)) == ["analysis", "feedback"] or stages(
        view("studio", SPARK, STUDIO)
    ) == ["feedback", "analysis"]
    assert stages(view("spark", SPARK, STUDIO)) == []
    assert decide(view("spark", SPARK, STUDIO)).why == "nothing waits"


def test_equal_machines_both_listen() -> None:
    twin = replace(STUDIO, name="twin")
    for me in ("studio", "twin"):
        assert set(stages(view(me, STUDIO, twin))) == set(STAGES)


def test_nobody_starts_while_all_slots_are_in_use_or_nothing_can_be_done() -> None:
    full = replace(SPARK, running={"analysis": 8})
    assert decide(view("spark", full, analysis=5)).queues == ()
    broken = replace(SPARK, stages=(), paces={})
    assert decide(view("spark", broken, analysis=5)).queues == ()


def test_a_spare_waits_for_primary_machines_with_free_slots() -> None:
    spare = replace(STUDIO, joins_after_s=10.0)
    assert stages(view("studio", SPARK, spare, analysis=3, waits_s={"analysis": 9.0})) == []
    assert stages(view("studio", SPARK, spare, analysis=3, waits_s={"analysis": 11.0})) == ["analysis"]
    full = replace(SPARK, running={"analysis": 8}, left={"analysis": 4.0})
    assert stages(view("studio", full, spare, analysis=3, waits_s={"analysis": 1.0})) == ["analysis"]


def test_reserved_machines() -> None:
    batch = replace(SPARK, reserved="batch")
    queues = decide(view("spark", batch, analysis=5)).queues
    assert {priority for _, priority in queues} == {BATCH}
    assert decide(view("spark", replace(SPARK, reserved="testing"), analysis=5)).queues == ()


def test_people_first_but_batch_work_does_not_starve() -> None:
    first = [
        decide(view("spark", SPARK, analysis=50, taken=taken)).queues[0][1]
        for taken in range(2 * BATCH_EVERY)
    ]
    assert first.count(BATCH) == 2
    assert first.count(INTERACTIVE) == 2 * (BATCH_EVERY - 1)


def test_a_model_that_must_be_loaded_counts() -> None:
    cold = replace(STUDIO, load_s={"feedback": 300.0})
    assert "feedback" in stages(view("spark", SPARK, cold, feedback=1))


def test_machines_for_tests_are_not_counted_on() -> None:
    fast = Peer("fast", 8, STAGES, reserved="testing", paces=dict.fromkeys(STAGES, pace(1, 2)))
    assert stages(view("spark", SPARK, fast, feedback=1)) == ["feedback"]
    assert stages(view("spark", SPARK, fast, feedback=400)) == ["feedback"]
    spare = replace(SPARK, joins_after_s=60.0)
    assert stages(view("spark", spare, fast, feedback=1)) == ["feedback"]


def test_what_people_wait_for_is_not_left_to_machines_for_batch_work() -> None:
    fast = Peer("fast", 8, STAGES, reserved=BATCH, paces=dict.fromkeys(STAGES, pace(1, 2)))
    assert stages(view("spark", SPARK, fast, feedback=1)) == ["feedback"]
    waiting = {("feedback", INTERACTIVE): 100, ("feedback", BATCH): 1}
    assert stages(replace(view("spark", SPARK, fast), waiting=waiting)) == ["feedback"]
    only_batch = {("feedback", BATCH): 1}
    assert "feedback" not in stages(replace(view("spark", SPARK, fast), waiting=only_batch))


def test_a_machine_for_batch_work_goes_where_batch_work_waits() -> None:
    mine = Peer("mine", 8, STAGES, reserved=BATCH, paces=dict.fromkeys(STAGES, pace(10, 50)))
    waiting = {("feedback", INTERACTIVE): 100, ("analysis", BATCH): 5}
    busy = replace(mine, running={"feedback": 1}, left={"feedback": 1.0})
    for me in (mine, busy):
        assert decide(replace(view("mine", me), waiting=waiting)).queues == (("analysis", BATCH),)


def test_batch_work_is_not_left_to_machines_that_have_people_to_serve() -> None:
    slow = Peer("slow", 8, STAGES, reserved=BATCH, paces=dict.fromkeys(STAGES, pace(50, 200)))
    fast = Peer("fast", 8, STAGES, paces=dict.fromkeys(STAGES, pace(20, 80)), running={"feedback": 6})
    waiting = {("feedback", INTERACTIVE): 400, ("feedback", BATCH): 40}
    assert decide(replace(view("slow", slow, fast), waiting=waiting)).queues == (("feedback", BATCH),)


def test_a_primary_machine_leaves_nothing_to_a_spare_that_does_not_join_yet() -> None:
    spare = replace(STUDIO, joins_after_s=60.0)
    for count in (1, 400):
        assert stages(view("spark", SPARK, spare, feedback=count, waits_s={"feedback": 9.0})) == ["feedback"]
        assert stages(view("studio", SPARK, spare, feedback=count, waits_s={"feedback": 9.0})) == []
    assert stages(view("spark", SPARK, spare, feedback=1, waits_s={"feedback": 61.0})) == []


def test_people_of_another_stage_go_before_batch_work_of_the_model_in_the_batch() -> None:
    rates = dict.fromkeys(STAGES, pace(10, 50))
    one = Peer("one", 8, STAGES, paces=rates, running={"analysis": 3}, left={"analysis": 1.5})
    two = Peer("two", 8, STAGES, paces=rates, running={"feedback": 8}, left={"feedback": 4.0})
    waiting = {("analysis", BATCH): 50, ("feedback", INTERACTIVE): 50}
    for taken in range(2 * BATCH_EVERY):
        first = decide(replace(view("one", one, two), waiting=waiting, taken=taken)).queues[0]
        its_turn = taken % BATCH_EVERY == BATCH_EVERY - 1
        assert first == (("analysis", BATCH) if its_turn else ("feedback", INTERACTIVE))


def test_a_stage_at_which_nobody_works_yet_is_left_to_the_machine_whose_role_it_is() -> None:
    """All are idle and a class comes: the first to hear of it would have begun what another is meant for."""
    slow = Peer("slow", 16, STAGES, paces={"analysis": pace(8, 95, 16), "feedback": pace(115, 260, 16)})
    fast = Peer("fast", 16, STAGES, paces={"analysis": pace(5, 65, 16), "feedback": pace(78, 175, 16)})
    spark = {"analysis": pace(16, 100, 16), "feedback": pace(228, 216, 16)}
    sparks = [Peer(f"spark-{n}", 16, STAGES, paces=spark, running={"feedback": n}) for n in (1, 2)]
    seen = view("fast", fast, slow, *sparks, analysis=400, feedback=400)
    assert planned(seen).first == {
        "fast": "feedback", "slow": "analysis", "spark-1": "feedback", "spark-2": "feedback"
    }  # fmt: skip
    assert stages(seen) == ["feedback"]
    # with no slot free it begins nothing soon, and people wait
    full = replace(slow, running={"feedback": 16}, left={"feedback": 8.0})
    assert stages(view("fast", fast, full, *sparks, analysis=400, feedback=400)) == ["analysis"]


def test_no_machine_stands_still_for_ever_whatever_the_cluster_is_like() -> None:
    rng = random.Random(5)
    for _ in range(400):
        stages_ = [f"s{i}" for i in range(rng.randint(1, 3))]
        peers = {}
        for i in range(rng.randint(1, 5)):
            able = tuple(rng.sample(stages_, rng.randint(1, len(stages_))))
            running = {s: rng.randint(0, 3) for s in stages_ if rng.random() < 0.4}
            known = {
                s: replace(pace(rng.uniform(0.01, 500), rng.uniform(0.01, 900)), health=rng.choice((0.1, 1)))
                for s in able
                if rng.random() < 0.8
            }
            peers[f"m{i}"] = Peer(
                f"m{i}",
                rng.randint(1, 6),
                able,
                joins_after_s=rng.choice((0, 0, 30.0)),
                reserved=rng.choice(("", "", "", "batch", "testing")),
                paces=known,
                running=running,
                left={s: n * rng.random() for s, n in running.items()},
            )
        waiting = {(s, p): rng.choice((0, 0, 1, 40)) for s in stages_ for p in (INTERACTIVE, BATCH)}
        late = dict.fromkeys(stages_, 1e9)
        for me in peers.values():
            seen = View(me.name, with_guesses(peers), waiting, waits_s=late, left_s=late, late_s=late)
            may = {"": (INTERACTIVE, BATCH), "batch": (BATCH,)}.get(me.reserved, ())
            if me.free and any(waiting[s, p] for s in me.stages for p in may):
                assert any(waiting[kind] for kind in decide(seen).queues), seen


def test_a_machine_waits_a_moment_for_its_own_stage_and_does_not_mix() -> None:
    """What waits in SQL comes soon: the queue of a stage may be empty for a second."""
    busy = replace(STUDIO, running={"analysis": 5}, left={"analysis": 2.0})
    waiting = {("feedback", BATCH): 20}
    backlog = {("analysis", BATCH): 900, ("feedback", BATCH): 100}
    seen = View("studio", {"studio": busy}, waiting, backlog)  # alone, so it is meant for both
    assert stages(seen) == ["analysis"]
    assert stages(replace(seen, left_s={"feedback": PATIENCE_S + 0.1})) == ["feedback"]
    people = {("feedback", INTERACTIVE): 20}
    assert stages(replace(seen, waiting=people)) == ["feedback"]
