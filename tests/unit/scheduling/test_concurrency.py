"""The best number of generations at once, found by a machine that does so many jobs a second."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from grading.scheduling.concurrency import Best, steps

Throughput = Callable[[int], float]
SECOND_S = 5.0


def affine(at_once: int) -> float:
    """A step reads the weights once and each one's cache: more at once do more, without an end."""
    return at_once / (10 + 0.5 * at_once)


def saturated(at_once: int) -> float:
    return min(at_once, 6) / 10


def collapsing(at_once: int) -> float:
    """Beyond eight, memory is short."""
    return at_once / 10 if at_once <= 8 else 0.2


def work(best: Best, throughput: Throughput, hours: float, begun: float = 0.0, noise: float = 0.03) -> float:
    """Full load for some hours; when it ended."""
    now, lot = begun, random.Random(1)
    while now < begun + 3600 * hours:
        now += SECOND_S
        done = throughput(best.limit) * SECOND_S * lot.gauss(1, noise)
        best.saw(now, best.limit, done, SECOND_S)
    return now


def test_a_machine_that_does_more_with_more_keeps_all_slots() -> None:
    best = Best(1, 16)
    work(best, affine, 4)
    assert (best.settled, best.why) == (16, "all 16: fewer do less")


def test_with_nothing_measured_it_is_all_slots() -> None:
    best = Best(1, 16)
    assert (best.limit, best.why) == (16, "all 16: nothing else is measured yet")
    for moment in range(5000):  # never a full batch
        best.saw(moment, 5, 0.1, 1.0)
    assert best.limit == 16


def test_more_than_brings_anything_is_not_taken() -> None:
    best = Best(1, 16)
    work(best, saturated, 2)
    assert best.settled in (6, 8)
    assert best.why.endswith(("more bring nothing", "tried, to see whether they do as much"))


def test_what_does_not_fit_in_memory_is_left_and_taken_again_when_it_fits() -> None:
    best = Best(1, 16)
    now = work(best, collapsing, 3)
    assert best.settled == 8
    work(best, affine, 12, now)
    assert best.settled == 16


def test_it_stays_within_its_bounds() -> None:
    best = Best(4, 16)
    limits = set()
    now = 0.0
    for _ in range(100):
        now = work(best, lambda _n: 1.0, 0.1, now)
        limits.add(best.limit)
    assert min(limits) == 4
    assert Best(20, 8).limit == 8
    one = Best(1, 1)
    work(one, affine, 1)
    assert (one.limit, one.why) == (1, "all 1: as set")


@pytest.mark.parametrize("throughput", [affine, saturated, collapsing])
def test_it_seldom_changes(throughput: Throughput) -> None:
    """Tries cost throughput: of a day at most a few hundredths."""
    best, now, changes, ideal, done = Best(1, 16), 0.0, 0, 0.0, 0.0
    top = max(throughput(n) for n in range(1, 17))
    lot = random.Random(2)
    while now < 86_400:
        now, before = now + SECOND_S, best.limit
        rate = throughput(best.limit)
        best.saw(now, best.limit, rate * SECOND_S * lot.gauss(1, 0.03), SECOND_S)
        changes += best.limit != before
        ideal, done = ideal + top, done + rate
    assert changes <= 60
    assert done / ideal > 0.95


def test_what_was_seen_by_chance_to_do_less_is_not_tried() -> None:
    best, now, limits = Best(1, 16), 0.0, set()
    while now < 2400:
        at_once = 12 if now % 300 < 60 else 16  # now and then a few are missing
        now += SECOND_S
        best.saw(now, at_once, affine(at_once) * 0.9 ** (at_once == 12) * SECOND_S, SECOND_S)
        limits.add(best.limit)
    assert limits == {16}


def test_it_begins_with_what_was_best_before() -> None:
    best = Best(1, 16)
    best.restore(9)
    assert best.limit == 8
    best.restore(0)
    assert best.limit == 8


def test_steps() -> None:
    assert steps(1, 16) == (1, 2, 3, 4, 6, 8, 12, 16)
    assert steps(5, 20) == (5, 6, 8, 12, 16, 20)
    assert steps(3, 3) == (3,)
