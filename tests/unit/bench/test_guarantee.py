"""The guarantee holds for planted graders, releases what it should, and drift takes it back."""

from __future__ import annotations

import pytest

from bench.guarantee.command import at_most, of_oracle, submissions_table, table
from bench.guarantee.graders import GRADERS
from bench.guarantee.simulation import simulate, simulate_drift
from bench.guarantee.submissions import PlantedClass, planted_classes, simulate_submissions
from grading.statistics.release_guarantee import Target

BY_NAME = {grader.name: grader for grader in GRADERS}


@pytest.mark.parametrize("name", ["two kinds", "adversarial 2 %"])
def test_few_classes_exceed_the_target(name: str) -> None:
    row = simulate(BY_NAME[name], 40, 400, 100, Target(), seed=3)
    assert row.exceeded / row.classes <= at_most(0.05, row.classes)
    assert 0 < row.unread < row.released < row.oracle
    assert name in table([row])


def test_few_classes_of_whole_submissions_exceed_the_target() -> None:
    """Submissions with three criteria, which are as hard in each."""
    row = simulate_submissions(
        PlantedClass(BY_NAME["sharp"], 3, "hard in all"), 20, 400, 100, Target(), seed=3
    )
    assert row.exceeded / row.classes <= at_most(0.05, row.classes)
    assert 0 < row.unread < row.released < row.oracle
    assert "| sharp | 3 |" in submissions_table([row])


def test_few_classes_exceed_a_target_of_all_criteria_together() -> None:
    """The same with single levels, half as many."""
    planted = PlantedClass(BY_NAME["sharp"], 3, "hard in all")
    row = simulate_submissions(planted, 20, 400, 150, Target(), seed=3, together=True)
    assert row.exceeded / row.classes <= at_most(0.05, row.classes)
    assert 0 < row.unread <= row.released < row.oracle


@pytest.mark.parametrize(("classes", "opinions"), [(40, False), (10, True)])
def test_drift_takes_the_proof_back(classes: int, opinions: bool) -> None:
    found = simulate_drift(classes, 400, seed=3, opinions=opinions)
    assert found.in_time == found.classes
    assert found.false_alarms / found.classes <= at_most(0.05, found.classes)


@pytest.mark.soak
def test_2_000_classes_of_each_planted_grader() -> None:
    rows = [simulate(grader, 2_000, 400, 100, Target(), seed=1) for grader in GRADERS]
    for one in rows:
        assert one.exceeded / one.classes <= at_most(0.05, one.classes), one
    assert of_oracle(rows) >= 0.7
    for opinions in (False, True):
        found = simulate_drift(2_000, 400, seed=1, opinions=opinions)
        assert found.in_time / found.classes >= 0.95
        assert found.false_alarms / found.classes <= at_most(0.05, found.classes)


@pytest.mark.soak
@pytest.mark.parametrize("criteria", [3, 6])
def test_400_classes_of_whole_submissions_of_each_kind(criteria: int) -> None:
    for planted in planted_classes(criteria):
        row = simulate_submissions(planted, 400, 400, 100, Target(), seed=1)
        assert row.exceeded / row.classes <= at_most(0.05, row.classes), row
        assert row.pooled / row.classes <= at_most(0.05, row.classes), row


@pytest.mark.soak
@pytest.mark.parametrize(("criteria", "marks"), [(3, 150), (6, 300)])
def test_400_classes_of_single_levels_of_each_kind(criteria: int, marks: int) -> None:
    rows = [
        simulate_submissions(planted, 400, 400, marks, Target(), seed=1, together=True)
        for planted in planted_classes(criteria)
    ]
    for row in rows:
        assert row.exceeded / row.classes <= at_most(0.05, row.classes), row
    assert sum(row.of_oracle or 0.0 for row in rows) / len(rows) >= 0.7
