"""Speeds learned from samples of runs, on a toy machine whose speeds are known."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest

from grading.scheduling import speed_curve
from grading.scheduling import speed_profile as module
from grading.scheduling.cluster_view import Peer, SpeedProfile
from grading.scheduling.speed_curve import Curve
from grading.scheduling.speed_estimates import lengths
from grading.scheduling.speed_profile import NONE, Learner, Sample, Seen, with_guesses

FIRST_S = 1.0
TOKENS = 300


@dataclass
class Toy:
    """Reads one prompt at a time in 1 s while nobody writes; then a step writes a token for each.

    A step reads the weights of each stage that is in the batch.
    """

    stages: dict[str, tuple[float, float]] = field(
        default_factory=lambda: {"analysis": (0.02, 0.004), "feedback": (0.1, 0.001)}
    )
    """stage -> seconds of a step for its weights, and for each in the batch"""
    slots: int = 16
    speed: float = 1.0
    now: float = 0.0
    reading: list[str] = field(default_factory=list)
    began: dict[str, float] = field(default_factory=dict)
    runs: dict[str, tuple[str, float, int]] = field(default_factory=dict)
    """run -> stage, tokens so far, tokens in the end"""
    learner: Learner = field(init=False)
    count: int = 0
    lot: random.Random = field(default_factory=lambda: random.Random(3))

    def __post_init__(self) -> None:
        self.learner = Learner(self.slots, dict.fromkeys(self.stages))

    def true(self, stage: str, at_once: int) -> float:
        """Seconds of a usual job in the long run: each prompt holds up all others."""
        weights, each = self.stages[stage]
        return at_once * FIRST_S + TOKENS * (weights + each * at_once)

    def seen(self) -> list[Seen]:
        return [
            Seen(name, stage, "reading" if name in self.reading else "writing", int(tokens), 2 * TOKENS)
            for name, (stage, tokens, _) in self.runs.items()
        ]

    def begin(self, stage: str) -> None:
        self.count += 1
        name = f"run-{self.count}"
        self.runs[name] = (stage, 0.0, int(self.lot.uniform(0.7, 1.3) * TOKENS))
        self.reading.append(name)
        self.began[name] = self.now
        self.learner.sample(self.now, self.seen())

    def second(self, **batch: int) -> None:
        """One second with so many of each stage, as far as more have to begin for that."""
        for stage, wanted in batch.items():
            for _ in range(wanted - sum(s == stage for s, _, _ in self.runs.values())):
                self.begin(stage)
        self.now += 1
        if self.reading:
            if self.lot.random() < self.speed / FIRST_S:
                self.reading.pop(0)
        else:
            batch_now = Counter(stage for stage, _, _ in self.runs.values())
            step = sum(self.stages[s][0] + n * self.stages[s][1] for s, n in batch_now.items()) / self.speed
            self.runs = {k: (s, min(t + 1 / step, last), last) for k, (s, t, last) in self.runs.items()}
        seen = self.seen()
        self.learner.sample(self.now, seen)
        for one in seen:
            if one.tokens >= self.runs[one.run][2]:
                del self.runs[one.run]
                self.learner.ended(self.now, one, ok=True, seconds=self.now - self.began[one.run])

    def work(self, seconds: int, **batch: int) -> None:
        for _ in range(seconds):
            self.second(**batch)

    def empty(self) -> None:
        """Until nothing is in hand."""
        while self.runs:
            self.second()

    def profile(self, stage: str) -> SpeedProfile:
        return self.learner.speed_profiles(self.now, self.slots)[stage]


def test_speeds_at_each_concurrency_are_learned_within_ten_minutes() -> None:
    toy = Toy()
    for stage in toy.stages:
        for at_once in (1, 4, 16):
            toy.work(100, **{stage: at_once})
            toy.empty()
    for stage in toy.stages:
        for at_once in (1, 2, 8, 16):
            assert toy.profile(stage).seconds(at_once) == pytest.approx(toy.true(stage, at_once), rel=0.15)
        assert toy.profile(stage).tokens == pytest.approx(TOKENS, rel=0.05)
        assert toy.profile(stage).seen > 1


def test_gateway_requests_in_the_batch_make_no_size_of_it_slow() -> None:
    """Eight at once of which four are gateway requests are eight at once, and four of them are work done."""
    toy = Toy(stages={"analysis": (0.02, 0.02)})
    sample, ended, work = toy.learner.sample, toy.learner.ended, list[float]()

    def own(run: str) -> bool:
        return int(run.removeprefix("run-")) % 2 == 1

    def beside(now: float, runs: Sequence[Seen], _gateway_requests: Mapping[str, int] = NONE) -> Sample:
        ours = [one for one in runs if own(one.run)]
        found = sample(now, ours, {"analysis": len(runs) - len(ours)})
        work.append(found.work["analysis"])
        return found

    def ends(now: float, one: Seen, **how: Any) -> None:
        if own(one.run):
            ended(now, one, **how)

    toy.work(300, analysis=2)
    toy.empty()
    toy.learner.sample, toy.learner.ended = beside, ends  # type: ignore[method-assign, assignment]
    toy.work(300, analysis=8)
    for at_once in (2, 8):
        assert toy.profile("analysis").seconds(at_once) == pytest.approx(
            toy.true("analysis", at_once), rel=0.15
        )
    assert toy.profile("analysis").health == pytest.approx(1, abs=0.1)
    assert sum(work) == pytest.approx(4 * 300 / toy.true("analysis", 8), rel=0.15)


def test_idle_time_and_gaps_are_not_speed() -> None:
    toy = Toy()
    toy.work(120, analysis=4)
    before = toy.learner.speed_profiles(toy.now, 4)["analysis"].full_s
    toy.work(60)
    toy.now += 3600  # nobody looked, the machine slept
    toy.work(30, analysis=4)
    toy.now += 900
    toy.work(30, analysis=4)
    assert toy.learner.speed_profiles(toy.now, 4)["analysis"].full_s == pytest.approx(before, rel=0.1)


def test_waiting_and_loading_are_not_speed() -> None:
    learner = Learner(4, {"analysis": None})
    for now in range(60):
        learner.sample(now, [Seen("a", "analysis", "waiting")])
    for now in range(60, 71):
        learner.sample(now, [Seen("a", "analysis", "writing", 10 * (now - 60))])
    learner.ended(71, Seen("a", "analysis", "writing", 100), ok=True, seconds=71)
    assert learner.speed_profiles(71, 4)["analysis"].alone_s == pytest.approx(10.5, rel=0.15)


def test_a_machine_three_times_slower_is_recognised_within_a_minute_and_the_return_too() -> None:
    toy = Toy()
    toy.work(400, feedback=16)
    usual = toy.profile("feedback").seconds(16)
    assert toy.profile("feedback").health == pytest.approx(1, abs=0.15)
    toy.speed = 1 / 3
    toy.work(40, feedback=16)
    assert toy.profile("feedback").seconds(16) > 2.2 * usual
    toy.speed = 1
    toy.work(60, feedback=16)
    assert toy.profile("feedback").seconds(16) < 1.3 * usual


@pytest.mark.parametrize("speed", [1.0, 1 / 3])
def test_runs_that_begin_together_say_nothing_of_health_before_some_could_be_half_done(speed: float) -> None:
    toy = Toy()
    toy.work(400, feedback=16)
    toy.empty()
    toy.speed = speed
    usual = toy.true("feedback", 16)
    seen = []
    for _ in range(int(usual)):
        toy.second(feedback=16)
        seen.append(toy.profile("feedback").health)
    known = int(usual / 2)
    # sixteen prompts are read first: nobody writes, and what was read goes into the window at once
    assert all(0.85 < health < 1.2 for health in seen[: known - 1])
    if speed == 1.0:
        assert all(0.7 < health < 1.4 for health in seen)
    else:
        assert min(seen) < 0.5


def test_a_batch_of_a_size_never_seen_says_nothing_about_health() -> None:
    toy = Toy(stages={"analysis": (0.3, 0.0001)})
    toy.work(400, analysis=16)
    for name in list(toy.runs)[2:]:
        del toy.runs[name]
    toy.reading.clear()
    toy.learner.sample(toy.now, toy.seen())
    for _ in range(60):
        toy.second(analysis=2)
        assert toy.profile("analysis").health == pytest.approx(1, abs=0.25)


def test_a_lasting_change_becomes_what_is_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_curve, "MEMORY_S", 100.0)
    toy = Toy()
    toy.work(300, feedback=8)
    usual = toy.profile("feedback").seconds(8)
    toy.speed = 0.5
    toy.work(500, feedback=8)
    assert toy.profile("feedback").health > 0.85
    assert toy.profile("feedback").seconds(8) == pytest.approx(2 * usual, rel=0.15)


def test_a_slow_machine_that_gets_nothing_is_believed_to_recover() -> None:
    toy = Toy()
    toy.work(300, feedback=8)
    toy.speed = 0.2
    toy.work(60, feedback=8)
    slow = toy.profile("feedback").health
    toy.runs.clear()
    toy.reading.clear()
    toy.work(600)
    assert slow < 0.4
    assert toy.profile("feedback").health > 0.95


def test_two_stages_in_a_batch_do_not_spoil_what_is_known_of_each() -> None:
    toy = Toy()
    for stage in toy.stages:
        toy.work(150, **{stage: 6})
        toy.empty()
    before = {s: toy.profile(s).seconds(6) for s in toy.stages}
    toy.work(300, analysis=6, feedback=6)
    for stage in toy.stages:
        assert toy.profile(stage).seconds(6) == pytest.approx(before[stage], rel=0.2)
    assert toy.profile("analysis").health == pytest.approx(1, abs=0.3)  # the other one explains it


def test_a_stage_never_alone_is_told_apart_by_what_is_known_of_the_other() -> None:
    toy = Toy()
    toy.work(200, feedback=6)
    toy.work(300, analysis=6, feedback=6)
    assert toy.profile("analysis").seconds(6) == pytest.approx(toy.true("analysis", 6), rel=0.6)
    assert toy.profile("analysis").seconds(6) < toy.true("feedback", 6)


def test_failed_runs_are_taken_back() -> None:
    toy = Toy()
    toy.work(200, analysis=2)
    before = toy.profile("analysis")
    stuck = Seen("stuck", "analysis", "writing", 1)
    for _ in range(20):
        toy.now += 1
        toy.learner.sample(toy.now, [stuck])
    assert toy.profile("analysis").health < 0.5
    toy.learner.ended(toy.now, stuck, ok=False, seconds=20)
    toy.work(15, analysis=2)
    assert toy.profile("analysis").health == pytest.approx(1, abs=0.2)
    assert toy.profile("analysis").seconds(2) == pytest.approx(before.seconds(2), rel=0.15)


def test_a_repair_try_counts_neither_its_reading_nor_its_tokens() -> None:
    toy = Toy()
    toy.work(200, analysis=1)
    toy.empty()
    before = json.dumps(toy.learner.dump("analysis"))
    again = [Seen("again", "analysis", "writing", 0)]
    toy.learner.sample(toy.now, again)
    toy.learner.sample(toy.now, again)
    for _ in range(100):
        toy.now += 1
        toy.learner.sample(toy.now, [Seen("again", "analysis", "reading", 0)])
    toy.learner.ended(toy.now, Seen("again", "analysis", "writing", 9000), ok=True, seconds=99, repaired=True)
    assert json.dumps(toy.learner.dump("analysis")) == before


def test_a_speed_measured_alone_counts_little_for_a_full_batch() -> None:
    """How a model's step grows with its batch is a guess until batches were full."""
    toy = Toy()
    toy.work(600, analysis=1)
    alone, full = (toy.learner.speed_profiles(toy.now, at_once)["analysis"].seen for at_once in (1, 16))
    assert alone > 10
    assert full < 1
    toy.work(600, analysis=16)
    assert toy.learner.speed_profiles(toy.now, 16)["analysis"].seen > 10


