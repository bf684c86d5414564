"""From evidence and results to points.

Points of a criterion = its points × level / highest level; how they add up, with deductions, caps and bonus,
is in `grading/scoring/adjustments.py`. The level comes from

- the checks alone, when no model judged the criterion (or only the `rules` engine, which reads the same
  checks): share × highest, a fraction of a level where checks give partial credit;
- the model alone, when the criterion has no checks;
- the mean of both, when they are at most one level, and at most half of the scale, apart; further apart, the
  checks count and the grade is held for a person.

A model's level for a criterion without checks is not taken on trust, whatever the submission says. It is
compared with what bears it, a share from 0 to 1, and when it lies far above (more than a level and more than
`FAR` of the scale) the grade is held for a person:

- nothing bears it where fewer than `FEWEST_WORDS` words of the student's own stand in the submission, or
  `FEWEST_IN_PLACE` in the criterion's place;
- nothing bears the highest level without a quote from a line the student wrote;
- else the share of all checks of the rubric, weighted by points, bears it, unless the same stage's model has
  shown that it judges for itself: it saw a criterion whose checks fail (at most `FAILING`), said so too, and
  was never apart from the checks of its stage.

Where no check of the rubric applies, nothing but models has seen the work: the highest level for everything
then waits for a person, too.

No result and no checks: ungraded, never zero. An empty submission alone is zero by itself; there
only checks that count what the starter gives earn anything.
Holding takes no points from anybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from grading.checks.student_text import OwnWork
from grading.domain.document import Document
from grading.domain.errors import JobInvalid
from grading.domain.evidence import CriterionEvidence, Evidence, Flag
from grading.domain.jobs import Judgement, Result
from grading.domain.messages import Message, define_message
from grading.domain.report import Basis, CriterionGrade, Report
from grading.domain.round_states import RoundState
from grading.domain.rubric import Criterion, Rubric, too_far
from grading.domain.stages import STAGES, AnalysisOutput, FeedbackOutput, StageOutput
from grading.scoring.adjustments import added_up, found_adjustments, undecided_flags
from grading.scoring.model_digests import other_weights

APART = 1.0
"""Levels that model and checks may differ by before a person must look."""
FAR = 0.5
"""Part of the scale a model's level may lie above what bears it."""
FAILING = 0.5
"""Share of a criterion's checks up to which a model that agrees has said something unwelcome."""
FEWEST_WORDS = 12
"""Words of the student's own in the whole submission below which there is nothing to judge."""
FEWEST_IN_PLACE = 6
"""The same for the place that a criterion names."""

DISAGREEMENT = define_message(
    "flag.disagreement",
    "'%(title)s': the checks give level %(checks)s, the model gives level %(model)s of %(highest)s. "
    "The level of the checks counts until this is reviewed.",
)
UNSUPPORTED = define_message(
    "flag.unsupported", "'%(title)s': the model gives level %(level)s of %(highest)s, %(reason)s"
)
ALL_HIGHEST = define_message(
    "flag.all_highest",
    "Every criterion has its highest level, and no check confirms any of them. This needs review.",
)
WROTE_NOTHING = define_message(
    "flag.wrote_nothing",
    "but the student wrote only %(words)s words there. This needs review.",
)
QUOTES_NOTHING = define_message(
    "flag.quotes_nothing", "but quotes no line that the student wrote. This needs review."
)
CHECKS_GIVE = define_message(
    "flag.checks_give", "but the checks of the whole submission earn only %(share)s. This needs review."
)
UNGRADED = define_message("flag.ungraded", "'%(title)s' could not be rated automatically and needs review.")
NOTHING_WRITTEN = define_message(
    "report.nothing_written", "No part of this submission could be graded automatically."
)
BY_RULES = define_message(
    "report.by_rules",
    "No language model was used: points and text come from the rules engine, which reads the code, "
    "its outputs and the text.",
)
BY_MODELS = define_message(
    "report.by_models",
    "Language models (%(models)s) on the school's own machines wrote this and rated the criteria by "
    "level. Points are computed from these levels and from automatic checks. An instructor can "
    "change them.",
)


