"""The formulas: levels to points, and what holds a grade."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.jobs import Provenance, Result
from grading.model import CheckOutcome, CriterionEvidence, Evidence, Flag, RoundState
from grading.outcome import Report
from grading.report import combine, valid
from grading.rubric import Criterion, Rubric, Words

RUBRIC = Rubric(
    criteria=(
        Criterion(id="clean", title="Cleaning", points=20, checks=(Words(at_least=1),)),
        Criterion(id="style", title="Style", points=10),
        Criterion(id="reflect", title="Reflection", points=10, stage="feedback"),
    )
)


def evidence(share: float | None, added: int = 5, flags: tuple[Flag, ...] = ()) -> Evidence:
    outcome = CheckOutcome(check="c", label="c", earned=share or 0.0)
    return Evidence(
        criteria=(CriterionEvidence(criterion="clean", share=share, outcomes=(outcome,)),),
        added_lines=added,
        flags=flags,
    )


def result(stage: str, levels: dict[str, int], *, model: bool = True) -> Result:
    judged = [{"criterion": c, "level": level} for c, level in levels.items()]
    output: dict[str, Any] = {"judgements": judged}
    if stage == "feedback":
        output |= {"achieved": "a", "reflection": "r", "practice": "p", "next_step": "n"}
    provenance = Provenance(machine="m", engine="e", model="qwen", uses_model=model)
    return Result(run_id=stage, round_id="r", stage=stage, ok=True, output=output, provenance=provenance)


def report(share: float | None, clean: int, *, model: bool = True, **other: Any) -> Report:
    results = {
        "analysis": result("analysis", {"clean": clean, "style": 2}, model=model),
        "feedback": result("feedback", {"reflect": 4}, model=model),
    }
    return combine(RUBRIC, evidence(share, **other), results, {})


def points(made: Report) -> dict[str, float | None]:
    return {grade.criterion: grade.points for grade in made.criteria}


def test_model_and_checks_one_level_apart_are_averaged() -> None:
    made = report(0.75, 4)  # checks: level 3 of 4, model: 4
    assert points(made) == {"clean": 17.5, "style": 5.0, "reflect": 10.0}
    assert (made.points, made.max_points, made.held) == (32.5, 40, False)


def test_further_apart_the_checks_count_and_a_person_decides() -> None:
    made = report(0.25, 4)
    assert points(made)["clean"] == 5.0
    assert made.held
    assert [flag.code for flag in made.flags] == ["disagreement"]


def test_rules_are_no_second_opinion_and_the_report_says_so() -> None:
    made = report(0.9, 4, model=False)
    assert points(made)["clean"] == 18.0
    assert [grade.basis for grade in made.criteria] == ["checks", "rules", "rules"]
    assert "No language model was used" in made.notice


def test_a_criterion_nobody_judged_is_ungraded_not_zero() -> None:
    results = {
        "analysis": result("analysis", {"clean": 3}),
        "feedback": result("feedback", {"reflect": 4}),
    }
    made = combine(RUBRIC, evidence(0.75), results, {})
    assert points(made)["style"] is None
    assert made.points is None
    assert made.held


def test_a_dead_stage_makes_it_partial_without_a_total() -> None:
    made = combine(
        RUBRIC,
        evidence(0.75),
        {"analysis": result("analysis", {"clean": 3, "style": 2})},
        {"feedback": "away"},
    )
    assert (made.status, made.points, made.points_so_far) == (RoundState.PARTIAL, None, 20.0)
    assert made.failures == {"feedback": "away"}


def test_no_stage_at_all_is_failed() -> None:
    made = combine(RUBRIC, evidence(0.75), {}, {"analysis": "x", "feedback": "y"})
    assert (made.status, made.points) == (RoundState.FAILED, None)


def test_an_untouched_starter_earns_nothing_whatever_a_model_says() -> None:
    made = report(None, 4, added=0)
    assert made.points == 0.0


def test_signs_of_manipulation_hold_the_grade() -> None:
    made = report(1.0, 4, flags=(Flag(code="manipulation", message="m", hold=True),))
    assert made.held


@given(share=st.none() | st.floats(0, 1), level=st.integers(0, 9), added=st.integers(0, 3))
def test_points_stay_between_zero_and_the_maximum(share: float | None, level: int, added: int) -> None:
    made = report(share, level, added=added)
    for grade in made.criteria:
        assert grade.points is None or 0 <= grade.points <= grade.max_points
    assert made.points_so_far <= made.max_points + 1e-9


@given(share=st.floats(0, 1), level=st.integers(0, 4))
def test_a_model_moves_a_checked_criterion_by_half_a_level_at_most(share: float, level: int) -> None:
    alone = report(share, level, model=False)
    both = report(share, level)
    step = 20 / 4 / 2
    assert abs((points(both)["clean"] or 0) - (points(alone)["clean"] or 0)) <= step + 0.011


@pytest.mark.parametrize("output", [{}, {"judgements": "all"}, {"judgements": [], "score": 100}])
def test_a_result_without_its_shape_is_not_valid(output: dict[str, Any]) -> None:
    good = result("analysis", {})
    assert valid(good)
    assert not valid(good.model_copy(update={"output": output}))
