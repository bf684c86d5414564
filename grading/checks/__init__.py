"""Checks of a submission without a model: the rubric's checks, code facts, signs of manipulation.

Running a submission belongs to workers.sandbox, turning outcomes into points to grading.scoring.
"""

from __future__ import annotations

from collections.abc import Sequence

from grading.checks.context import Context, Finding
from grading.checks.evaluate import FULL, evaluate, outcome
from grading.checks.manipulation.flags import manipulation_flags
from grading.checks.run_flags import run_flags
from grading.checks.scope import Scopes
from grading.checks.work_flags import work_flags
from grading.domain.check import Check, all_checks
from grading.domain.document import Document
from grading.domain.evidence import AdjustmentEvidence, CheckOutcome, CriterionEvidence, Evidence
from grading.domain.rubric import Adjustment, Criterion, Rubric
from grading.execution.plan import RunCheck
from grading.execution.results import Ran

__all__ = ["added_lines", "collect", "weighted_mean"]


def collect(
    documents: Sequence[Document],
    rubric: Rubric,
    solution: Sequence[Document] = (),
    ran: Ran | None = None,
) -> Evidence:
    """Runs every check of the rubric on documents whose cells know what the student added.

    `solution` gives the expected numbers and outputs, `ran` what executions of the work showed; without it,
    checks of behaviour do not apply. Never raises because of what a student wrote.
    """
    mine, solved = Scopes(documents), Scopes(solution)
    found = [
        [evaluate(check, Context(mine, rubric, solved, c.where, ran)) for check in c.checks]
        for c in rubric.criteria
    ]
    criteria = tuple(_criterion(c, findings) for c, findings in zip(rubric.criteria, found, strict=True))
    all_findings = [finding for findings in found for finding in findings]
    return Evidence(
        criteria=criteria,
        flags=manipulation_flags(documents, rubric)
        + work_flags(mine)
        + run_flags(rubric, mine, all_findings, ran),
        added_lines=_added(mine),
        adjustments=tuple(
            _adjustment(a, Context(mine, rubric, solved, a.where, ran)) for a in rubric.adjustments
        ),
    )


def added_lines(documents: Sequence[Document]) -> int:
    """Lines the student wrote, blank ones not counted."""
    return _added(Scopes(documents))


def _added(scopes: Scopes) -> int:
    return sum(len(piece.added) for piece in scopes.find().added)


def _criterion(criterion: Criterion, findings: Sequence[Finding]) -> CriterionEvidence:
    pairs = zip(criterion.checks, findings, strict=True)
    outcomes = tuple(outcome(check, found, n) for n, (check, found) in enumerate(pairs, start=1))
    return CriterionEvidence(criterion=criterion.id, share=weighted_mean(outcomes), outcomes=outcomes)


def _adjustment(adjustment: Adjustment, context: Context) -> AdjustmentEvidence:
    found = [outcome(c, evaluate(c, context), n) for n, c in enumerate(adjustment.unless, start=1)]
    outcomes = tuple(_decided(c, o, context.ran) for c, o in zip(adjustment.unless, found, strict=True))
    return AdjustmentEvidence(adjustment=adjustment.id, outcomes=outcomes)


def _decided(check: Check, found: CheckOutcome, ran: Ran | None) -> CheckOutcome:
    """Without weight where the run that a check needs did not get to its end: that must cost nothing."""
    if ran is None or found.earned >= FULL:
        return found
    inside = (each for each in all_checks((check,)) if isinstance(each, RunCheck))
    asked = [each for inner in inside if (each := ran.plan.of(inner)) is not None]
    lost = any(
        ran.lacking(each.execution) or any(_stopped(ran, path) for path in each.works) for each in asked
    )
    return found.model_copy(update={"weight": 0.0}) if lost else found


def _stopped(ran: Ran, path: str) -> bool:
    """Whether a limit stopped the run of a document, or one of its cells."""
    cells = (ran.played(path) or {}).values()
    return any(path == stopped for stopped, _ in ran.stopped) or any(c.state == "too long" for c in cells)


def weighted_mean(outcomes: Sequence[CheckOutcome]) -> float | None:
    """The weighted mean of what checks earned, or nothing when no check applies."""
    total = sum(o.weight for o in outcomes)
    if total <= 0:
        return None
    return min(1.0, max(0.0, sum(o.earned * o.weight for o in outcomes) / total))
