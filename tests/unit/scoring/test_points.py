"""The formulas: levels to points, and what holds a grade."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.checks.kinds.prose import Words
from grading.domain.document import Cell, Document
from grading.domain.evidence import CheckOutcome, CriterionEvidence, Evidence, Flag
from grading.domain.jobs import Provenance, Result
from grading.domain.messages import verbatim
from grading.domain.report import Report
from grading.domain.round_states import RoundState
from grading.domain.rubric import Criterion, Rubric
from grading.scoring import combine, valid

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


@pytest.mark.parametrize(
    ("digests", "model", "flagged"),
    [
        (("sha256:aa", "sha256:bb"), "qwen", True),
        (("sha256:aa", "sha256:aa"), "qwen", False),
        (("sha256:aa", ""), "qwen", False),  # one engine does not tell
        (("sha256:aa", "sha256:bb"), "gemma", False),
    ],
)
def test_parts_with_other_weights_under_one_name_are_flagged(
    digests: tuple[str, str], model: str, flagged: bool
) -> None:
    first, second = result("analysis", {"clean": 3, "style": 2}), result("feedback", {"reflect": 4})
    first = first.model_copy(
        update={"provenance": first.provenance.model_copy(update={"digest": digests[0], "machine": "a"})}
    )
    how = second.provenance.model_copy(update={"digest": digests[1], "machine": "b", "model": model})
    second = second.model_copy(update={"provenance": how})
    made = combine(RUBRIC, evidence(0.75), {"analysis": first, "feedback": second}, {})
    found = [flag for flag in made.flags if flag.code == "other_weights"]
    assert [(flag.hold, "aa on a; bb on b" in flag.message) for flag in found] == [(False, True)] * flagged


def test_further_apart_the_checks_count_and_a_person_decides() -> None:
    made = report(0.25, 4)
    assert points(made)["clean"] == 5.0
    assert made.held
    # nor is the highest level for the reflection borne by such work
    assert [flag.code for flag in made.flags] == ["disagreement", "unsupported"]


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
        {"feedback": verbatim("away")},
    )
    assert (made.status, made.points, made.points_so_far) == (RoundState.PARTIAL, None, 20.0)
    assert made.failures == {"feedback": "away"}


def test_no_stage_at_all_is_failed() -> None:
    made = combine(RUBRIC, evidence(0.75), {}, {"analysis": verbatim("x"), "feedback": verbatim("y")})
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


ONLY_MODELS = Rubric(
    criteria=(
        Criterion(id="clean", title="Cleaning", points=20),
        Criterion(id="reflect", title="Reflection", points=10, stage="feedback"),
    )
)
QUOTED = {"text": "sales are low", "location": {"document": "work.md", "cell": None, "line": 3}}


def unsupported(made: Report) -> list[str]:
    """Titles of the criteria whose level nothing bears."""
    return [flag.message for flag in made.flags if flag.code == "unsupported"]


def kind_feedback(level: int, **other: Any) -> dict[str, Result]:
    """An analysis that agrees with checks of 0.25, and feedback of some level."""
    return {
        "analysis": result("analysis", {"clean": 1, "style": 1}, **other),
        "feedback": result("feedback", {"reflect": level}, **other),
    }


@pytest.mark.parametrize(("share", "level", "held"), [(0.25, 4, True), (0.25, 3, False), (0.5, 4, False)])
def test_a_level_without_checks_far_above_those_of_the_work_waits(
    share: float, level: int, held: bool
) -> None:
    results = kind_feedback(level) | {"analysis": result("analysis", {"clean": round(share * 4), "style": 1})}
    made = combine(RUBRIC, evidence(share), results, {})
    assert made.held is held
    assert points(made)["reflect"] == level * 2.5  # nobody loses points by a flag


def test_what_both_stages_say_is_said_once() -> None:
    said = Flag(code="invisible_text", message="There is text that cannot be seen.")
    told = {stage: one.model_copy(update={"flags": (said,)}) for stage, one in kind_feedback(1).items()}
    assert len(told) > 1
    made = combine(RUBRIC, evidence(0.5, flags=(said,)), told, {})
    assert made.flags.count(said) == 1


def test_rules_need_no_support() -> None:
    assert not combine(RUBRIC, evidence(0.25), kind_feedback(4, model=False), {}).held


def test_a_model_that_agrees_with_failing_checks_is_trusted_with_the_rest_of_its_stage() -> None:
    results = {"analysis": result("analysis", {"clean": 1, "style": 4})}
    assert unsupported(combine(RUBRIC, evidence(0.25), results, {})) == []
    talked_over = {"analysis": result("analysis", {"clean": 4, "style": 4})}
    assert len(unsupported(combine(RUBRIC, evidence(0.25), talked_over, {}))) == 1


def test_the_whole_of_a_short_scale_is_further_apart_than_allowed() -> None:
    short = Criterion(id="clean", title="C", points=10, levels=("no", "yes"), checks=(Words(at_least=1),))
    results = {"analysis": result("analysis", {"clean": 1})}
    made = combine(Rubric(criteria=(short,)), evidence(0.2), results, {})
    assert (made.held, points(made)["clean"]) == (True, 2.0)


@pytest.mark.parametrize(
    ("own", "quote", "held"),
    [
        (range(1, 6), True, False),
        (range(1, 6), False, True),  # the highest level needs words of the student's own
        ((1, 2), True, True),  # the quote is a line of the starter
        ((1,), True, True),  # next to nothing was written
    ],
)
def test_the_highest_level_without_checks_needs_own_words(own: Any, quote: bool, held: bool) -> None:
    lines = [
        "the north earns most of all",
        "and the east least",
        "sales are low",
        "since prices fell",
        "so I wait",
    ]
    text = Cell(number=1, kind="markdown", source="\n".join(lines), added=tuple(own))
    work = Document(path="work.md", kind="prose", language="markdown", cells=(text,))
    judged = {"criterion": "clean", "level": 4, "quotes": [QUOTED] if quote else []}
    given = result("analysis", {}).model_copy(update={"output": {"judgements": [judged]}})
    results = {"analysis": given, "feedback": result("feedback", {"reflect": 1})}
    made = combine(ONLY_MODELS, Evidence(added_lines=3), results, {}, [work])
    assert made.held is held


def test_a_perfect_result_that_no_check_confirms_waits() -> None:
    results = {
        "analysis": result("analysis", {"clean": 4}),
        "feedback": result("feedback", {"reflect": 4}),
    }
    assert combine(ONLY_MODELS, Evidence(added_lines=3), results, {}).held
    results["feedback"] = result("feedback", {"reflect": 3})
    assert not combine(ONLY_MODELS, Evidence(added_lines=3), results, {}).held


def test_an_untouched_starter_earns_only_what_checks_of_the_given_say() -> None:
    assert points(report(0.0, 4, added=0)) == {"clean": 0.0, "style": 0.0, "reflect": 0.0}
    assert points(report(None, 4, added=0))["clean"] == 0.0
    assert points(report(0.5, 4, added=0)) == {"clean": 10.0, "style": 0.0, "reflect": 0.0}
