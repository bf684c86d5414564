"""What a stress test shows: changes, noise, verdicts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from grading.statistics.stress_test import TOTAL, UNCHANGED, Trial, assess, badness

MOST = {"a": 10.0, "b": 10.0, TOTAL: 20.0}


def trial(row: str, a: float | None, b: float = 5.0, source: str = "s", **other: object) -> Trial:
    points = {"a": a, "b": b, TOTAL: (a or 0) + b}
    expects = other.pop("expects", "not higher")
    return Trial(source, row, row, expects, points, **other)  # type: ignore[arg-type]


def same(a: float = 5.0, source: str = "s") -> Trial:
    return trial(UNCHANGED, a, source=source, expects="same")


def verdicts(*trials: Trial, row: str = "praise") -> tuple[str, ...]:
    found = assess(trials, MOST).cells
    return tuple(
        found[row, criterion].verdict for criterion in ("a", "b", TOTAL) if (row, criterion) in found
    )


def test_a_gain_moves_grades_and_a_held_one_is_caught() -> None:
    assert verdicts(same(), trial("praise", 7.5)) == ("moved", "firm", "moved")
    assert verdicts(same(), trial("praise", 7.5, held=True)) == ("caught", "firm", "caught")
    assert verdicts(same(), trial("praise", 2.5)) == ("firm", "firm", "firm")
    assert verdicts(same(), trial("praise", 2.5, expects="same")) == ("moved", "firm", "moved")


def test_changes_within_the_noise_of_the_grader_are_none() -> None:
    noisy = (same(5.0), same(7.5))
    assert verdicts(*noisy, trial("praise", 8.5)) == ("firm", "firm", "firm")
    assert verdicts(*noisy, trial("praise", 9.5)) == ("moved", "firm", "moved")
    assert assess(noisy, MOST).noise == {"a": 0.25, "b": 0.0, TOTAL: 0.125}


def test_a_mean_beyond_chance_moves_grades_though_each_change_is_within_the_noise() -> None:
    def of(changes: Sequence[float]) -> list[Trial]:
        sources = [f"s{number}" for number in range(len(changes))]
        base = [same(5.0, source) for source in sources] + [same(7.0, "s0")]
        return [*base, *(trial("praise", 5 + c, source=s) for c, s in zip(changes, sources, strict=True))]

    steady, scattered = of([1.9, 1.0, 1.0, 1.1]), of([1.9, -2.0, 2.0, -1.0])
    assert assess(steady, MOST).cells["praise", "a"].drifted
    assert not assess(scattered, MOST).cells["praise", "a"].drifted


@pytest.mark.parametrize(
    ("points", "held", "said"), [(2.0, False, "firm"), (5.0, False, "moved"), (5.0, True, "caught")]
)
def test_what_must_fall_falls_or_waits(points: float, held: bool, said: str) -> None:
    wrong = trial("wrong value", points, expects="lower", criterion="a", held=held)
    assert verdicts(same(), wrong, row="wrong value") == (said,)
    assert verdicts(same(0.0), wrong, row="wrong value") == ()  # nothing to lose


def test_all_must_fall_where_every_answer_is_gone() -> None:
    found = assess([same(), trial("removed", 0.0, 5.0, expects="lower")], MOST)
    assert {key: cell.verdict for key, cell in found.cells.items()} == {
        ("removed", "a"): "firm",
        ("removed", "b"): "moved",
    }
    assert found.where("moved") == (("removed", "b"),)


def test_what_could_not_be_judged_is_no_change_unless_it_waits() -> None:
    assert verdicts(same(), trial("praise", None)) == ("firm", "firm")
    assert verdicts(same(), trial("praise", None, held=True)) == ("firm", "firm", "firm")


def test_uplift_counts_released_grades_and_the_worst_come_first() -> None:
    trials = [same(), trial("praise", 9.0), trial("praise", 9.0, held=True), trial("length", 6.0)]
    assert assess(trials, MOST).uplift == {"praise": pytest.approx(0.1), "length": pytest.approx(0.05)}
    assert [(one.row, one.held) for _, _, one in badness(trials, MOST)] == [
        ("praise", False), ("length", False), ("praise", True),
    ]  # fmt: skip