def combine(
    rubric: Rubric,
    evidence: Evidence,
    results: Mapping[str, Result],
    failures: Mapping[str, Message],
    documents: Sequence[Document] | None = None,
) -> Report:
    """The report of a round from the accepted result of each stage and a sentence for each dead one.

    `documents` are those the machines judged; without them, what was written where is not looked at.
    """
    outputs = {stage: _output(result) for stage, result in results.items()}
    judgements = _judgements(outputs)
    flags = [*evidence.flags, *(flag for result in results.values() for flag in result.flags)]
    grades, apart = _grades(rubric, evidence, results, judgements)
    flags += [*apart, *other_weights(results)]
    flags += _unsupported(rubric, evidence, results, judgements, documents)
    status = _status(results, failures)
    flags += _ungraded(grades) if status == RoundState.GRADED else []
    adjustments, so_far = added_up(grades, found_adjustments(rubric, evidence), rubric.bonus_at_most)
    analysis, feedback = outputs.get("analysis"), outputs.get("feedback")
    made = Report(
        status=status,
        criteria=tuple(grades),
        points=so_far if _whole(status, grades) else None,
        points_so_far=so_far,
        max_points=rubric.max_points,
        analysis=analysis if isinstance(analysis, AnalysisOutput) else None,
        feedback=feedback if isinstance(feedback, FeedbackOutput) else None,
        outputs=_further(outputs),
        stages={stage: result.provenance for stage, result in results.items()},
        failures={stage: said.message for stage, said in failures.items()},
        failure_messages=dict(failures),
        **_notice_fields(results),
        adjustments=adjustments,
        bonus_at_most=rubric.bonus_at_most,
    )
    flags += undecided_flags(made)
    update = {"held": any(flag.hold for flag in flags), "flags": tuple(dict.fromkeys(flags))}
    return made.model_copy(update=update)


def _whole(status: RoundState, grades: Sequence[CriterionGrade]) -> bool:
    return status == RoundState.GRADED and all(grade.points is not None for grade in grades)


def _further(outputs: Mapping[str, StageOutput]) -> dict[str, dict[str, Any]]:
    """What stages answered that have no field of their own in a report."""
    return {
        stage: output.model_dump(mode="json", exclude={"judgements"})
        for stage, output in outputs.items()
        if stage not in Report.model_fields
    }


def valid(result: Result) -> bool:
    """Whether the output of a result has the shape of its stage; machines are not trusted with that."""
    try:
        _output(result)
    except JobInvalid:
        return False
    return True


def _output(result: Result) -> StageOutput:
    row = STAGES.get(result.stage)
    if row is None:
        raise JobInvalid(f"There is no report for a stage called '{result.stage}'.")
    try:
        return row.output.model_validate(result.output)
    except ValidationError as error:
        raise JobInvalid(f"The {result.stage} result does not have its shape: {error}") from None


def _judgements(outputs: Mapping[str, StageOutput]) -> dict[str, Judgement]:
    return {one.criterion: one for output in outputs.values() for one in output.judgements}


def _grades(
    rubric: Rubric, evidence: Evidence, results: Mapping[str, Result], judgements: Mapping[str, Judgement]
) -> tuple[list[CriterionGrade], list[Flag]]:
    """Of each criterion, and where checks and model are too far apart."""
    grades, flags = [], []
    for criterion in rubric.criteria:
        result = results.get(criterion.stage)
        second_opinion = result is not None and result.provenance.uses_model
        grade, apart = _grade(
            criterion, evidence.of(criterion.id), judgements.get(criterion.id), second_opinion, evidence
        )
        grades.append(grade)
        flags += [apart] if apart is not None else []
    return grades, flags


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
        # only a check that counts what the starter gives earns anything here
        level, basis, apart = (share or 0.0) * criterion.highest, "checks", None
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
        bonus=criterion.bonus,
        confidence=judgement.confidence if judgement is not None and second_opinion else None,
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
    if levels_apart(criterion, proposed, checked):
        said = DISAGREEMENT(
            title=criterion.title,
            checks=f"{checked:.1f}",
            model=proposed,
            highest=criterion.highest,
        )
        return checked, "checks", Flag.of("disagreement", said, hold=True)
    return (checked + proposed) / 2, "checks and model", None


def levels_apart(criterion: Criterion, proposed: float, checked: float) -> bool:
    """Whether two levels of a criterion are so far apart that a person must look."""
    return too_far(proposed, checked, criterion.highest, APART)


