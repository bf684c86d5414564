"""A guarantee for whole submissions holds for each criterion of what is released together."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from grading.statistics.joint_guarantee import (
    NO_LIMIT,
    Work,
    joint_gain,
    joint_guarantee,
    next_joint_sample,
)
from grading.statistics.release_guarantee import Draw, Reason, Target, limits

NAMES = ("one", "two", "three")
TARGET = Target(0.1, 0.9)


def works(count: int, chance: Random, rates: tuple[float, ...]) -> dict[str, dict[str, bool]]:
    """Planted errors: where one criterion is wrong, the others are more often, too."""
    found = {}
    for number in range(count):
        bad = chance.random() < 0.3
        found[f"{number}"] = {
            name: chance.random() < rate * (2.0 if bad else 0.57)
            for name, rate in zip(NAMES, rates, strict=True)
        }
    return found


def as_works(
    truth: dict[str, dict[str, bool]], scores: dict[str, float], marked: frozenset[str]
) -> list[Work]:
    return [
        Work(
            key,
            dict.fromkeys(NAMES, scores[key]),
            {name: value if key in marked else None for name, value in wrong.items()},
        )
        for key, wrong in truth.items()
    ]


@pytest.mark.parametrize("rates", [(0.1, 0.1, 0.1), (0.11, 0.0, 0.0)])
def test_each_criterion_keeps_the_target(rates: tuple[float, ...]) -> None:
    """In classes near the target, where a false proof is most likely; scores say a little."""
    chance, failures, classes, count, marks = Random(7), 0, 100, 80, 25
    rule = limits(count, marks, 2, replace(TARGET, statements=len(NAMES)).risk(0))
    for _number in range(classes):
        truth = works(count, chance, rates)
        scores = {
            key: min(0.9, chance.random() * (0.5 if any(one.values()) else 0.4)) for key, one in truth.items()
        }
        order = tuple(sorted(truth, key=lambda key: scores[key]))
        draw = Draw(order, frozenset(), tuple(chance.sample(order, marks)), rule)
        found = joint_guarantee(as_works(truth, scores, frozenset(draw.keys)), TARGET, [draw])
        released = [truth[key] for key in found.released]
        shares = [sum(one[name] for one in released) for name in NAMES]
        failures += any(one > TARGET.share * len(released) for one in shares)
    risk = float(TARGET.risk(0))
    assert failures <= risk * classes + 2 * (risk * classes) ** 0.5


def plain(
    count: int, wrong: dict[str, str] | None = None, marked: frozenset[str] = frozenset()
) -> list[Work]:
    """Submissions without a wrong level but these: key -> criterion."""
    bad = wrong or {}
    return [
        Work(
            key,
            {"one": 0.02, "two": 0.02},
            {n: bad.get(key) == n if key in marked else None for n in ("one", "two")},
        )
        for key in (f"{number:03}" for number in range(count))
    ]


def test_a_clean_sample_releases_all_and_a_wrong_one_stays_behind() -> None:
    draw = next_joint_sample(plain(60), Target(), 40, 1)
    marked = frozenset(draw.keys)
    found = joint_guarantee(plain(60, marked=marked), Target(), [draw])
    assert (len(found.released), len(found.unread), found.reason) == (60, 20, Reason.ALL_CANDIDATES)
    assert found.criteria["one"].found_wrong == 0
    wrong = draw.keys[0]
    after = joint_guarantee(plain(60, {wrong: "two"}, marked), Target(0.2, 0.8), [draw])
    assert wrong not in after.released
    assert (after.criteria["one"].found_wrong, after.criteria["two"].found_wrong) == (0, 1)


def test_criteria_share_the_risk_of_a_draw() -> None:
    """Each may have too many wrong levels in a part of its own, and a draw must not miss any of them."""
    alone = [replace(one, scores={"one": 0.02}, wrong={"one": None}) for one in plain(60)]
    one, two = next_joint_sample(alone, Target(), 30, 1), next_joint_sample(plain(60), Target(), 30, 1)
    assert one.limits == limits(len(one.candidates), 30, len(one.limits), Target().risk(0))
    assert two.limits == limits(len(two.candidates), 30, len(two.limits), Target().risk(0) / 2)


def test_what_is_not_marked_or_gone_counts_as_wrong() -> None:
    draw = next_joint_sample(plain(60), Target(), 40, 1)
    first = frozenset(draw.keys[:20])
    half = joint_guarantee(plain(60, marked=first), Target(), [draw])
    assert half.reason is Reason.NOT_MARKED
    assert (half.released, len(half.not_marked), half.marked) == ((), 20, 20)
    gone = [one for one in plain(60, marked=frozenset(draw.keys)) if one.key not in draw.keys[:20]]
    assert joint_guarantee(gone, Target(), [draw]).released == ()
    away = [
        Work(one.key, one.scores, one.wrong, here=one.key != "059")
        for one in plain(60, marked=frozenset(draw.keys))
    ]
    assert "059" not in joint_guarantee(away, Target(), [draw]).released


def test_tries_count_and_further_marks_are_planned() -> None:
    draw = next_joint_sample(plain(60), Target(), 40, 1, [NO_LIMIT])
    found = joint_guarantee(plain(60, marked=frozenset(draw.keys)), Target(), [NO_LIMIT, draw])
    assert (found.tries, bool(found.unread)) == (2, True)
    assert joint_guarantee(plain(60), Target(), ()).reason is Reason.NOTHING_DRAWN
    assert joint_gain(plain(200), Target(), 60).most > 100
