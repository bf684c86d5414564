"""Statistics of a class against numbers worked out by hand, second formulas and tables."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.statistics import (
    Remark,
    agreement,
    between_people,
    bins,
    correlation,
    grouped,
    item,
    spread,
    t_quantile,
    weighted_kappa,
    words_of,
)
from grading.statistics.students_t import t_below

LEVELS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=40)
VALUES = st.lists(st.floats(-50, 150), min_size=1, max_size=60)


# --- spread -------------------------------------------------------------------------------------------


def test_spread_by_hand() -> None:
    found = spread([2, 4, 4, 4, 5, 5, 7, 9])
    assert found is not None
    assert (found.n, found.mean, found.least, found.most) == (8, 5, 2, 9)
    assert found.deviation == pytest.approx(math.sqrt(32 / 7))
    assert (found.lower, found.median, found.upper) == (4, 4.5, 5.5)
    assert spread([]) is None
    alone = spread([3])
    assert alone is not None
    assert (alone.deviation, alone.lower, alone.upper) == (None, 3, 3)


@given(VALUES)
def test_quartiles_are_in_order_and_among_the_values(values: list[float]) -> None:
    found = spread(values)
    assert found is not None
    assert found.least <= found.lower <= found.median <= found.upper <= found.most
    assert (found.least, found.most) == (min(values), max(values))
    assert spread(values[::-1]) == found


def test_bins_hold_their_start_and_the_last_its_end() -> None:
    made = bins([0, 0.99, 1, 9.99, 10, 10], 10)
    assert [one.count for one in made] == [2, 1, 0, 0, 0, 0, 0, 0, 0, 3]
    over = bins([10.5, 12, 3, -1], 10)
    assert [one.count for one in over] == [1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2]
    assert (over[-1].start, over[-1].end) == (10, 12)
    assert bins([1], 0) == ()
    # 0.3 / 0.1 is less than 3
    assert [one.count for one in bins([0.3], 1.0)] == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]


@given(VALUES, st.floats(0.1, 200))
def test_every_value_is_in_one_bin(values: list[float], highest: float) -> None:
    assert sum(one.count for one in bins(values, highest)) == len(values)


# --- items --------------------------------------------------------------------------------------------


def test_an_item_by_hand() -> None:
    found = item([0, 0.5, 1, 1], [0.2, None, 0.6, 0.7])
    assert found.shares is not None
    assert (found.at_zero, found.at_full, found.compared) == (1, 2, 3)
    assert found.shares.mean == 0.625
    # deviations (−2/3, 1/3, 1/3) and (−0.3, 0.1, 0.2): 0.3 / √(6/9 · 0.14)
    assert found.discrimination == pytest.approx(0.3 / math.sqrt(6 / 9 * 0.14))
    nothing = item([], [])
    assert (nothing.shares, nothing.discrimination) == (None, None)


def test_an_item_is_hard_or_easy_and_tells_apart() -> None:
    hard, easy = item([0, 0.2, 0.5], [0.1, 0.5, 0.9]), item([1, 1, 0.9], [0.2, 0.9, 0.5])
    assert (hard.difficulty, hard.tells_apart) == ("hard", "good")
    assert (easy.difficulty, easy.tells_apart) == ("easy", "weak")
    assert item([0.4, 0.6], [0.9, 0.1]).tells_apart == "negative"
    nearly = replace(easy, discrimination=-0.004)
    assert nearly.tells_apart == "weak"  # it is shown as 0.00
    unknown = item([], [])
    assert (unknown.difficulty, unknown.tells_apart) == (None, None)


def test_correlation_needs_differences() -> None:
    assert correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert correlation([0.1 + 0.2, 0.3, 0.3], [1, 2, 3]) is None
    assert correlation([1], [2]) is None


# --- agreement ----------------------------------------------------------------------------------------


def kappa_by_matrices(pairs: Sequence[tuple[int, int]], highest: int = 4) -> float | None:
    """The usual way: observed and expected tables, weighted by squared distance."""
    n = len(pairs)
    table = Counter(pairs)
    rows, columns = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    weight = {(i, j): (i - j) ** 2 / highest**2 for i in range(highest + 1) for j in range(highest + 1)}
    observed = sum(w * table[cell] / n for cell, w in weight.items())
    expected = sum(w * rows[i] * columns[j] / n**2 for (i, j), w in weight.items())
    return None if expected == 0 else 1 - observed / expected


@given(LEVELS)
def test_kappa_is_that_of_the_tables(pairs: list[tuple[int, int]]) -> None:
    by_tables, found = kappa_by_matrices(pairs), weighted_kappa(pairs)
    if by_tables is None:
        assert found is None
    else:
        assert found == pytest.approx(by_tables)
        assert found is not None
        assert -1 <= found <= 1
        assert weighted_kappa([(b, a) for a, b in pairs]) == pytest.approx(found)


def test_kappa_of_a_known_table() -> None:
    # 4 × (0,0), 1 × (0,2), 2 × (1,1), 3 × (2,2): observed 1·4/10; expected (5·3·… worked out below)
    pairs = [(0, 0)] * 4 + [(0, 2)] + [(1, 1)] * 2 + [(2, 2)] * 3
    # rows 5,2,3; columns 4,2,4: Σ w = (5·2 + 2·4 + 2·4 + 3·2)·1 + (5·4 + 3·4)·4 = 32 + 128 = 160
    assert weighted_kappa(pairs) == pytest.approx(1 - (4 / 10) / (160 / 100))
    assert weighted_kappa([(0, 4), (4, 0)]) == pytest.approx(-1)
    assert weighted_kappa([(2, 2)] * 20) is None
    assert weighted_kappa([(2, 2)]) is None


@given(LEVELS)
def test_fractions_of_levels_change_nothing(pairs: list[tuple[int, int]]) -> None:
    found = weighted_kappa(pairs)
    halves = weighted_kappa([(a / 2 + 7, b / 2 + 7) for a, b in pairs])
    assert (halves is None) == (found is None)
    if found is not None:
        assert halves == pytest.approx(found)


def test_agreement_by_hand() -> None:
    found = agreement([(2, 3), (1, 1), (4, 3.5), (0, 2)])
    assert (found.n, found.close, found.absolute) == (4, 0.5, 0.875)
    assert found.difference == pytest.approx(0.625)
    # differences 1, 0, −0.5, 2: deviation √(Σ(d − 0.625)² / 3) = √(3.6875 / 3); t(0.975; 3) = 3.1824
    reach = 3.1824 * math.sqrt(3.6875 / 3) / 2
    assert found.interval == pytest.approx((0.625 - reach, 0.625 + reach), abs=1e-3)
    assert found.few
    assert agreement([]).difference is None
    assert agreement([(1, 2)]).interval is None
    assert not agreement([(1, 2)] * 10).few


@given(LEVELS)
def test_the_interval_holds_the_mean(pairs: list[tuple[int, int]]) -> None:
    found = agreement(pairs)
    assert found.interval is not None
    assert found.difference is not None
    assert found.absolute is not None
    assert found.interval[0] <= found.difference <= found.interval[1]
    assert abs(found.difference) <= found.absolute + 1e-12


@pytest.mark.parametrize(
    ("degrees", "value"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (5, 2.5706), (10, 2.2281), (30, 2.0423), (100, 1.9840)],
)
def test_t_is_that_of_the_tables(degrees: int, value: float) -> None:
    assert t_quantile(0.975, degrees) == pytest.approx(value, abs=5e-5)
    assert t_quantile(0.025, degrees) == pytest.approx(-value, abs=5e-5)


def test_t_is_that_of_its_density() -> None:
    """A second way: adding up the density by Simpson's rule."""
    for degrees in (1, 2, 4, 7, 12):
        norm = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
        steps, end = 2_000, 2.5
        density = [
            norm * (1 + (end * i / steps) ** 2 / degrees) ** (-(degrees + 1) / 2) for i in range(steps + 1)
        ]
        simpson = density[0] + density[-1] + 4 * sum(density[1:-1:2]) + 2 * sum(density[2:-1:2])
        assert t_below(end, degrees) == pytest.approx(0.5 + simpson * end / steps / 3, abs=1e-9)
    assert t_quantile(0.975, 5_000) == pytest.approx(1.96, abs=1e-3)
    with pytest.raises(ValueError, match="degree of freedom"):
        t_quantile(0.975, 0)


