"""What checks and a model propose for a criterion; a confirmation when it is graded again."""

from __future__ import annotations

from typing import Any

from grading.domain.evidence import CheckOutcome
from grading.domain.jobs import Judgement, Provenance
from grading.domain.report import CriterionGrade, Report
from grading.domain.report_changes import Change
from grading.domain.round_states import RoundState
from grading.domain.stages import AnalysisOutput
from grading.scoring import changed
from grading.scoring.carry_over import carried
from grading.scoring.proposed_levels import judgement_of_model, level_of_checks

OUTCOMES = (
    CheckOutcome(check="a", label="a", earned=1, weight=3),
    CheckOutcome(check="b", label="b", earned=0),
)


def criterion(name: str = "load", **changes: Any) -> CriterionGrade:
    values = {
        "criterion": name,
        "title": name,
        "stage": "analysis",
        "points": 4.0,
        "max_points": 4,
        "level": 4,
    }
    return CriterionGrade(**{**values, "highest": 4, "basis": "model", **changes})


def report(*criteria: CriterionGrade, uses_model: bool = True) -> Report:
    judged = AnalysisOutput(judgements=(Judgement(criterion="load", level=4),), summary="")
    origin = Provenance(machine="m", engine="e", model="m", uses_model=uses_model)
    return Report(
        status=RoundState.GRADED, criteria=criteria, points=4, points_so_far=4, max_points=8,
        analysis=judged, stages={"analysis": origin},
    )  # fmt: skip


def test_proposals_are_those_of_checks_and_of_a_model() -> None:
    assert level_of_checks(criterion(evidence=OUTCOMES)) == 3
    assert level_of_checks(criterion()) is None
    judged = [judgement_of_model(report(), criterion(highest=highest)) for highest in (4, 2)]
    assert [one and one.level for one in judged] == [4, 2]
    assert judgement_of_model(report(), criterion("think")) is None
    assert judgement_of_model(report(uses_model=False), criterion()) is None
    assert judgement_of_model(report(), criterion(stage="feedback")) is None


def test_a_confirmation_changes_nothing_and_is_dropped_where_points_are_others() -> None:
    made, agreed = report(criterion()), Change(id=1, kind="confirm", target="load", by="Ada")
    assert changed(made, [agreed]).criteria == made.criteria
    assert carried([agreed], made, made).changes == (agreed,)
    for other in (report(criterion(points=2.0)), report(criterion(max_points=5)), report()):
        assert carried([agreed], made, other) == carried([], made, other)
