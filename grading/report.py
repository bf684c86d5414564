"""From evidence and results to points: the only place with formulas.

Points of a criterion = its points × level / highest level. The level comes from

- the checks alone, when no model judged the criterion (or only the `rules` engine, which reads the same
  checks): share × highest, a fraction of a level where checks give partial credit;
- the model alone, when the criterion has no checks;
- the mean of both, when they are at most one level apart; further apart, the checks count and the grade is
  held for a person.

No result and no checks: ungraded, never zero. An empty hand-in is the one thing that is zero by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ValidationError

from grading.errors import JobInvalid
from grading.jobs import AnalysisOutput, FeedbackOutput, Judgement, Result
from grading.model import CriterionEvidence, Evidence, Flag, RoundState
from grading.outcome import CriterionGrade, Report
from grading.rubric import Criterion, Rubric

APART = 1.0
"""Levels that model and checks may differ by before a person must look."""

OUTPUTS: Mapping[str, type[BaseModel]] = {"analysis": AnalysisOutput, "feedback": FeedbackOutput}
Basis = Literal["checks", "rules", "model", "checks and model", "ungraded"]


def combine(
    rubric: Rubric, evidence: Evidence, results: Mapping[str, Result], failures: Mapping[str, str]
) -> Report:
    """The report of a round from the accepted result of each stage and a sentence for each dead one."""
    outputs = {stage: _output(result) for stage, result in results.items()}
    judgements = _judgements(outputs)
    flags = [*evidence.flags, *(flag for result in results.values() for flag in result.flags)]
    grades = []
    for criterion in rubric.criteria:
        result = results.get(criterion.stage)
        second_opinion = result is not None and result.provenance.uses_model
        grade, apart = _grade(
            criterion, evidence.of(criterion.id), judgements.get(criterion.id), second_opinion, evidence
        )
        grades.append(grade)
        if apart is not None:
            flags.append(apart)
    status = _status(results, failures)
    flags += _ungraded(grades) if status == RoundState.GRADED else []
    so_far = round(sum(grade.points or 0.0 for grade in grades), 2)
    analysis, feedback = outputs.get("analysis"), outputs.get("feedback")
    whole = status == RoundState.GRADED and all(grade.points is not None for grade in grades)
    return Report(
        status=status,
        criteria=tuple(grades),
        points=so_far if whole else None,
        points_so_far=so_far,
        max_points=rubric.max_points,
        held=any(flag.hold for flag in flags),
        flags=tuple(flags),
        analysis=analysis if isinstance(analysis, AnalysisOutput) else None,
        feedback=feedback if isinstance(feedback, FeedbackOutput) else None,
        stages={stage: result.provenance for stage, result in results.items()},
        failures=dict(failures),
        notice=_notice(results),
    )


def valid(result: Result) -> bool:
    """Whether the output of a result has the shape of its stage; machines are not trusted with that."""
    try:
        _output(result)
    except JobInvalid:
        return False
    return True


def _output(result: Result) -> BaseModel:
    kind = OUTPUTS.get(result.stage)
    if kind is None:
        raise JobInvalid(f"There is no report for a stage called '{result.stage}'.")
    try:
        return kind.model_validate(result.output)
    except ValidationError as error:
        raise JobInvalid(f"The {result.stage} result does not have its shape: {error}") from None


def _judgements(outputs: Mapping[str, BaseModel]) -> dict[str, Judgement]:
    found: dict[str, Judgement] = {}
    for output in outputs.values():
        if isinstance(output, AnalysisOutput | FeedbackOutput):
            found.update({judgement.criterion: judgement for judgement in output.judgements})
    return found


def _grade(
    criterion: Criterion,
    evidence: CriterionEvidence | None,
    judgement: Judgement | None,
    second_opinion: bool,
    everything: Evidence,
) -> tuple[CriterionGrade, Flag | None]:
    share = evidence.share if evidence is not None else None
    proposed = min(judgement.level, criterion.highest) if judgement is not None else None
    level, basis, apart = _level(criterion, share, proposed, second_opinion)
    if everything.added_lines == 0:
        level, basis, apart = 0.0, "checks", None
    points = None if level is None else round(criterion.points * level / criterion.highest, 2)
    grade = CriterionGrade(
        criterion=criterion.id,
        title=criterion.title,
        stage=criterion.stage,
        points=points,
        max_points=criterion.points,
        level=None if level is None else round(level, 2),
        highest=criterion.highest,
        basis=basis,
        # the rules engine's reason only repeats the checks, which are shown anyway
        reason=judgement.reason if judgement is not None and (second_opinion or share is None) else "",
        evidence=evidence.outcomes if evidence is not None else (),
        quotes=judgement.quotes if judgement is not None else (),
    )
    return grade, apart


def _level(
    criterion: Criterion, share: float | None, proposed: int | None, second_opinion: bool
) -> tuple[float | None, Basis, Flag | None]:
    checked = None if share is None else share * criterion.highest
    if checked is None:
        alone: Basis = "model" if second_opinion else "rules"
        return (None, "ungraded", None) if proposed is None else (float(proposed), alone, None)
    if proposed is None or not second_opinion:
        return checked, "checks", None
    if abs(proposed - checked) > APART:
        sentence = (
            f"'{criterion.title}': the checks give level {checked:.1f}, the model {proposed} of "
            f"{criterion.highest}. The checks count until a person decides."
        )
        return checked, "checks", Flag(code="disagreement", message=sentence, hold=True)
    return (checked + proposed) / 2, "checks and model", None


def _ungraded(grades: list[CriterionGrade]) -> list[Flag]:
    return [
        Flag(code="ungraded", message=f"'{grade.title}' could not be judged; a person must.", hold=True)
        for grade in grades
        if grade.points is None
    ]


def _status(results: Mapping[str, Result], failures: Mapping[str, str]) -> RoundState:
    if not results:
        return RoundState.FAILED
    return RoundState.PARTIAL if failures else RoundState.GRADED


def _notice(results: Mapping[str, Result]) -> str:
    if not results:
        return "No part of this report could be written."
    models = sorted({r.provenance.model for r in results.values() if r.provenance.uses_model})
    if not models:
        return (
            "No language model was used: points and words come from fixed rules that look at the code, "
            "its outputs and the text."
        )
    return (
        f"Written by language models ({', '.join(models)}) on the school's own machines. Points are computed "
        "from the rubric's levels and checks; a person can change every one of them."
    )
