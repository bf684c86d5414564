"""What can be found in a hand-in without a model: the rubric's checks, and flags for a person."""

from __future__ import annotations

from collections.abc import Sequence

from grading.evidence.checks import outcome
from grading.evidence.context import Context
from grading.evidence.flags import work_flags
from grading.evidence.manipulation import manipulation_flags
from grading.evidence.run_flags import run_flags
from grading.evidence.scope import Scopes
from grading.model import CheckOutcome, CriterionEvidence, Document, Evidence
from grading.rubric import Criterion, Rubric
from grading.trials.ran import Ran

__all__ = ["added_lines", "collect"]


def collect(
    documents: Sequence[Document],
    rubric: Rubric,
    solution: Sequence[Document] = (),
    ran: Ran | None = None,
) -> Evidence:
    """Runs every check of the rubric on documents whose cells know what the student added.

    `solution` gives the expected numbers and outputs, `ran` what trials of the work showed; without it,
    checks of behaviour do not apply. Never raises because of what a student wrote.
    """
    mine, solved = Scopes(documents), Scopes(solution)
    criteria = tuple(_criterion(c, Context(mine, rubric, solved, c.where, ran)) for c in rubric.criteria)
    return Evidence(
        criteria=criteria,
        flags=manipulation_flags(documents) + work_flags(mine) + run_flags(rubric, mine, criteria, ran),
        added_lines=_added(mine),
    )


def added_lines(documents: Sequence[Document]) -> int:
    """Lines the student wrote, blank ones not counted."""
    return _added(Scopes(documents))


def _added(scopes: Scopes) -> int:
    return sum(len(piece.added) for piece in scopes.find().added)


def _criterion(criterion: Criterion, context: Context) -> CriterionEvidence:
    outcomes = tuple(outcome(c, context, n) for n, c in enumerate(criterion.checks, start=1))
    return CriterionEvidence(criterion=criterion.id, share=_mean(outcomes), outcomes=outcomes)


def _mean(outcomes: Sequence[CheckOutcome]) -> float | None:
    """The weighted mean, or nothing when no check applies."""
    total = sum(o.weight for o in outcomes)
    if total <= 0:
        return None
    return min(1.0, max(0.0, sum(o.earned * o.weight for o in outcomes) / total))
