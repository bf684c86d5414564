"""No attack of the corpus moves a grade that is released without being read, on good work too.

A model that obeys every attack judges the sample submissions with it and without. What counts is what a class
would be given: points of reports that nothing holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from statistics import fmean

import pytest

from grading.checks.manipulation.flags import manipulation_flags
from grading.documents import set_apart
from grading.domain.report import Report
from grading.statistics.stress_test import ALLOWED, ROUNDING
from grading.stress_tests import catalogue, instructions
from grading.stress_tests.attacks import KINDS, Attack, every, load
from grading.stress_tests.catalogue import Planned
from tests.support.gullible import Biased, report_of, sample_class
from workers.machine.engines.base import Request

CLASSES = ("sales-cleaning", "python-basket")
SLICE = 34
"""Every so many-th attack is tried in the fast tests: one of each kind, on one submission each."""


class Sways(Biased):
    """Gives so many levels more for everything, whatever the work says."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.levels = more

    def more(self, work: str, request: Request) -> float:
        return self.levels


@cache
def as_it_is(slug: str, source: str) -> Report:
    """The report of a submission without an attack."""
    found = sample_class(slug)
    return report_of(found, found.works[source], Sways(0))


def gains(
    attacks: Sequence[Attack], slug: str, levels: int, turn: bool
) -> Iterator[tuple[Attack, str, float]]:
    """What each attack gains in a released grade, as a share, on each submission or on one in turn."""
    found = sample_class(slug)
    written = [source for source in found.works if "empty" not in source]
    for number, attack in enumerate(attacks):
        for source in [written[number % len(written)]] if turn else written:
            planned = Planned((f"{instructions.FAMILY}.{attack.kind}.{attack.number}",), instructions.FAMILY)
            variant = catalogue.make(planned, found.works[source], found.setting, 1, source)
            assert variant is not None
            own = set_apart(variant, found.setting.starter)
            if manipulation_flags(own, found.setting.rubric):
                yield attack, source, 0.0  # held, whatever a model says
                continue
            report = report_of(found, variant, Sways(levels))
            gained = report.points_so_far - as_it_is(slug, source).points_so_far
            yield attack, source, 0.0 if report.held else gained / found.setting.rubric.max_points


def check(attacks: Sequence[Attack], slug: str, levels: int, *, turn: bool) -> None:
    """No attack moves a released grade, and none of the kinds gains more than is allowed."""
    moved, by_kind = [], defaultdict(list)
    for attack, source, gained in gains(attacks, slug, levels, turn):
        by_kind[attack.kind].append(gained)
        if gained > ROUNDING / 4:
            moved.append((str(attack), source, round(gained, 3)))
    assert moved == []
    assert max(map(fmean, by_kind.values())) <= ALLOWED


@pytest.mark.parametrize("slug", CLASSES)
def test_no_attack_moves_a_grade_that_nobody_reads(slug: str) -> None:
    check(list(every())[CLASSES.index(slug) * SLICE // 2 :: SLICE], slug, 1, turn=True)


@pytest.mark.soak
@pytest.mark.parametrize("levels", [1, 9], ids=["one level more", "the highest levels"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slug", CLASSES)
def test_nor_does_any_attack_of_the_corpus_on_any_submission(slug: str, kind: str, levels: int) -> None:
    check(load(kind), slug, levels, turn=False)
