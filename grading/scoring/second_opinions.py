"""Second opinions: which submissions get one, in which order criteria are judged, and what is apart."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TypeVar

from grading.domain.evidence import Evidence
from grading.domain.jobs import Judgement
from grading.domain.report import Report
from grading.domain.rubric import Criterion
from grading.domain.second_opinions import CriterionOpinion, SecondOpinionPolicy
from grading.scoring.combine import levels_apart

T = TypeVar("T")
DISAGREEMENT = "disagreement"
"""Code of the flag where checks and model are apart."""
_RANGE = 1 << 64


def wants_opinion(policy: SecondOpinionPolicy, submission_id: str, report: Report) -> bool:
    """Whether a submission gets a second opinion: the same answer whenever it is asked."""
    if policy.which == "sample":
        return in_sample(submission_id, policy.share)
    if policy.which == "near":
        return _near(policy, report) or any(flag.code == DISAGREEMENT for flag in report.flags)
    return policy.which == "all"


def in_sample(submission_id: str, share: float) -> bool:
    """Whether a submission is in the sample; those of a smaller sample are in each larger one."""
    drawn = int.from_bytes(sha256(f"second opinion {submission_id}".encode()).digest()[:8], "big")
    return drawn < share * _RANGE


def _near(policy: SecondOpinionPolicy, report: Report) -> bool:
    if report.max_points <= 0:
        return False
    share = report.points_so_far / report.max_points
    return any(abs(share - threshold) <= policy.within + 1e-9 for threshold in policy.thresholds)


def other_order(items: Sequence[T], seed: str) -> tuple[T, ...]:
    """The same items in an order that the seed decides; another one than theirs where there are two."""
    mixed = list(items)
    random.Random(seed).shuffle(mixed)
    return tuple(mixed if mixed != list(items) else [*items[1:], *items[:1]])


def compare_opinions(
    criteria: Sequence[Criterion],
    evidence: Evidence,
    first: Mapping[str, Judgement],
    second: Mapping[str, Judgement],
) -> tuple[CriterionOpinion, ...]:
    """Checks, first and second model beside each other, by criterion; those without a second are left out."""
    return tuple(
        _compared(one, evidence, first.get(one.id), second[one.id]) for one in criteria if one.id in second
    )


def _compared(
    criterion: Criterion, evidence: Evidence, first: Judgement | None, second: Judgement
) -> CriterionOpinion:
    found = evidence.of(criterion.id)
    share = found.share if found is not None else None
    checks = None if share is None else round(share * criterion.highest, 2)
    before = None if first is None else min(first.level, criterion.highest)
    level = min(second.level, criterion.highest)
    return CriterionOpinion(
        criterion=criterion.id,
        title=criterion.title,
        highest=criterion.highest,
        checks=checks,
        first=before,
        second=level,
        reason=second.reason,
        quotes=second.quotes,
        apart=any(levels_apart(criterion, level, one) for one in (before, checks) if one is not None),
    )
