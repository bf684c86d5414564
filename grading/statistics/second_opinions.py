"""How far a second opinion agrees with the first model and with the checks, by criterion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from grading.domain.second_opinions import CriterionOpinion
from grading.statistics.agreement import Agreement, agreement


@dataclass(frozen=True)
class OpinionAgreement:
    """Agreement on one criterion."""

    criterion: str
    title: str
    models: Agreement
    """Of the first model and the second."""
    checks: Agreement
    """Of the checks and the second model."""
    apart: int
    """Submissions whose levels are apart."""
    count: int
    """Submissions with a second opinion on the criterion."""


def agreement_by_criterion(opinions: Iterable[CriterionOpinion]) -> tuple[OpinionAgreement, ...]:
    """One row a criterion, in the order in which criteria come first."""
    found: dict[str, list[CriterionOpinion]] = {}
    for one in opinions:
        found.setdefault(one.criterion, []).append(one)
    return tuple(_row(criterion, theirs) for criterion, theirs in found.items())


def _row(criterion: str, theirs: list[CriterionOpinion]) -> OpinionAgreement:
    return OpinionAgreement(
        criterion=criterion,
        title=theirs[-1].title,
        models=agreement([(one.first, one.second) for one in theirs if one.first is not None]),
        checks=agreement([(one.checks, one.second) for one in theirs if one.checks is not None]),
        apart=sum(one.apart for one in theirs),
        count=len(theirs),
    )
