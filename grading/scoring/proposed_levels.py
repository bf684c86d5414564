"""The levels that checks and a model propose for a criterion, each by itself, read from a report."""

from __future__ import annotations

from grading.checks import weighted_mean
from grading.domain.jobs import Judgement
from grading.domain.report import CriterionGrade, Report


def level_of_checks(grade: CriterionGrade) -> float | None:
    """The level by the criterion's checks alone, or nothing where none applies."""
    share = weighted_mean(grade.evidence)
    return None if share is None else round(share * grade.highest, 2)


def judgement_of_model(report: Report, grade: CriterionGrade) -> Judgement | None:
    """What a language model proposed for a criterion, its level within the scale."""
    origin = report.stages.get(grade.stage)
    if origin is None or not origin.uses_model:
        return None
    given = report.stage_output(grade.stage).get("judgements", ())
    found = next((one for one in given if one.criterion == grade.criterion), None)
    return None if found is None else found.model_copy(update={"level": min(found.level, grade.highest)})
