"""Drift of scores is noticed soon; where there is none, alarms stay below the risk."""

from __future__ import annotations

from random import Random

from grading.statistics.score_drift import score_drift


def test_higher_scores_are_noticed_and_so_are_lower_ones() -> None:
    chance = Random(1)
    before = [chance.random() for _ in range(200)]
    higher = score_drift(before, [0.5 + chance.random() / 2 for _ in range(200)])
    lower = score_drift(before, [chance.random() / 2 for _ in range(200)])
    assert (higher.alarm, higher.higher, lower.alarm, lower.higher) == (True, True, True, False)
    assert max(higher.seen, lower.seen) < 40
    assert min(higher.against, lower.against) >= 20


def test_a_drift_after_a_while_is_noticed() -> None:
    chance = Random(2)
    later = [chance.random() for _ in range(100)] + [0.6 + 0.4 * chance.random() for _ in range(60)]
    found = score_drift([chance.random() for _ in range(200)], later)
    assert found.alarm
    assert 100 < found.seen <= 140


def test_false_alarms_stay_below_the_risk_also_with_equal_scores() -> None:
    chance = Random(3)
    alarms = 0
    for seed in range(200):
        scores = [chance.choice((0.01, 0.02, 0.4)) for _ in range(60)]
        alarms += score_drift(scores[:20], scores[20:], risk=0.2, seed=seed).alarm
    assert alarms <= 0.2 * 200
    assert score_drift([], []).against == 1.0