def _unsupported(
    rubric: Rubric,
    evidence: Evidence,
    results: Mapping[str, Result],
    judgements: Mapping[str, Judgement],
    documents: Sequence[Document] | None,
) -> list[Flag]:
    """A flag for each level of a model, for a criterion without checks, that nothing submitted bears."""
    own = OwnWork(documents) if documents is not None else None
    shown = _shown_share(rubric, evidence)
    flags: list[Flag] = []
    for stage in dict.fromkeys(criterion.stage for criterion in rubric.criteria):
        result = results.get(stage)
        if result is None or not result.provenance.uses_model or evidence.added_lines == 0:
            continue
        general = None if _judges_for_itself(rubric.of_stage(stage), evidence, judgements) else shown
        for criterion in rubric.of_stage(stage):
            judgement = judgements.get(criterion.id)
            if judgement is None or _share(evidence, criterion) is not None:
                continue
            level = min(judgement.level, criterion.highest)
            for borne, sentence in _bearing(criterion, judgement, own, general):
                if level - borne * criterion.highest > max(APART, FAR * criterion.highest):
                    said = UNSUPPORTED(
                        title=criterion.title, level=level, highest=criterion.highest, reason=sentence
                    )
                    flags.append(Flag.of("unsupported", said, hold=True))
                    break
    if shown is None and flags == [] and _all_highest(rubric, results, judgements):
        flags.append(Flag.of("unsupported", ALL_HIGHEST(), hold=True))
    return flags


def _all_highest(rubric: Rubric, results: Mapping[str, Result], judgements: Mapping[str, Judgement]) -> bool:
    judged = [c for c in rubric.criteria if c.stage in results and results[c.stage].provenance.uses_model]
    found = [(c, judgements.get(c.id)) for c in judged]
    return bool(found) and all(j is not None and j.level >= c.highest for c, j in found)


def _bearing(
    criterion: Criterion, judgement: Judgement, own: OwnWork | None, shown: float | None
) -> Iterator[tuple[float, Message]]:
    """Shares that bound what bears a level, each with the sentence for a level far above it."""
    if own is not None:
        words = own.words(criterion.where)
        if words < (FEWEST_WORDS if criterion.where is None else FEWEST_IN_PLACE):
            yield 0.0, WROTE_NOTHING(words=words)
        if judgement.level >= criterion.highest and not any(own.wrote(q.location) for q in judgement.quotes):
            yield 0.0, QUOTES_NOTHING()
    if shown is not None:
        yield shown, CHECKS_GIVE(share=f"{shown:.0%}")


def _share(evidence: Evidence, criterion: Criterion) -> float | None:
    found = evidence.of(criterion.id)
    return found.share if found is not None else None


def _shown_share(rubric: Rubric, evidence: Evidence) -> float | None:
    """The share of all checks, weighted by points; nothing where no check applies."""
    known = [(c.points, share) for c in rubric.criteria if (share := _share(evidence, c)) is not None]
    return (
        sum(points * share for points, share in known) / sum(points for points, _ in known) if known else None
    )


def _judges_for_itself(
    criteria: Sequence[Criterion], evidence: Evidence, judgements: Mapping[str, Judgement]
) -> bool:
    """Whether a stage's model agreed with all checks it could be compared with, failing ones among them."""
    seen_failing = False
    for criterion in criteria:
        share, judgement = _share(evidence, criterion), judgements.get(criterion.id)
        if share is None or judgement is None:
            continue
        if levels_apart(criterion, min(judgement.level, criterion.highest), share * criterion.highest):
            return False
        seen_failing = seen_failing or share <= FAILING
    return seen_failing


def _ungraded(grades: list[CriterionGrade]) -> list[Flag]:
    return [
        Flag.of("ungraded", UNGRADED(title=grade.title), hold=True)
        for grade in grades
        if grade.points is None
    ]


def _status(results: Mapping[str, Result], failures: Mapping[str, Message]) -> RoundState:
    if not results:
        return RoundState.FAILED
    return RoundState.PARTIAL if failures else RoundState.GRADED


def _notice_fields(results: Mapping[str, Result]) -> dict[str, Any]:
    notice = _notice(results)
    return {"notice": notice.message, "notice_code": notice.code, "notice_params": notice.params}


def _notice(results: Mapping[str, Result]) -> Message:
    if not results:
        return NOTHING_WRITTEN()
    models = sorted({r.provenance.model for r in results.values() if r.provenance.uses_model})
    if not models:
        return BY_RULES()
    return BY_MODELS(models=models)
