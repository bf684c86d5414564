"""The calibrated chance that a level is wrong."""

from __future__ import annotations

import math
import random

import pytest

from grading.statistics.confidence import (
    DEFAULT,
    Features,
    Labelled,
    Tried,
    Weights,
    cross_fitted,
    fit,
    score,
)
from grading.statistics.reliability import Bin, reliability, wilson


@pytest.mark.parametrize(
    ("sure", "unsure"),
    [
        (Features(doubt=0.05), Features(doubt=0.4)),
        (Features(from_checks=0.0), Features(from_checks=1.0)),
        (Features(from_second=0.5), Features(from_second=2.0)),
        (Features(), Features(unquoted=0.5)),
        (Features(), Features(shortened=True)),
        (Features(), Features(other_language=True)),
        (Features(), Features(longer=1.0)),
        (Features(highest=4), Features(highest=10)),
    ],
)
def test_each_sign_of_error_raises_the_score(sure: Features, unsure: Features) -> None:
    assert 0 < score(sure) < score(unsure) < 1


def drawn(count: int, truth: Weights, seed: int = 1) -> list[Labelled]:
    chance = random.Random(seed)
    made = []
    for n in range(count):
        found = Features(
            doubt=chance.choice((None, 0.05, 0.2, 0.5)),
            from_checks=chance.choice((None, 0.0, 0.5, 1.0)),
            criterion=chance.choice(("easy", "hard")),
        )
        made.append(Labelled(f"{n // 2}", found, chance.random() < score(found, truth)))
    return made


TRUTH = Weights(-2.5, 5.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, criteria={"easy": -1.0, "hard": 1.0})


def test_weights_are_the_default_without_marks_and_the_truth_with_many() -> None:
    assert fit(()) == DEFAULT
    few, many = fit(drawn(4, TRUTH)), fit(drawn(6_000, TRUTH))
    assert all(abs(a - b) < 1.5 for a, b in zip(few.as_list(), DEFAULT.as_list(), strict=True))
    for criterion in ("easy", "hard"):
        for doubt in (0.05, 0.2, 0.5):
            found = Features(doubt=doubt, from_checks=0.5, criterion=criterion)
            assert score(found, many) == pytest.approx(score(found, TRUTH), abs=0.04)


@pytest.mark.parametrize("wrong", [True, False])
def test_weights_stay_finite_where_all_marks_say_the_same(wrong: bool) -> None:
    fitted = fit([Labelled(f"{n}", Features(doubt=0.1, criterion="one"), wrong) for n in range(300)])
    assert all(math.isfinite(one) and abs(one) < 12 for one in fitted.as_list())
    chance = score(Features(doubt=0.1, criterion="one"), fitted)
    assert chance > 0.95 if wrong else chance < 0.05


def test_scores_are_tried_on_what_they_were_not_fitted_on() -> None:
    known = drawn(60, TRUTH)
    tried = cross_fitted(known)
    assert len(tried) == len(known)
    whole = fit(known)
    assert [one.score for one in tried] != [score(one.features, whole) for one in known]


def test_exact_scores_are_reliable_and_boastful_ones_are_not() -> None:
    chance = random.Random(3)
    exact, boastful = [], []
    for n in range(1_500):
        wrong = chance.uniform(0.02, 0.5)
        label = Labelled(f"{n}", Features(), chance.random() < wrong)
        exact.append(Tried(label, wrong))
        boastful.append(Tried(label, wrong / 4))
    found, worse = reliability(exact), reliability(boastful)
    assert [one.n for one in found.bins] == [150] * 10
    assert found.ece is not None
    assert found.interval is not None
    assert found.ece < 2 * (found.ece_of_perfect or 0) < 0.06
    assert found.interval[0] <= found.ece + 0.01
    assert worse.ece == pytest.approx(sum(not_wrong_by(one) for one in worse.bins) / worse.n)
    assert worse.ece > 0.15
    held = sum(one.interval[0] <= one.stated <= one.interval[1] for one in found.bins)
    assert held >= 8


def not_wrong_by(found: Bin) -> float:
    return found.n * abs(found.stated - found.right)


def test_few_and_equal_scores_make_one_bin_and_none_makes_none() -> None:
    equal = [Tried(Labelled(f"{n}", Features(), n == 0), 0.1) for n in range(40)]
    assert [one.n for one in reliability(equal).bins] == [40]
    assert [one.n for one in reliability(equal[:3]).bins] == [3]
    assert reliability(()).ece is None
    # published: 10 of 20, Wilson 0.299 to 0.701
    assert wilson(10, 20) == (pytest.approx(0.299, abs=0.001), pytest.approx(0.701, abs=0.001))
    assert wilson(20, 20)[1] == 1.0
