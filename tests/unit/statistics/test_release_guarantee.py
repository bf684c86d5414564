"""The guarantee is exact: on small classes every sample and every set of wrong levels is gone through."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from itertools import combinations

import pytest

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


@pytest.mark.parametrize(("size", "marks", "counts"), [(8, 3, 2), (8, 4, 1), (7, 5, 3)])
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


def test_a_further_draw_keeps_what_is_proven() -> None:
    items = [Item(key, 0.0 if at < 200 else 0.3) for at, key in enumerate(keys(400))]
    first = next_sample(items, Target(), 80, seed=1)
    marked = dict.fromkeys(first.keys, False)
    items = [Item(item.key, item.score, marked.get(item.key)) for item in items]
    proven = guarantee(items, Target(), [first])
    second = next_sample(items, Target(), 80, seed=2, draws=[first])
    assert second.candidates[: len(proven.released)] == proven.released
    assert second.known == set(first.keys) & set(second.candidates)
    assert not set(second.keys) & set(first.keys)
    # the second try has less of the confidence left
    assert Target().risk(0) + Target().risk(1) < Fraction(1, 20)
    assert guarantee(items, Target(), [first, second]).released == proven.released