def test_people_beside_each_other() -> None:
    marks = [
        ("a", 1, 4), ("a", 2, 4), ("b", 1, 2), ("b", 2, 3), ("c", 1, 0), ("c", 2, 0),
        ("a", 3, 1), ("d", 3, 2), ("d", 1, 2.5), ("alone", 1, 3),
    ]  # fmt: skip
    found = between_people([(work, who, float(level)) for work, who, level in marks])
    assert (found.people, found.works, found.pairs.n) == (3, 4, 6)
    one_two = kappa_by_matrices([(4, 4), (2, 3), (0, 0)])
    one_three = weighted_kappa([(4, 1), (2.5, 2)])
    assert one_two is not None
    assert one_three is not None
    # two and three share only one work, which gives no kappa
    assert found.pairs.kappa == pytest.approx((3 * one_two + 2 * one_three) / 5)
    assert found.pairs.absolute == pytest.approx((0 + 1 + 0 + 3 + 0.5 + 3) / 6)
    assert found.pairs.close == pytest.approx(3 / 6)
    assert (found.pairs.difference, found.pairs.interval) == (None, None)
    assert between_people([]).pairs.n == 0


# --- findings -----------------------------------------------------------------------------------------


def test_the_same_in_other_words() -> None:
    same = (
        "Missing values are not handled",
        "No handling… of `missing` values!",
        "missing VALUE not handled",
    )
    others = ("The plot has no title", "Variable names are unclear")
    remarks = [Remark(str(n), "fault", title) for n, title in enumerate(same + others)]
    found = grouped(remarks)
    assert [group.count for group in found] == [3, 1, 1]
    assert set(found[0].wordings) == set(same)
    assert [g.count for g in grouped([*remarks, Remark("9", "praise", same[0])]) if g.kind == "praise"] == [1]


