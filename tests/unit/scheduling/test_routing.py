"""What a machine takes next: long jobs and comparative advantage, what is left to others, priorities."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

from grading.domain.messages import Message
from grading.scheduling.cluster_view import Peer, SpeedProfile, View
from grading.scheduling.routing import (
    BATCH,
    BATCH_EVERY,
    CROWDED,
    INTERACTIVE,
    SOON_S,
    Choice,
    decide,
    patience_s,
)
from grading.scheduling.speed_estimates import with_guesses

STAGES = ("analysis", "feedback")


def profile(alone_s: float, full_s: float, full: int = 8) -> SpeedProfile:
    return SpeedProfile(alone_s, full_s, full, seen=100)


SPARK = Peer("spark", 8, STAGES, speed_profiles={"analysis": profile(10, 50), "feedback": profile(100, 200)})
STUDIO = Peer("studio", 8, STAGES, speed_profiles={"analysis": profile(5, 30), "feedback": profile(40, 150)})


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


def test_one_machine_keeps_a_stage_that_crowds_redis_from_keeping_the_others_in_sql() -> None:
    """Where nobody is better at it, all did the long jobs, until no more of these could leave SQL."""
    slow = replace(SPARK, speed_profiles={"analysis": profile(5, 30), "feedback": profile(50, 300)})
    fast = replace(STUDIO, speed_profiles={"analysis": profile(5, 30), "feedback": profile(40, 290)})
    many, backlog = round(CROWDED * 16) + 1, {(s, BATCH): 900 for s in STAGES}
    seen = {name: view(name, slow, fast, analysis=many, feedback=40) for name in ("spark", "studio")}
    before = {name: stages(one)[0] for name, one in seen.items()}
    crowded = {name: stages(replace(one, backlog=backlog))[0] for name, one in seen.items()}
    assert before == dict.fromkeys(seen, "feedback")
    assert crowded == {"spark": "analysis", "studio": "feedback"}
    at_it = replace(slow, running={"analysis": 7}, remaining={"analysis": 4.0})
    half = view("spark", at_it, fast, analysis=many // 2 + 2, feedback=40)
    assert stages(replace(half, backlog=backlog)) == ["analysis"]


def test_a_machine_without_work_of_its_own_helps() -> None:
    full = replace(STUDIO, running={"feedback": 8}, remaining={"feedback": 8.0})
    assert stages(view("spark", SPARK, full, feedback=40)) == ["feedback"]


def test_the_last_job_is_left_to_who_is_done_with_it_earlier() -> None:
    nearly = replace(STUDIO, running={"feedback": 2}, remaining={"feedback": 1.0})
    choice = decide(view("spark", SPARK, nearly, feedback=1))
    assert (str(choice.why), choice.deferrals) == ("other machines should finish sooner", {"feedback": 0.0})
    # with a slot free it is the first to be done with the next analysis
    assert {stage for stage, _ in choice.queues} == {"analysis"}
    assert stages(view("studio", SPARK, nearly, feedback=1)) == ["feedback"]


def test_a_job_is_not_left_for_ever() -> None:
    patience = patience_s(SPARK)
    assert stages(view("spark", SPARK, STUDIO, feedback=1, late_s={"feedback": patience - 0.1})) == []
    late = {"feedback": patience + 0.1}
    assert stages(view("spark", SPARK, STUDIO, feedback=1, late_s=late)) == ["feedback"]


def test_equal_machines_both_listen() -> None:
    twin = replace(STUDIO, name="twin")
    for me in ("studio", "twin"):
        assert set(stages(view(me, STUDIO, twin))) == set(STAGES)


def test_nobody_starts_while_all_slots_are_in_use_or_nothing_can_be_done() -> None:
    full = replace(SPARK, running={"analysis": 8})
    assert decide(view("spark", full, analysis=5)).queues == ()
    broken = replace(SPARK, stages=(), speed_profiles={})
    assert decide(view("spark", broken, analysis=5)).queues == ()


def test_a_spare_waits_for_primary_machines_with_free_slots() -> None:
    spare = replace(STUDIO, joins_after_s=10.0)
    assert stages(view("studio", SPARK, spare, analysis=3, waits_s={"analysis": 9.0})) == []
    assert stages(view("studio", SPARK, spare, analysis=3, waits_s={"analysis": 11.0})) == ["analysis"]
    full = replace(SPARK, running={"analysis": 8}, remaining={"analysis": 4.0})
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
    fast = Peer("fast", 8, STAGES, reserved="testing", speed_profiles=dict.fromkeys(STAGES, profile(1, 2)))
    assert stages(view("spark", SPARK, fast, feedback=1)) == ["feedback"]
    assert stages(view("spark", SPARK, fast, feedback=400)) == ["feedback"]
    spare = replace(SPARK, joins_after_s=60.0)
    assert stages(view("spark", spare, fast, feedback=1)) == ["feedback"]


def test_what_people_wait_for_is_not_left_to_machines_for_batch_work() -> None:
    fast = Peer("fast", 8, STAGES, reserved=BATCH, speed_profiles=dict.fromkeys(STAGES, profile(1, 2)))
    assert stages(view("spark", SPARK, fast, feedback=1)) == ["feedback"]
    waiting = {("feedback", INTERACTIVE): 100, ("feedback", BATCH): 1}
    assert stages(replace(view("spark", SPARK, fast), waiting=waiting)) == ["feedback"]
    only_batch = {("feedback", BATCH): 1}
    assert "feedback" not in stages(replace(view("spark", SPARK, fast), waiting=only_batch))


def test_a_machine_for_batch_work_goes_where_batch_work_waits() -> None:
    mine = Peer("mine", 8, STAGES, reserved=BATCH, speed_profiles=dict.fromkeys(STAGES, profile(10, 50)))
    waiting = {("feedback", INTERACTIVE): 100, ("analysis", BATCH): 5}
    busy = replace(mine, running={"feedback": 1}, remaining={"feedback": 1.0})
    for me in (mine, busy):
        assert decide(replace(view("mine", me), waiting=waiting)).queues == (("analysis", BATCH),)


def test_batch_work_is_not_left_to_machines_that_have_people_to_serve() -> None:
    slow = Peer("slow", 8, STAGES, reserved=BATCH, speed_profiles=dict.fromkeys(STAGES, profile(50, 200)))
    fast = Peer(
        "fast", 8, STAGES, speed_profiles=dict.fromkeys(STAGES, profile(20, 80)), running={"feedback": 6}
    )
    waiting = {("feedback", INTERACTIVE): 400, ("feedback", BATCH): 40}
    assert decide(replace(view("slow", slow, fast), waiting=waiting)).queues == (("feedback", BATCH),)


def test_a_primary_machine_leaves_nothing_to_a_spare_that_does_not_join_yet() -> None:
    spare = replace(STUDIO, joins_after_s=60.0)
    for count in (1, 400):
        assert stages(view("spark", SPARK, spare, feedback=count, waits_s={"feedback": 9.0})) == ["feedback"]
        assert stages(view("studio", SPARK, spare, feedback=count, waits_s={"feedback": 9.0})) == []
    assert "feedback" not in stages(view("spark", SPARK, spare, feedback=1, waits_s={"feedback": 61.0}))


def test_people_of_another_stage_go_before_batch_work_of_the_model_in_the_batch() -> None:
    rates = dict.fromkeys(STAGES, profile(10, 50))
    one = Peer("one", 8, STAGES, speed_profiles=rates, running={"analysis": 3}, remaining={"analysis": 1.5})
    two = Peer("two", 8, STAGES, speed_profiles=rates, running={"feedback": 8}, remaining={"feedback": 4.0})
    waiting = {("analysis", BATCH): 50, ("feedback", INTERACTIVE): 50}
    for taken in range(2 * BATCH_EVERY):
        first = decide(replace(view("one", one, two), waiting=waiting, taken=taken)).queues[0]
        its_turn = taken % BATCH_EVERY == BATCH_EVERY - 1
        assert first == (("analysis", BATCH) if its_turn else ("feedback", INTERACTIVE))


def test_a_machine_changes_its_model_only_for_a_gain_that_counts() -> None:
    """Each change costs a mixed batch, and measured speeds of equal machines differ a little."""
    twins = [replace(STUDIO, name=name) for name in ("one", "two")]
    for now in STAGES:
        batches = (now, "feedback" if now == "analysis" else "analysis")
        busy = [replace(p, running={s: 7}, remaining={s: 4.0}) for p, s in zip(twins, batches, strict=True)]
        for me in busy:
            assert stages(view(me.name, *busy, analysis=500, feedback=100)) == [me.now]


def test_short_jobs_get_a_machine_before_they_would_be_what_all_wait_for() -> None:
    busy = [replace(p, running={"feedback": 7}, remaining={"feedback": 4.0}) for p in (SPARK, STUDIO)]
    for analysis, taken in ((10, "feedback"), (4000, "analysis")):
        assert stages(view("studio", *busy, analysis=analysis, feedback=100)) == [taken]


def test_a_machine_alone_does_the_long_jobs_first() -> None:
    assert stages(view("spark", SPARK, analysis=400, feedback=10)) == ["feedback"]
    assert str(decide(view("spark", SPARK, analysis=400, feedback=10)).why) == "it takes runs of feedback"


def test_when_others_were_to_have_begun_it_stays_as_first_foreseen_until_it_is_left_no_more() -> None:
    deferring = Choice((), Message(), {"analysis": 5.0, "feedback": 30.0})
    due = deferring.due(0.0, {})
    assert due == {"analysis": 5.0, "feedback": 30.0}
    assert Choice((), Message(), {"feedback": 12.0}).due(20.0, due) == {"feedback": 30.0}
    assert Choice((("feedback", INTERACTIVE),), Message()).due(21.0, due) == {}


def test_an_idle_cluster_listens_so_that_the_fastest_takes_what_comes() -> None:
    assert set(stages(view("studio", SPARK, STUDIO))) == set(STAGES)
    assert stages(view("spark", SPARK, STUDIO)) == []
    assert str(decide(view("spark", SPARK, STUDIO)).why) == "the queues are empty"


def test_batch_work_of_another_stage_gets_its_turn_although_people_wait() -> None:
    waiting = {("feedback", INTERACTIVE): 50, ("analysis", BATCH): 50}
    first = [
        decide(replace(view("spark", SPARK), waiting=waiting, taken=taken)).queues[0]
        for taken in range(BATCH_EVERY)
    ]
    assert first == [("feedback", INTERACTIVE)] * (BATCH_EVERY - 1) + [("analysis", BATCH)]


def test_a_machine_waits_a_moment_for_its_own_stage_and_does_not_mix() -> None:
    """What waits in SQL comes soon: the queue of a stage may be empty for a second."""
    busy = replace(STUDIO, running={"analysis": 5}, remaining={"analysis": 2.0})
    waiting = {("feedback", BATCH): 20}
    backlog = {("analysis", BATCH): 900, ("feedback", BATCH): 100}
    seen = View("studio", {"studio": busy}, waiting, backlog)
    assert stages(seen) == ["analysis"]
    late = decide(seen).due(0.0, {})["feedback"] + SOON_S + 0.1
    assert stages(replace(seen, late_s={"feedback": late})) == ["feedback"]
    people = {("feedback", INTERACTIVE): 20}
    assert stages(replace(seen, waiting=people)) == ["feedback"]


def clusters() -> Iterator[tuple[dict[str, Peer], dict[tuple[str, str], int]]]:
    """Of any kind: slow, broken, reserved and spare machines, some with no known speed."""
    rng = random.Random(5)
    for _ in range(400):
        stages_ = [f"s{i}" for i in range(rng.randint(1, 3))]
        peers = {}
        for i in range(rng.randint(1, 5)):
            able = tuple(rng.sample(stages_, rng.randint(1, len(stages_))))
            running = {s: rng.randint(0, 3) for s in stages_ if rng.random() < 0.4}
            known = {
                s: replace(
                    profile(rng.uniform(0.01, 500), rng.uniform(0.01, 900)), health=rng.choice((0.1, 1))
                )
                for s in able
                if rng.random() < 0.7
            }
            peers[f"m{i}"] = Peer(
                f"m{i}",
                rng.randint(1, 6),
                able,
                joins_after_s=rng.choice((0, 0, 30.0)),
                reserved=rng.choice(("", "", "", "batch", "testing")),
                speed_profiles=known,
                running=running,
                remaining={s: n * rng.random() for s, n in running.items()},
                load_s={s: 100.0 for s in able if rng.random() < 0.1},
            )
        yield (
            with_guesses(peers),
            {(s, p): rng.choice((0, 0, 1, 40)) for s in stages_ for p in (INTERACTIVE, BATCH)},
        )


def may_take(peer: Peer, waiting: dict[tuple[str, str], int]) -> bool:
    may = {"": (INTERACTIVE, BATCH), "batch": (BATCH,)}.get(peer.reserved, ())
    return peer.free > 0 and any(waiting[s, p] for s in peer.stages for p in may)


def test_no_machine_stands_still_for_ever_whatever_the_cluster_is_like() -> None:
    """Not even where no other machine ever does what was expected of it."""
    for peers, waiting in clusters():
        late = {stage: 1e9 for stage, _ in waiting}
        for me in peers.values():
            choice = decide(View(me.name, peers, waiting, waits_s=late, late_s=late))
            assert any(waiting[kind] for kind in choice.queues) == may_take(me, waiting), (me, waiting)


def test_something_is_taken_in_bounded_time_while_something_waits() -> None:
    """All machines decide again and again; a run that is taken stays, so that slots only get fewer."""
    for peers, waiting in clusters():
        dues: dict[str, Mapping[str, float]] = {name: {} for name in peers}
        now, bound = 0.0, 30.0
        while able := [p for p in peers.values() if may_take(p, waiting)]:
            longest = max(
                p.speed_profiles[s].seconds(6) + p.load_s.get(s, 0.0) for p in able for s in p.stages
            )
            bound, taken = now + 30.0 + 9 * longest + 1.0, False
            while not taken:
                assert now <= bound, (able, waiting)
                for me in able:
                    ages = {stage: now for stage, _ in waiting}
                    late = {s: now - at for s, at in dues[me.name].items()}
                    choice = decide(View(me.name, peers, waiting, waits_s=ages, late_s=late))
                    dues[me.name] = choice.due(now, dues[me.name])
                    found = next((kind for kind in choice.queues if waiting[kind]), None)
                    if found:
                        waiting[found], taken = waiting[found] - 1, True
                        running = {**me.running, found[0]: me.running.get(found[0], 0) + 1}
                        peers[me.name] = replace(me, running=running)
                        break
                now += 0.0 if taken else max(1.0, longest / 20)


def test_who_is_far_better_at_its_stage_helps_with_the_other_only_for_much() -> None:
    """It would take three times as long for it, beside its own jobs, and all would wait for these."""
    quick, slow = profile(10, 20), profile(30, 60)
    one = Peer(
        "one", 8, STAGES, speed_profiles={"analysis": quick, "feedback": slow}, running={"analysis": 7}
    )
    two = Peer(
        "two", 8, STAGES, speed_profiles={"analysis": slow, "feedback": quick}, running={"feedback": 7}
    )
    for analysis, taken in ((120, "feedback"), (400, "analysis")):
        assert stages(view("two", one, two, analysis=analysis, feedback=100)) == [taken]
