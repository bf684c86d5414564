"""Pairs of submissions: copies are found, idioms and starters are not, short works say nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.similarity import measure
from bench.similarity.planted import copied, parsable
from bench.similarity.programs import programs
from grading.documents import set_apart
from grading.similarity import clusters, compared, marks_of, shared_regions
from grading.similarity.pairs import FEWEST, SimilarPair, Work
from tests.unit.checks.samples import script

FOUND, FALSE = 0.95, 1.0
"""Share of planted copies that are found, and false pairs in a thousand of different questions."""


def test_planted_copies_are_found_and_other_questions_are_not() -> None:
    one, other = programs(24, seed=1), programs(24, seed=2)
    copies = measure.planted_copies(one)
    assert copies.share >= FOUND
    assert copies.silent <= 2
    assert measure.false_pairs(one, other).per_thousand <= FALSE


def test_equal_answers_share_a_group_and_copies_are_near() -> None:
    chance, made = random.Random(1), dict[str, tuple[str, bool]]()
    for number, source in enumerate(programs(24, seed=1)):
        for name, text in (
            ("own", source),
            ("layout", f"# mine\n\n{source}"),
            ("copy", copied(source, chance)),
        ):
            made[f"{number}-{name}"] = text, number % 2 == 0
    groups = measure.groups_of(made)
    assert (groups.saved, groups.mixed) == (24, 0)
    assert (groups.near, groups.near_mixed) == (24, 0)


@pytest.mark.soak
def test_copydetect_finds_no_more_on_the_same_programs(tmp_path: Path) -> None:
    """As it comes it finds as many copies, and takes more of what nobody copied for copies."""
    questions = [programs(40, seed=1), programs(40, seed=2)]
    ours = measure.false_pairs(*questions)
    found, wrong = by_copydetect([parsable(one) for one in questions], tmp_path)
    copies = [measure.planted_copies(one) for one in questions]
    assert sum(one.found + one.silent for one in copies) >= found - 2
    assert ours.found <= wrong


def by_copydetect(questions: list[list[str]], folder: Path) -> tuple[int, int]:
    """Copies that copydetect finds by its defaults, and pairs of different questions that it reports."""
    from copydetect import CodeFingerprint, compare_files
    from copydetect.defaults import DISPLAY_THRESHOLD, GUARANTEE_THRESHOLD, NOISE_THRESHOLD

    def read(name: str, source: str) -> CodeFingerprint:
        path = folder / f"{name}.py"
        path.write_text(source)
        return CodeFingerprint(str(path), NOISE_THRESHOLD, GUARANTEE_THRESHOLD - NOISE_THRESHOLD + 1)

    def alike(one: CodeFingerprint, other: CodeFingerprint) -> bool:
        return max(compare_files(one, other)[1]) >= DISPLAY_THRESHOLD

    chance = random.Random(1)
    works = [[read(f"{q}-{n}", one) for n, one in enumerate(of)] for q, of in enumerate(questions)]
    copies = [
        [read(f"{q}-{n}-copy", copied(one, chance)) for n, one in enumerate(of)]
        for q, of in enumerate(questions)
    ]
    found = sum(alike(one, two) for q in (0, 1) for one, two in zip(works[q], copies[q], strict=True))
    return found, sum(alike(one, two) for one in works[0] for two in works[1])


def work(name: str, marks: set[int], owner: int = 0, assignment: int = 1) -> Work:
    return Work(name, assignment, frozenset({owner or hash(name)}), frozenset(marks))


def test_what_many_have_says_nothing_and_is_named() -> None:
    idiom, own = set(range(100)), set(range(1000, 1000 + FEWEST))
    many = [work(f"w{n}", idiom, n + 1) for n in range(8)]
    found = compared([*many, work("a", idiom | own, 50), work("b", idiom | own, 51)])
    assert [(pair.one, pair.other, pair.share) for pair in found.pairs] == [("a", "b", 1.0)]
    assert found.silent == tuple(f"w{n}" for n in range(8))
    # four may share it before it is an idiom of a small class
    assert len(compared(many[:4]).pairs) == 6
    assert compared(many[:5]).pairs == ()


def test_one_students_own_works_and_earlier_ones_among_themselves_are_no_pairs() -> None:
    marks = set(range(50))
    earlier = [work("e1", marks, 1, 2), work("e2", marks, 2, 2)]
    found = compared([work("a", marks, 1), work("b", {900, *range(800, 820)}, 3)], earlier)
    assert [(pair.one, pair.other) for pair in found.pairs] == [("a", "e2")]
    few = compared([work("a", set(range(FEWEST - 1)), 1), work("b", set(range(FEWEST - 1)), 2)])
    assert (few.pairs, few.silent) == ((), ("a", "b"))


def test_clusters_are_what_pairs_lead_to() -> None:
    pairs = [SimilarPair(*pair, 0.9, frozenset()) for pair in ("ab", "cd", "be", "fg")]
    assert clusters(pairs) == (("a", "b", "e"), ("c", "d"), ("f", "g"))


def test_shared_regions_have_the_lines_of_both() -> None:
    (source,) = programs(1, seed=5)
    lines = source.count("\n")
    mine = measure.document("import os\n\n\n" + source)
    theirs = measure.document(copied(source, random.Random(2)))
    own = [marks_of([one]) for one in (mine, theirs)]
    shared = {mark.value for mark in own[0]} & {mark.value for mark in own[1]}
    regions = shared_regions(own[0], own[1], shared)
    covered = {n for region in regions for n in range(region.one.first, region.one.last + 1)}
    assert len(covered) > 0.7 * lines
    assert all(4 <= region.one.first <= region.one.last <= lines + 3 for region in regions)
    assert regions == tuple(sorted(regions, key=lambda region: -region.tokens))


def test_code_that_repeats_itself_is_bounded() -> None:
    marks = marks_of([measure.document("print(a, b, 1)\n" * 3_000)])
    regions = shared_regions(marks, marks, {mark.value for mark in marks})
    assert 1 <= len(regions) <= 40


def test_lines_of_the_starter_have_no_marks() -> None:
    (source,) = programs(1, seed=6)
    (own,) = set_apart([measure.document(source)], [measure.document(source)])
    assert marks_of([own]) == ()


def test_a_copy_is_a_program_with_other_names() -> None:
    (source,) = programs(1, seed=7)
    copy = copied(source, random.Random(3))
    assert parsable([copy]) == [copy]
    assert len(set(source.split("\n")) & set(copy.split("\n"))) < 0.3 * source.count("\n")


R = """library(dplyr)
sales <- read.csv("sales.csv")
by_region <- sales %>%
  filter(amount > 10, !is.na(region)) %>%
  group_by(region) %>%
  summarise(total = sum(amount), n = n())
top <- by_region %>% arrange(desc(total)) %>% head(3)
growth <- function(now, before) {
  change <- (now - before) / before
  round(100 * change, 1)
}
print(top)
print(growth(120, 100))
"""
R_COPY = """# my own work
library(dplyr)
wachstum <- function(a, b) {
    # in percent
    unterschied = (a - b) / b
    round(100 * unterschied, 1)
}
daten <- read.csv('sales.csv')
nach_region <- daten %>% filter(amount > 10, !is.na(region)) %>%
    group_by(region) %>% summarise(total = sum(amount), n = n())
beste <- nach_region %>% arrange(desc(total)) %>% head(3)
print(beste)
print(wachstum(120, 100))
"""


def test_a_copy_in_r_shares_nearly_all() -> None:
    marks = [{mark.value for mark in marks_of([script(source)])} for source in (R, R_COPY)]
    (pair,) = compared([work("a", marks[0], 1), work("b", marks[1], 2)]).pairs
    assert pair.share > 0.7
