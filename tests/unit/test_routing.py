"""What a machine takes next: the plan, one model in a batch, what is left for faster ones, priorities."""

from __future__ import annotations

from dataclasses import replace

from grading.cluster.routing import BATCH, BATCH_EVERY, INTERACTIVE, PATIENCE_S, decide
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
    assert stages(view("spark", SPARK, nearly, feedback=1)) == []
    assert stages(view("studio", SPARK, nearly, feedback=1)) == ["feedback"]


def test_a_job_is_not_left_for_ever() -> None:
    assert stages(view("spark", SPARK, STUDIO, feedback=1, left_s={"feedback": PATIENCE_S - 0.1})) == []
    late = {"feedback": PATIENCE_S + 0.1}
    assert stages(view("spark", SPARK, STUDIO, feedback=1, left_s=late)) == ["feedback"]


def test_an_idle_cluster_listens_so_that_the_fastest_takes_what_comes() -> None:
    assert stages(view("studio", SPARK, STUDIO)) == ["analysis", "feedback"] or stages(
        view("studio", SPARK, STUDIO)
    ) == ["feedback", "analysis"]
    assert stages(view("spark", SPARK, STUDIO)) == []


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
