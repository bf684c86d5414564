"""Deductions, caps and bonus: from the points of the criteria to the points of the whole. Pure.

The formula is in docs/reference/assignments.md. Shares are of the maximum of the criteria that an adjustment
concerns, so that what one takes is known beforehand, and no order among deductions matters. Criteria of two
adjustments are the same, nested or separate (`grading.domain.rubric` sees to it): what is inside comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grading.checks.message_parts import clauses
from grading.domain.evidence import CheckOutcome, Evidence, Flag
from grading.domain.messages import define_message
from grading.domain.report import Adjusted, Corrected, CriterionGrade, Report
from grading.domain.report_changes import Change
from grading.domain.rubric import Adjustment, Rubric

NEARLY = 1e-9
"""Means of floating point numbers miss a share by so much."""

UNDECIDED = define_message(
    "flag.undecided",
    "Grader could not decide whether '%(title)s' applies. Until this is reviewed, only the part that "
    "is certain is deducted.",
)
UNDECIDED_FOR = define_message(
    "flag.undecided_for",
    "Grader could not decide whether '%(title)s' applies: %(reason)s. Until this is reviewed, only "
    "the part that is certain is deducted.",
)


def found_adjustments(rubric: Rubric, evidence: Evidence) -> tuple[Adjusted, ...]:
    """Whether each adjustment of a rubric applies, by its checks; points come with `added_up`."""
    outcomes = {one.adjustment: one.outcomes for one in evidence.adjustments}
    return tuple(_found(one, outcomes.get(one.id, ())) for one in rubric.adjustments)


def added_up(
    grades: Sequence[CriterionGrade], adjustments: Sequence[Adjusted], bonus_at_most: float | None
) -> tuple[tuple[Adjusted, ...], float]:
    """The adjustments with the points each takes, and the sum of all points so far."""
    most = {one.criterion: one.max_points for one in grades}
    bonus = {one.criterion for one in grades if one.bonus}
    left = {frozenset({one.criterion}): one.points or 0.0 for one in grades}
    taken: dict[str, float] = {}
    for group in sorted({frozenset(one.criteria) for one in adjustments if one.criteria}, key=len):
        inside = round(sum(left.pop(part) for part in [*left] if part <= group), 2)
        concerning = [one for one in adjustments if frozenset(one.criteria) == group]
        left[group] = _taken(inside, sum(most[name] for name in group), concerning, taken)
    highest = sum(points for name, points in most.items() if name not in bonus)
    regular = round(sum(points for part, points in left.items() if not part & bonus), 2)
    whole = _taken(regular, highest, [one for one in adjustments if not one.criteria], taken)
    whole = round(whole + sum(points for part, points in left.items() if part & bonus), 2)
    if bonus_at_most is not None:
        whole = min(whole, round(highest + bonus_at_most, 2))
    return tuple(one.model_copy(update={"points": taken[one.adjustment]}) for one in adjustments), whole


def undecided_flags(report: Report) -> list[Flag]:
    """A flag for each adjustment that could take more points if its checks could be run."""
    flags = []
    for one in report.adjustments:
        worst = [at_worst(other) if other is one else other for other in report.adjustments]
        if one.undecided and added_up(report.criteria, worst, report.bonus_at_most)[1] < report.points_so_far:
            why = [o.coded for o in one.evidence if not o.weight and o.message]
            said = UNDECIDED_FOR(title=one.title, reason=clauses(why)) if why else UNDECIDED(title=one.title)
            flags.append(Flag.of("adjustment_undecided", said, hold=True))
    return flags


def decided(adjustments: Iterable[Adjusted], changes: Iterable[Change]) -> tuple[Adjusted, ...]:
    """The adjustments as people decided; of each the last word counts."""
    words = {one.target: one for one in changes if one.kind in ("waive", "apply")}
    return tuple(
        _by_person(one, words[one.adjustment]) if one.adjustment in words else one for one in adjustments
    )


def at_worst(one: Adjusted) -> Adjusted:
    """As if no check of it were met."""
    return one.model_copy(update={"applies": True, "deduct": one.at_worst})


def _by_person(one: Adjusted, change: Change) -> Adjusted:
    told = Corrected(by=change.by, reason=change.reason, points=one.points)
    made = at_worst(one) if change.kind == "apply" else one.model_copy(update={"applies": False})
    return made.model_copy(update={"undecided": False, "corrected": told})


def _found(adjustment: Adjustment, outcomes: Sequence[CheckOutcome]) -> Adjusted:
    known = len(outcomes) == len(adjustment.unless)
    weights = [check.weight for check in adjustment.unless]
    # what could not be run, nothing where it could: counted as met, else as not met
    earned = [o.earned if o.weight else None for o in outcomes] if known else [None for _ in weights]
    best, worst = _missing(adjustment, earned, weights, 1.0), _missing(adjustment, earned, weights, 0.0)
    times = len(weights) if adjustment.each else 1
    return Adjusted(
        adjustment=adjustment.id,
        title=adjustment.title,
        description=adjustment.description,
        criteria=adjustment.criteria,
        deduct=None if adjustment.deduct is None else min(1.0, adjustment.deduct * best),
        at_worst=None if adjustment.deduct is None else min(1.0, adjustment.deduct * times),
        cap=adjustment.cap,
        applies=best > 0,
        undecided=worst > best,
        evidence=tuple(outcomes),
    )


def _missing(
    adjustment: Adjustment, earned: Sequence[float | None], weights: Sequence[float], unknown: float
) -> float:
    """How often a deduction is taken: 0 where the checks are met, 1 where not, between them if `partly`."""
    shares = [unknown if one is None else one for one in earned]
    if not adjustment.each:
        shares = [sum(s * w for s, w in zip(shares, weights, strict=True)) / sum(weights)]
    lacking = [max(0.0, 1.0 - share / adjustment.at_least) for share in shares]
    return sum((one if adjustment.partly else 1.0) for one in lacking if one > NEARLY)


def _taken(points: float, most: float, adjustments: Sequence[Adjusted], taken: dict[str, float]) -> float:
    """What is left of so many points; notes what each adjustment takes. Deductions first, then caps."""
    for one in sorted(adjustments, key=lambda one: one.cap is not None):
        # what is wanted is rounded, not what is left: else the order of two would matter
        wanted = round((one.deduct or 0.0) * most, 2)
        if one.cap is not None:
            wanted = round(points - round(one.cap * most, 2), 2)
        took = min(max(wanted, 0.0), points) if one.applies else 0.0
        taken[one.adjustment] = took
        points = round(points - took, 2)
    return points
