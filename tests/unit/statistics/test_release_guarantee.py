"""The guarantee is exact: on small classes every sample and every set of wrong levels is gone through."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from fractions import Fraction
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.statistics.release_guarantee import (
    Draw,
    Guarantee,
    Item,
    Reason,
    Target,
    fewest_marks,
    gain,
    guarantee,
    limits,
    next_sample,
)

HALF = Target(share=0.25, confidence=0.5)


def keys(size: int) -> tuple[str, ...]:
    return tuple(f"{at:04}" for at in range(size))


def after(draw: Draw, wrong: Collection[str], target: Target, unmarked: Collection[str] = ()) -> Guarantee:
    """What a draw proves once all of it but `unmarked` is marked."""
    read = (set(draw.keys) - set(unmarked)) | draw.known
    items = [Item(key, at / 1_000, key in wrong if key in read else None)
             for at, key in enumerate(draw.candidates)]  # fmt: skip
    return guarantee(items, target, [draw])


def exceeds(found: Guarantee, wrong: Collection[str]) -> bool:
    return len(found.unread & set(wrong)) > found.target.share * len(found.released)


@pytest.mark.parametrize(("size", "marks", "counts"), [(8, 3, 2), (7, 4, 1), (6, 4, 3)])
def test_every_sample_of_every_small_class(size: int, marks: int, counts: int) -> None:
    """No set of wrong levels, out of all, is released wrongly by more of all samples than the risk allows."""
    worst = Fraction(0)
    everything = keys(size)
    rule = limits(size, marks, counts, HALF.risk(0))
    draws = [Draw(everything, frozenset(), drawn, rule) for drawn in combinations(everything, marks)]
    for number in range(size + 1):
        for wrong in combinations(everything, number):
            failures = sum(exceeds(after(draw, wrong, HALF), wrong) for draw in draws)
            worst = max(worst, Fraction(failures, len(draws)))
    assert Fraction(1, 10) < worst <= HALF.risk(0)


def risk_of(unread: int, marks: int, rule: Sequence[int]) -> float:
    """The chance that a limit is passed where all are wrong: walked forward, without counting samples."""
    at, passed = {(0, 0): 1.0}, 0.0
    while at:
        after: dict[tuple[int, int], float] = defaultdict(float)
        for (left, read), chance in at.items():
            if left + read == unread:
                continue
            to_read = (marks - read) / (unread - left - read)
            if read + 1 < len(rule):
                after[left, read + 1] += chance * to_read
            if left + 1 > rule[read]:
                passed += chance * (1 - to_read)
            else:
                after[left + 1, read] += chance * (1 - to_read)
        at = after
    return passed


@given(
    st.integers(1, 60), st.integers(0, 60), st.sampled_from([1, 2, 3, 6]), st.sampled_from([0.01, 0.04, 0.3])
)
def test_limits_use_the_risk_and_no_more(unread: int, marks: int, counts: int, risk: float) -> None:
    marks = min(marks, unread)
    rule = limits(unread, marks, counts, Fraction(str(risk)))
    assert list(rule) == sorted(rule)
    assert risk_of(unread, marks, rule) <= risk + 1e-9
    for k, limit in enumerate(rule):
        lower = (*rule[:k], limit - 1)
        if limit > (rule[k - 1] if k else 0):
            assert risk_of(unread, marks, lower) > risk * (k + 1) / len(rule) - 1e-9


@given(st.randoms(use_true_random=False), st.integers(20, 120), st.integers(0, 40))
def test_a_mark_that_is_wrong_never_releases_more(chance: Random, size: int, marks: int) -> None:
    items = [Item(key, round(chance.random() ** 3, 2)) for key in keys(size)]
    draw = next_sample(items, HALF, marks, seed=chance.randrange(99))
    wrong = [key for key in draw.keys if chance.random() < 0.1]
    found = after(draw, wrong, HALF)
    for key in draw.keys:
        more = after(draw, {*wrong, key}, HALF)
        assert len(more.released) <= len(found.released)
    assert set(found.released) | set(draw.keys) <= set(draw.candidates)
    assert found.at_most_wrong <= HALF.share * len(found.released)


@pytest.mark.parametrize(
    ("unread", "marks", "risk", "limit"),
    [
        (400, 100, "0.04", 11),
        (240, 100, "0.04", 5),
        (2_000, 200, "0.008", 45),
        (80, 38, "0.04", 4),
        (60, 20, "0.05", 6),
    ],
)
def test_one_count_is_the_hypergeometric_test(unread: int, marks: int, risk: str, limit: int) -> None:
    """By SciPy 1.17.1: the smallest a with hypergeom.pmf(0, unread, a + 1, marks) <= risk."""
    assert limits(unread, marks, 1, Fraction(risk)) == (limit,)


@pytest.mark.parametrize(
    ("k", "alone", "one_of_four"),
    [(0, 0.03168, 0.04501), (1, 0.04913, 0.06454), (2, 0.06449, 0.08141), (3, 0.07882, 0.09697)],
)
def test_a_large_class_is_as_learn_then_test_has_it(k: int, alone: float, one_of_four: float) -> None:
    """By MAPIE 1.6.0: where compute_hoeffding_bentkus_p_value(k / 100, 100, …, binary=True) is 0.04 and 0.01.

    All four counts together cost more than one of them, and less than by Bonferroni's correction.
    """
    size = 40_000
    share = limits(size, 100, 4, Fraction("0.04"))[k] / size
    assert alone - 0.001 < share < one_of_four + 0.001


def test_a_class_of_400_and_100_clean_marks() -> None:
    items = [Item(key, at / 1_000) for at, key in enumerate(keys(400))]
    draw = next_sample(items, Target(), 100, seed=1)
    assert set(draw.keys) <= set(draw.candidates)
    assert len(set(draw.keys)) == 100
    clean = after(draw, (), Target())
    assert clean.released == draw.candidates
    assert clean.reason is Reason.ALL_CANDIDATES
    assert clean.at_most_wrong <= 0.05 * len(clean.released)
    assert len(clean.unread) == len(clean.released) - 100


def test_what_is_not_marked_counts_as_wrong() -> None:
    items = [Item(key, at / 1_000) for at, key in enumerate(keys(400))]
    draw = next_sample(items, Target(), 100, seed=1)
    last = max(draw.keys)
    waiting = after(draw, (), Target(), unmarked=[last])
    wrong = after(draw, [last], Target())
    assert waiting.not_marked == (last,)
    assert waiting.ended_by in (None, last)
    assert len(waiting.released) <= len(wrong.released) <= len(after(draw, (), Target()).released)


def test_too_few_marks_prove_nothing() -> None:
    items = [Item(key, at / 1_000) for at, key in enumerate(keys(400))]
    none = guarantee(items, Target())
    assert (none.released, none.reason) == ((), Reason.NOTHING_DRAWN)
    few = after(next_sample(items, Target(), 10, seed=1), (), Target())
    assert (few.released, few.reason) == ((), Reason.TOO_FEW)
    useful = fewest_marks(400, Target())
    assert useful is not None
    assert fewest_marks(40, Target()) is None
    assert gain(items, Target(), useful).most >= useful
    assert gain(items, Target(), useful).marks == useful
    assert gain(items, Target(), 100).expected > gain(items, Target(), 60).expected


@pytest.mark.parametrize(
    ("size", "share", "confidence", "tries"),
    [(90, 0.05, 0.95, 0), (400, 0.05, 0.95, 1), (8_000, 0.01, 0.99, 8), (60, 0.2, 0.8, 2)],
)
def test_no_smaller_sample_is_useful(size: int, share: float, confidence: float, tries: int) -> None:
    target = Target(share, confidence)
    useful = fewest_marks(size, target, tries)
    assert useful is not None
    parts = range(2 * useful, size + 1) if size < 1_000 else range(2 * useful, 2 * useful + 110)
    proves = lambda marks, part: none_found(part, marks, target.allowed(part) + 1) <= target.risk(tries)  # noqa: E731
    assert any(proves(useful, part) for part in parts)
    assert not any(proves(useful - 1, part) for part in range(2 * (useful - 1), parts.stop))


def none_found(size: int, marks: int, wrong: int) -> Fraction:
    """The chance that a sample has none of so many wrong ones, level by level."""
    chance = Fraction(1)
    for at in range(wrong):
        chance *= Fraction(size - marks - at, size - at)
    return chance


def test_a_further_draw_keeps_what_is_proven() -> None:
    items = [Item(key, 0.0 if at < 200 else 0.3) for at, key in enumerate(keys(400))]
    first = next_sample(items, Target(), 80, seed=1)
    marked: dict[str, bool] = dict.fromkeys(first.keys, False)
    items = [Item(item.key, item.score, marked.get(item.key)) for item in items]
    proven = guarantee(items, Target(), [first])
    second = next_sample(items, Target(), 80, seed=2, draws=[first])
    assert second.candidates[: len(proven.released)] == proven.released
    assert second.known == set(first.keys) & set(second.candidates)
    assert not set(second.keys) & set(first.keys)
    # the second try has less of the confidence left
    assert Target().risk(0) + Target().risk(1) < Fraction(1, 20)
    assert guarantee(items, Target(), [first, second]).released == proven.released


def test_what_is_gone_is_not_released() -> None:
    items = [Item(key, at / 1_000) for at, key in enumerate(keys(400))]
    draw = next_sample(items, Target(), 100, seed=1)
    gone = {draw.candidates[0], draw.keys[-1]}
    left = [Item(item.key, item.score, False if item.key in draw.keys else None)
            for item in items if item.key not in gone]  # fmt: skip
    found = guarantee(left, Target(), [draw])
    assert not gone & set(found.released)
    # what was drawn and is gone counts as found wrong
    assert found.at_most_wrong == draw.limits[1 + (draw.candidates[0] in draw.keys)]