def test_a_machine_measured_with_full_batches_only_does_not_tell_that_it_is_fast_alone() -> None:
    """Its weights may take most of a step: believed fast, it drew work that others end sooner."""
    toy = Toy(stages={"feedback": (0.8, 0.001)})
    toy.work(900, feedback=16)
    told = toy.profile("feedback")
    assert told.full_s == pytest.approx(toy.true("feedback", 16), rel=0.1)
    assert told.alone_s > 0.6 * toy.true("feedback", 1)


def test_answers_without_tokens_and_too_quick_to_be_sampled_have_a_pace() -> None:
    learner = Learner(4, {"analysis": None})
    for number in range(10):
        learner.ended(float(number), Seen(f"r{number}", "analysis", "reading"), ok=True, seconds=0.5)
    profile = learner.speed_profiles(10.0, 4)["analysis"]
    assert (profile.alone_s, profile.tokens) == (pytest.approx(0.5), 0)
    assert profile.seen == 10


def test_nonsense_never_makes_a_pace_zero_or_infinite() -> None:
    lot = random.Random(5)
    learner = Learner(8, {"analysis": None, "feedback": 1e9})
    now = 0.0
    for _ in range(1000):
        now += lot.choice([-5.0, 0.0, 1e-9, 0.5, 1.0, 9.0, 1e6])
        seen = [
            Seen(
                f"r{lot.randrange(12)}",
                lot.choice(["analysis", "feedback", "other"]),
                lot.choice(["waiting", "reading", "writing"]),
                lot.choice([0, 1, 50, 10**9]),
                800,
            )
            for _ in range(lot.randrange(8))
        ]
        learner.sample(now, seen)
        if seen and lot.random() < 0.3:
            learner.ended(now, seen[0], ok=lot.random() < 0.7, seconds=lot.choice([0.0, 1.0, 1e9]))
        for profile in learner.speed_profiles(now, 8).values():
            values = [
                profile.alone_s,
                profile.full_s,
                profile.health,
                *(profile.rate(n) for n in range(1, 9)),
            ]
            assert all(math.isfinite(v) and v > 0 for v in values), profile
        assert all(v >= 0 for v in learner.remaining().values())