def test_a_submission_counts_once_and_places_help() -> None:
    twice = [Remark("a", "fault", "No axis labels"), Remark("a", "fault", "Axis labels: none, no")]
    assert [group.count for group in grouped(twice)] == [1]
    one, other = "Join drops customers without orders", "Customers without orders lost in the merge"
    apart = [Remark("a", "fault", one), Remark("b", "fault", other)]
    assert len(grouped(apart)) == 2
    here = [Remark("a", "fault", one, "cell 7"), Remark("b", "fault", other, "cell 7")]
    assert [group.places for group in grouped(here)] == [("cell 7",)]


def test_titles_without_words_stand_for_themselves() -> None:
    remarks = [Remark("a", "fault", "???"), Remark("b", "fault", "42"), Remark("c", "fault", " ??? ")]
    assert [(group.title, group.count) for group in grouped(remarks)] == [("???", 2), ("42", 1)]
    assert grouped([]) == ()


TITLES = st.lists(
    st.text("abc dé1?", max_size=12)
    | st.sampled_from(["No labels on the axes", "Axes without labels", "Labels"]),
    max_size=12,
)


@given(TITLES, st.randoms(use_true_random=False))
def test_groups_do_not_depend_on_the_order_and_lose_nothing(titles: list[str], chance: random.Random) -> None:
    remarks = [
        Remark(f"w{n % 5}", "fault", title, f"cell {n % 3}" if n % 2 else "")
        for n, title in enumerate(titles)
    ]
    found = grouped(remarks)
    shuffled = list(remarks)
    chance.shuffle(shuffled)
    assert grouped(shuffled) == found
    assert {work for group in found for work in group.works} == {one.work for one in remarks}
    wordings = [title for group in found for title in group.wordings]
    assert set(wordings) == {title.strip() for title in titles}


def test_words_keep_what_turns_a_sentence_round() -> None:
    assert words_of("The plots are plotted with plotting") == {"plot"}
    assert words_of("used with labels") != words_of("used without labels")


PUBLISHED = """
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 .
"""
"""Krippendorff's own example (2011): four people, twelve works, missing marks; alpha of intervals 0.849."""


def test_krippendorffs_alpha_is_the_published_one() -> None:
    rows = [line.split() for line in PUBLISHED.split("\n") if line]
    marks = [
        (f"{work}", person, float(level))
        for person, row in enumerate(rows)
        for work, level in enumerate(row)
        if level != "."
    ]
    found = between_people(marks)
    assert found.alpha == pytest.approx(0.84911, abs=0.00001)  # irrCAC's, with a standard error of 0.129
    assert found.alpha_interval == (pytest.approx(0.849 - t_quantile(0.975, 10) * 0.129, abs=0.04), 1.0)
    assert (found.people, found.works) == (4, 11)
    # works that one person marked, and people who agree on one level, say nothing
    assert between_people([("a", 1, 2.0), ("b", 1, 3.0)]).alpha is None
    assert between_people([("a", 1, 2.0), ("a", 2, 2.0)]).alpha is None


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    chance = random.Random(4)
    held = {"kappa": 0, "alpha": 0, "mean": 0}
    # two noisy people: the truth is the variance of the work as a share of all (an intraclass correlation)
    truth = 1.5 / (1.5 + 0.5)
    for _ in range(200):
        works = [chance.gauss(0, 1.5**0.5) for _ in range(50)]
        given = [(one + chance.gauss(0, 0.5**0.5), one + chance.gauss(0, 0.5**0.5)) for one in works]
        marks = [(f"{n}", who, level) for n, two in enumerate(given) for who, level in enumerate(two)]
        found = between_people(marks)
        for name, interval in (
            ("kappa", agreement(given).kappa_interval),
            ("alpha", found.alpha_interval),
            ("mean", found.pairs.kappa_interval),
        ):
            assert interval is not None
            held[name] += interval[0] <= truth <= interval[1]
    assert all(180 <= count <= 198 for count in held.values()), held
