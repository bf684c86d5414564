"""A guarantee from single levels holds for the levels of all criteria of what is released together."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from random import Random

import pytest

from grading.statistics.joint_guarantee import NO_LIMIT, Work
from grading.statistics.pooled_guarantee import (
    level_key,
    level_of,
    next_level_sample,
    pooled_gain,
    pooled_guarantee,
)
from grading.statistics.release_guarantee import Draw, Reason, Target, limits

NAMES = ("one", "two")


def works(
    count: int, wrong: frozenset[str] = frozenset(), marked: frozenset[str] = frozenset()
) -> list[Work]:
    """Submissions without a wrong level but these; the keys are those of levels."""
    return [
        Work(
            key,
            dict.fromkeys(NAMES, 0.002),
            {name: at in wrong if (at := level_key(key, name)) in marked else None for name in NAMES},
        )
        for key in (f"{number:03}" for number in range(count))
    ]


def unread_wrong(released: tuple[str, ...], wrong: frozenset[str], marked: frozenset[str]) -> int:
    return sum(level_of(one)[0] in released for one in wrong - marked)


@pytest.mark.parametrize(
    ("size", "marks", "share", "risk"), [(4, 3, 0.25, "0.4"), (4, 4, 0.26, "0.3"), (3, 2, 0.35, "0.6")]
)
def test_every_sample_of_every_small_class(size: int, marks: int, share: float, risk: str) -> None:
    """No set of wrong levels is released wrongly by more of the samples than the risk allows."""
    levels = [level_key(f"{number:03}", name) for number in range(size) for name in NAMES]
    limit = limits(len(levels), marks, 2, Fraction(risk))
    target, worst = Target(share, 0.5), 0
    samples = list(combinations(levels, marks))
    for bad in product((False, True), repeat=len(levels)):
        wrong = frozenset(one for one, is_bad in zip(levels, bad, strict=True) if is_bad)
        failed = 0
        for sample in samples:
            draw = Draw(tuple(levels), frozenset(), sample, limit)
            found = pooled_guarantee(works(size, wrong, frozenset(sample)), target, [draw])
            allowed = target.allowed(len(NAMES) * len(found.released))
            failed += unread_wrong(found.released, wrong, frozenset(sample)) > allowed
        worst = max(worst, failed)
    assert 0 < Fraction(worst, len(samples)) <= Fraction(risk)


def test_a_clean_sample_of_levels_releases_whole_submissions() -> None:
    draw = next_level_sample(works(60), Target(), 50, 1)
    assert len(draw.candidates) % len(NAMES) == 0
    assert {level_of(one)[1] for one in draw.keys} == set(NAMES)
    marked = frozenset(draw.keys)
    found = pooled_guarantee(works(60, marked=marked), Target(), [draw])
    assert (found.sample, found.marked, found.reason) == (50, 50, Reason.ALL_CANDIDATES)
    assert len(found.released) == len(draw.candidates) / len(NAMES)
    assert found.at_most_wrong <= Target().allowed(len(draw.candidates))
    wrong = draw.keys[0]
    wider = replace(draw, limits=limits(len(draw.candidates), 50, 2, Fraction("0.2")))
    after = pooled_guarantee(works(60, frozenset([wrong]), marked), Target(0.2, 0.8), [wider])
    assert after.released
    assert level_of(wrong)[0] not in after.released


def test_what_is_not_marked_gone_or_away_counts_as_wrong() -> None:
    draw = next_level_sample(works(60), Target(), 50, 1)
    marked = frozenset(draw.keys)
    half = pooled_guarantee(works(60, marked=frozenset(draw.keys[:25])), Target(), [draw])
    assert (half.released, len(half.not_marked), half.marked) == ((), 25, 25)
    assert half.reason is Reason.NOT_MARKED
    read = {level_of(one)[0] for one in draw.keys}
    gone = [one for one in works(60, marked=marked) if one.key not in sorted(read)[:20]]
    assert pooled_guarantee(gone, Target(), [draw]).released == ()
    away = [replace(one, here=one.key != "000") for one in works(60, marked=marked)]
    found = pooled_guarantee(away, Target(), [draw])
    assert "000" not in found.released
    assert found.marked == 50  # what was marked is told in records, also of what is not released any more


def test_what_could_not_be_released_at_the_draw_is_not_proven_by_it() -> None:
    away = {f"{number:03}" for number in range(20)}
    then = [replace(one, here=one.key not in away) for one in works(100)]
    levels = tuple(level_key(one.key, name) for one in then for name in NAMES)
    first = Draw(levels, frozenset(), (), (500,))
    draw = next_level_sample(then, Target(), 90, 1, [first])
    assert {level_key(one, name) for one in away for name in NAMES} <= draw.known
    back = pooled_guarantee(works(100, marked=frozenset(draw.keys)), Target(), [first, draw])
    assert back.released
    assert not away & set(back.released)


def test_a_criterion_that_people_graded_needs_no_proof() -> None:
    draw = next_level_sample(works(60), Target(), 50, 1)
    marked = frozenset(draw.keys)
    bad = frozenset(one for one in draw.keys if level_of(one)[1] == "two")
    everywhere = works(60, bad, marked)
    assert pooled_guarantee(everywhere, Target(0.1), [draw]).released == ()
    without = [replace(one, wrong={"one": one.wrong["one"]}) for one in everywhere]
    assert pooled_guarantee(without, Target(0.1), [draw]).released


def test_levels_marked_before_are_not_drawn_again_and_tries_count() -> None:
    first = next_level_sample(works(60), Target(), 10, 1)
    marked = frozenset(first.keys)
    draw = next_level_sample(works(60, marked=marked), Target(), 60, 2, [first])
    assert draw.known == marked & frozenset(draw.candidates)
    assert not marked & set(draw.keys)
    both = pooled_guarantee(works(60, marked=marked | frozenset(draw.keys)), Target(), [first, draw])
    assert both.tries == 2
    assert both.released
    assert pooled_guarantee(works(60), Target(), [NO_LIMIT]).released == ()
    assert pooled_guarantee(works(60), Target(), ()).reason is Reason.NOTHING_DRAWN


def test_the_gain_is_in_submissions() -> None:
    """In classes whose errors are as predicted, as many are released as predicted."""
    chance, total, classes = Random(5), 0, 30
    predicted = pooled_gain(works(200), Target(), 120)
    draw = next_level_sample(works(200), Target(), 120, 1)
    for _class in range(classes):
        mine = replace(draw, keys=tuple(chance.sample(draw.candidates, len(draw.keys))))
        wrong = frozenset(one for one in draw.candidates if chance.random() < 0.012)
        found = pooled_guarantee(works(200, wrong, frozenset(mine.keys)), Target(), [mine])
        total += len(found.released)
    assert predicted.marks == 120
    assert predicted.most == len(draw.candidates) // len(NAMES)
    assert abs(total / classes - predicted.expected) < 0.15 * predicted.most
    assert pooled_gain(works(200), Target(), 5).most == 0
    # after a first draw, what was marked in it is counted as well
    more = next_level_sample(works(200, marked=frozenset(draw.keys)), Target(), 120, 2, [draw])
    marked = frozenset([*draw.keys, *more.keys])
    both = pooled_guarantee(works(200, marked=marked), Target(), [draw, more])
    further = pooled_gain(works(200, marked=frozenset(draw.keys)), Target(), 120, [draw])
    assert further.most == len(both.released) == len(more.candidates) // len(NAMES)


def test_of_a_submission_with_a_wrong_level_no_more_is_drawn() -> None:
    first = next_level_sample(works(100), Target(), 60, 1)
    wrong = frozenset(first.keys[:6])
    then = works(100, wrong, frozenset(first.keys))
    draw = next_level_sample(then, Target(), 80, 2, [first])
    assert not {level_of(one)[0] for one in wrong} & {level_of(one)[0] for one in draw.keys}
