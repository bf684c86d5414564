"""A guarantee for whole submissions holds for each criterion of what is released together."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise
from random import Random

import pytest

from grading.statistics.joint_guarantee import (
    NO_LIMIT,
    Work,
    joint_gain,
    joint_guarantee,
    joint_limits,
    next_joint_sample,
)
from grading.statistics.release_guarantee import Draw, Reason, Target, limits
from tests.unit.statistics.test_release_guarantee import risk_of

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
    rule = joint_limits(count, marks, 2, TARGET.risk(0), len(NAMES))
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


@pytest.mark.parametrize(
    ("size", "marks", "counts", "risk", "criteria"),
    [
        (6, 3, 2, "0.5", 2),
        (6, 2, 3, "0.4", 2),
        (6, 4, 1, "0.3", 2),
        (6, 4, 3, "0.9", 2),
        (5, 2, 2, "0.6", 3),
        (5, 3, 3, "0.9", 3),
    ],
)
def test_every_sample_of_every_small_class_with_several_criteria(
    size: int, marks: int, counts: int, risk: str, criteria: int
) -> None:
    """No sets of wrong levels break a limit in any part, for more of the samples than the risk allows."""
    limit = joint_limits(size, marks, counts, Fraction(risk), criteria)
    ends = [(1 << end) - 1 for end in range(1, size + 1)]
    drawn = [sum(1 << at for at in sample) for sample in combinations(range(size), marks)]
    # of one criterion, by sample and part: what is found, and what is left unread
    seen = [
        [[((one & end & got).bit_count(), (one & end & ~got).bit_count()) for end in ends] for got in drawn]
        for one in range(1 << size)
    ]
    worst = 0
    for together in combinations(seen, criteria):
        worst = max(worst, sum(passes(parts, limit) for parts in zip(*together, strict=True)))
    assert 0 < Fraction(worst, len(drawn)) <= Fraction(risk)


def passes(criteria: tuple[list[tuple[int, int]], ...], limit: tuple[int, ...]) -> bool:
    """Whether there is a part with more unread wrong levels of a criterion than the limit for those found."""
    for part in zip(*criteria, strict=True):
        found = max(part)[0]
        if found < len(limit) and max(unread for _, unread in part) > limit[found]:
            return True
    return False


def chance_of(unread: int, marks: int, limit: tuple[int, ...], criteria: int, first: int) -> float:
    """The bound of the chance to pass a limit, the `first` counts tested for all criteria in one."""

    def few(wrong: int, most: int) -> float:
        """That so many wrong levels have at most so many read, label by label."""
        chances = [1.0] + [0.0] * most
        for at in range(min(wrong, unread)):
            before = [0.0, *chances[:-1]]
            reads = [max(0.0, marks - k) / (unread - at) for k in range(most + 1)]
            chances = [
                chance * (1 - reads[k]) + (before[k] * reads[k - 1] if k else 0.0)
                for k, chance in enumerate(chances)
            ]
        return sum(chances)

    together = sum(few(limit[k] + 1, k) for k in range(first))
    if first == len(limit):
        return together
    return together + criteria * risk_of(unread, marks, [*[limit[first]] * first, *limit[first:]])


@pytest.mark.parametrize("counts", [1, 2, 3, 4, 6, 9])
@pytest.mark.parametrize(("unread", "marks", "criteria"), [(120, 60, 2), (60, 20, 5), (90, 80, 12)])
def test_limits_for_several_criteria_keep_the_risk(
    unread: int, marks: int, criteria: int, counts: int
) -> None:
    limit = joint_limits(unread, marks, counts, Fraction("0.04"), criteria)
    bounds = [chance_of(unread, marks, limit, criteria, first) for first in range(1, min(counts, 3) + 1)]
    assert list(limit) == sorted(limit)
    assert min(bounds) <= 0.04 + 1e-9


def test_no_count_costs_more_for_more_criteria_but_those_found_wrong() -> None:
    risk = Fraction("0.04")
    assert joint_limits(400, 100, 1, risk, 4) == limits(400, 100, 1, risk)
    assert joint_limits(240, 100, 4, risk, 1) == limits(240, 100, 4, risk)
    several = [joint_limits(240, 100, 4, risk, criteria) for criteria in (1, 2, 4, 8)]
    assert [one[0] for one in several] == [8] * 4
    for narrow, wide in pairwise(several):
        assert sum(narrow) <= sum(wide)


def plain(
    count: int, wrong: dict[str, str] | None = None, marked: frozenset[str] = frozenset()
) -> list[Work]:
    """Submissions without a wrong level but these: key -> criterion."""
    bad = wrong or {}
    return [
        Work(
            key,
            {"one": 0.002, "two": 0.002},
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


def test_what_could_not_be_released_at_the_draw_is_not_proven_by_it() -> None:
    away = {f"{number:03}" for number in range(20)}
    then = [Work(one.key, one.scores, one.wrong, here=one.key not in away) for one in plain(100)]
    first = Draw(tuple(one.key for one in then), frozenset(), (), (100,))
    draw = next_joint_sample(then, Target(), 60, 1, [first])
    assert away <= draw.known
    back = joint_guarantee(plain(100, marked=frozenset(draw.keys)), Target(), [first, draw])
    assert back.released
    assert not away & set(back.released)


def test_tries_count_and_further_marks_are_planned() -> None:
    draw = next_joint_sample(plain(60), Target(), 40, 1, [NO_LIMIT])
    found = joint_guarantee(plain(60, marked=frozenset(draw.keys)), Target(), [NO_LIMIT, draw])
    assert (found.tries, bool(found.unread)) == (2, True)
    assert joint_guarantee(plain(60), Target(), ()).reason is Reason.NOTHING_DRAWN
    assert joint_gain(plain(200), Target(), 60).most > 100
