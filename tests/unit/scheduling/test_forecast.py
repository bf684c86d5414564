"""When work will be done: the forecast for what runs and what waits."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from grading.scheduling.cluster_view import Peer, SpeedProfile
from grading.scheduling.forecast import Running, Scene, forecast, remaining_of

ALONE = SpeedProfile(alone_s=100.0, full_s=100.0, full=4, tokens=1000, seen=9)
"""As fast in a batch as alone."""


def peer(name: str = "a", slots: int = 4, **profiles: SpeedProfile) -> Peer:
    return Peer(name, slots, tuple(profiles), speed_profiles=profiles)


def scene(waiting: int = 0, running: int = 0, **peers: Peer) -> Scene:
    found = peers or {"a": peer(analysis=ALONE)}
    hand = tuple(Running(f"r{i}", "a", "analysis", (i + 1) / max(1, running)) for i in range(running))
    return Scene(found, hand, {("analysis", "interactive"): waiting})


def test_who_comes_to_a_free_machine_waits_for_one_job() -> None:
    assert forecast(scene()).waiting("analysis", "interactive", 0) == pytest.approx(100)


def test_a_run_in_hand_ends_after_what_remains_of_it() -> None:
    seen = forecast(Scene({"a": peer(analysis=ALONE)}, [Running("r", "a", "analysis", 0.3)]))
    assert seen.runs == {"r": pytest.approx(30)}


def test_who_waits_begins_when_a_slot_is_free() -> None:
    seen = forecast(scene(running=4))  # which end after 25, 50, 75 and 100 s
    assert seen.waiting("analysis", "interactive", 0) == pytest.approx(125)


def test_more_in_the_batch_make_all_of_it_slower() -> None:
    slower = SpeedProfile(alone_s=50.0, full_s=200.0, full=4, seen=9)
    alone = forecast(scene(a=peer(analysis=slower))).waiting("analysis", "interactive", 0)
    beside = forecast(scene(running=3, a=peer(analysis=slower))).waiting("analysis", "interactive", 0)
    assert alone == pytest.approx(50)
    assert beside is not None
    assert 50 < beside < 200


def test_a_machine_that_became_slow_takes_so_much_longer() -> None:
    slow = peer(analysis=replace(ALONE, health=1 / 3))
    assert forecast(scene(a=slow)).waiting("analysis", "interactive", 0) == pytest.approx(300)


@pytest.mark.parametrize("ahead", [40, 250, 2_000])
def test_far_back_the_machines_rate_counts(ahead: int) -> None:
    """Four at once of 100 s each, on one machine and on one twice as fast: 12 jobs in 100 s."""
    fast = peer("b", analysis=replace(ALONE, alone_s=50.0, full_s=50.0))
    seen = forecast(scene(ahead, a=peer(analysis=ALONE), b=fast))
    assert seen.waiting("analysis", "interactive", ahead) == pytest.approx(ahead * 100 / 12, rel=0.1, abs=110)


def test_batch_work_is_behind_who_waits() -> None:
    peers = {"a": peer(analysis=ALONE)}
    waiting = {("analysis", "interactive"): 40, ("analysis", "batch"): 1}
    seen = forecast(Scene(peers, (), waiting))
    first, last = (seen.waiting("analysis", "interactive", n) for n in (0, 39))
    batch = seen.waiting("analysis", "batch", 1)
    assert first is not None
    assert last is not None
    assert batch is not None
    assert 2 * first < batch < last  # every so often a machine takes batch work


def test_both_machines_share_by_what_each_does_better() -> None:
    """Each does its own stage at 4 jobs in 100 s, and the other's three times slower: nobody should swap."""
    slow = replace(ALONE, alone_s=300.0, full_s=300.0)
    peers = {
        "a": peer("a", analysis=ALONE, feedback=slow),
        "b": peer("b", analysis=slow, feedback=ALONE),
    }
    waiting = {("analysis", "interactive"): 40, ("feedback", "interactive"): 40}
    seen = forecast(Scene(peers, (), waiting))
    for stage in ("analysis", "feedback"):
        assert seen.waiting(stage, "interactive", 39) == pytest.approx(1000, rel=0.2)


def test_those_who_come_later_fill_the_batch() -> None:
    slower = SpeedProfile(alone_s=50.0, full_s=200.0, full=4, seen=9)
    quiet = scene(a=peer(analysis=slower))
    busy = replace(quiet, arriving={("analysis", "interactive"): 0.1})
    before, after = (forecast(s).waiting("analysis", "interactive", 0) for s in (quiet, busy))
    assert before is not None
    assert after is not None
    assert after > before + 20


def test_a_crowd_is_not_believed_to_come_for_ever() -> None:
    """A machine that does 4 in 100 s, and 4 come each 10 s: who waits behind them is reached all the same."""
    for rate in (0.4, 4.0):
        coming = {("analysis", "interactive"): rate}
        crowd = Scene({"a": peer(analysis=ALONE)}, (), {("analysis", "batch"): 8}, coming)
        last = forecast(crowd).waiting("analysis", "batch", 7)
        assert last is not None
        assert last <= (100 * rate + 9) * 100 / 4 + 110


def test_nobody_does_it_nothing_is_said() -> None:
    assert forecast(scene(5)).waiting("feedback", "interactive", 0) is None
    assert forecast(Scene({})).waiting("analysis", "interactive", 0) is None
    reserved = forecast(scene(5, a=replace(peer(analysis=ALONE), reserved="testing")))
    assert reserved.lines == {}  # what nobody takes has no end, and the forecast does


def test_what_is_left_falls_with_tokens_and_never_to_nothing() -> None:
    assert remaining_of(0, ALONE, 0.0, 1) == 1.0
    assert remaining_of(0, ALONE, 25.0, 1) == pytest.approx(0.75)  # it reads: by time
    assert remaining_of(400, ALONE, 99.0, 1) == pytest.approx(0.6)  # it writes: by tokens
    assert 0 < remaining_of(5_000, ALONE, 500.0, 1) < 0.2
    assert remaining_of(10, None, 5.0, 1) == 0.5


def test_ten_thousand_that_wait_cost_no_more_than_a_thousand() -> None:
    def cost(count: int) -> float:
        given = scene(count, a=peer(slots=16, analysis=ALONE), b=peer("b", slots=16, analysis=ALONE))
        spent = []
        for _ in range(2):
            began = time.process_time()
            forecast(given)
            spent.append(time.process_time() - began)
        return min(spent)

    assert cost(10_000) < 3 * cost(1_000)