def test_what_is_left_shrinks_as_runs_read_and_write() -> None:
    toy = Toy()
    toy.work(300, analysis=4)
    toy.empty()
    toy.begin("analysis")
    remaining = []
    while toy.runs:
        remaining.append(toy.learner.remaining()["analysis"])
        toy.second()
    assert remaining == sorted(remaining, reverse=True)
    assert remaining[0] == 1
    assert remaining[len(remaining) // 2] == pytest.approx(0.5, abs=0.15)
    assert remaining[-1] < 0.2
    assert toy.learner.remaining() == {}


def test_a_first_guess_counts_until_something_is_measured() -> None:
    learner = Learner(8, {"analysis": 720.0, "feedback": None})
    profile = learner.speed_profiles(0.0, 8)["analysis"]
    assert 3600 * profile.rate(8) == pytest.approx(720)
    assert profile.seen == 0
    assert "feedback" not in learner.speed_profiles(0.0, 8)
    learner.ended(1.0, Seen("r", "analysis", "reading"), ok=True, seconds=3.0)
    assert learner.speed_profiles(1.0, 8)["analysis"].alone_s == pytest.approx(3)


def test_what_was_learned_goes_through_json_and_nonsense_does_not() -> None:
    toy = Toy()
    toy.work(300, analysis=8)
    kept = json.loads(json.dumps(toy.learner.dump("analysis")))
    other = Learner(16, dict.fromkeys(toy.stages))
    other.restore("analysis", kept)
    learned, restored = (
        replace(toy.profile("analysis"), health=1.0),
        other.speed_profiles(0.0, 16)["analysis"],
    )
    assert asdict(restored) == pytest.approx(asdict(learned), rel=1e-3)
    for nonsense in (
        None,
        3,
        [],
        {"step": 1},
        {"step": {"cells": {"x": [1], "2": ["a", 1, 2]}}, "tokens": ["a", None]},
    ):
        other.restore("feedback", nonsense)
    assert "feedback" not in other.speed_profiles(0.0, 16)


def test_time_alone_decides_how_long_it_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed time divides the constants; they are read when they are used."""
    monkeypatch.setattr(module, "WINDOW_S", 2.5)
    monkeypatch.setattr(module, "LEAST_WINDOW_S", 1.0)
    toy = Toy()
    toy.work(300, feedback=8)
    toy.speed = 0.25
    toy.work(5, feedback=8)
    assert toy.profile("feedback").health < 0.4


# --- the curve ----------------------------------------------------------------------------------------


def test_a_curve_interpolates_and_goes_on_in_a_line() -> None:
    line = Curve(5, 100)
    for at_once in (1, 4, 16):
        line.add(at_once, 1000 * (0.02 + 0.002 * at_once), 1000, 30)
    for at_once in (1, 2, 8, 12, 16, 32):
        assert line.value(at_once) == pytest.approx(0.02 + 0.002 * at_once, rel=0.12)


def test_a_curve_of_one_figure_is_not_a_constant() -> None:
    line = Curve(5, 100)
    line.add(8, 100.0, 1000, 30)
    assert 0.01 < line.value(1) < 0.1 < line.value(16) < 0.2


# --- guesses ------------------------------------------------------------------------------------------


def peer(name: str, slots: int = 8, **alone: float) -> Peer:
    profiles = {s: SpeedProfile(v, 2 * v, slots, tokens=500, seen=5) for s, v in alone.items()}
    return Peer(name, slots, ("analysis", "feedback"), speed_profiles=profiles)


def test_a_machine_twice_as_fast_in_one_stage_is_guessed_to_be_so_in_the_other() -> None:
    peers = with_guesses({"a": peer("a", analysis=10, feedback=40), "b": peer("b", analysis=5)})
    guess = peers["b"].speed_profiles["feedback"]
    assert guess.rate(8) == pytest.approx(2 * peers["a"].speed_profiles["feedback"].rate(8), rel=0.01)
    assert (guess.seen, guess.tokens) == (0, 500)


def test_machines_that_never_did_the_same_differ_by_the_stage_and_not_by_themselves() -> None:
    known = {"a": peer("a", analysis=10), "b": peer("b", analysis=11), "c": peer("c", feedback=40)}
    peers = with_guesses(known)
    assert peers["c"].speed_profiles["analysis"].seconds(8) == pytest.approx(2 * 10.5, rel=0.01)
    assert peers["a"].speed_profiles["feedback"].seconds(8) == pytest.approx(2 * 40, rel=0.06)


def test_how_long_answers_are_is_told_by_those_who_measured_it() -> None:
    known = {
        "me": peer("me", analysis=10),
        "two": peer("two", analysis=10),
        "three": peer("three", feedback=9),
    }
    guessed = with_guesses(known)
    assert lengths("me", guessed) == {"analysis": 500, "feedback": 500}
    assert lengths("three", guessed) == {"analysis": 500}


def test_what_many_jobs_tell_is_left_as_it_is_and_one_job_says_little() -> None:
    known = {"a": peer("a", analysis=10, feedback=40), "b": peer("b", analysis=10, feedback=40)}
    known = {
        n: replace(p, speed_profiles={s: replace(x, seen=20) for s, x in p.speed_profiles.items()})
        for n, p in known.items()
    }
    assert with_guesses(known) == known
    odd = replace(known["b"].speed_profiles["feedback"], alone_s=120.0, full_s=240.0, seen=1)
    profiles = with_guesses(
        known | {"b": replace(known["b"], speed_profiles=known["b"].speed_profiles | {"feedback": odd})}
    )["b"].speed_profiles
    assert 80 <= profiles["feedback"].full_s < 130
    assert profiles["feedback"].seen == 1
    assert profiles["analysis"].full_s == 20


def test_with_nothing_known_all_guesses_are_equal() -> None:
    peers = with_guesses({"a": peer("a"), "b": peer("b")})
    assert len({profile for one in peers.values() for profile in one.speed_profiles.values()}) == 1


def test_a_hot_machine_is_guessed_to_be_hot_in_all_stages() -> None:
    hot = Peer(
        "b",
        8,
        ("analysis", "feedback"),
        speed_profiles={"analysis": SpeedProfile(5, 10, 8, health=0.25, seen=3)},
    )
    peers = with_guesses({"a": peer("a", analysis=10, feedback=40), "b": hot})
    fast = with_guesses({"a": peer("a", analysis=10, feedback=40), "b": peer("b", analysis=5)})
    assert peers["b"].speed_profiles["feedback"].rate(8) == pytest.approx(
        fast["b"].speed_profiles["feedback"].rate(8) / 4
    )


def test_unknown_stages_and_machines_get_something_finite() -> None:
    peers = with_guesses({"a": peer("a", analysis=10), "b": peer("b"), "c": peer("c", slots=0)})
    for one in peers.values():
        assert set(one.speed_profiles) == {"analysis", "feedback"}
        assert all(math.isfinite(p.rate(8)) and p.rate(8) > 0 for p in one.speed_profiles.values())
