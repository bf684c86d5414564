"""What is graded: criteria, their levels and their checks; deductions and caps."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from grading.domain.base_value import InvalidValue, Value
from grading.domain.check import Check
from grading.domain.messages import define_message

TWO_LEVELS = define_message("rubric.two_levels", "needs at least two levels, the lowest first")
EITHER = define_message("rubric.either", "set either deduct or cap")
WITH_DEDUCT = define_message("rubric.with_deduct", "each and partly can only be used with deduct")
NAMED_TWICE = define_message("rubric.named_twice", "names a criterion twice")
CRITERIA_TWICE = define_message("rubric.criteria_twice", "criterion ids must be unique; twice: %(ids)s")
ADJUSTMENTS_TWICE = define_message(
    "rubric.adjustments_twice", "adjustment ids must be unique; twice: %(ids)s"
)
ONLY_BONUS = define_message("rubric.only_bonus", "needs at least one criterion that is not a bonus")
NO_BONUS = define_message(
    "rubric.no_bonus", "bonus_at_most needs a bonus criterion; mark one with bonus = true"
)
UNKNOWN_CRITERION = define_message(
    "rubric.unknown_criterion",
    "adjustment '%(adjustment)s' names no criterion of this rubric: %(criteria)s",
)
BONUS_AND_OTHERS = define_message(
    "rubric.bonus_and_others",
    "adjustment '%(adjustment)s' applies to bonus criteria and to other criteria; split it into two "
    "adjustments",
)
OVERLAP = define_message(
    "rubric.overlap",
    "adjustments '%(first)s' and '%(second)s' share some of their criteria; give both the same "
    "criteria, or none in common",
)
MAX_LEVEL = 4
TINY = 1e-9
"""Smaller differences of levels come from rounding."""
MOST_NOTES = 30
"""Notes of a criterion."""
DEFAULT_LEVELS = ("nothing usable", "a beginning", "partly there", "good", "complete and convincing")


def _unsaid(value: object) -> bool:
    """Left out of JSON: rubrics stored before, and machines that do not know the field, stay as they are."""
    return value is None or value is False or value == ()


class Criterion(Value):
    """One thing that earns points: `points` × level / highest level, computed by `grading.scoring`."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)
    title: str
    description: str = ""
    stage: str = "analysis"
    points: float = Field(gt=0)
    levels: tuple[str, ...] = DEFAULT_LEVELS
    """What each level means, from 0 up; the last is the highest."""
    checks: tuple[Check, ...] = ()
    where: str | None = None
    """Default `where` of the criterion's checks, and where models should look."""
    bonus: bool = Field(default=False, exclude_if=_unsaid)
    """Its points come on top and do not count towards the maximum."""
    notes: tuple[str, ...] = Field(default=(), max_length=MOST_NOTES, exclude_if=_unsaid)
    """For graders: how to judge what the description leaves open. Models read them, students do not."""

    @field_validator("levels")
    @classmethod
    def _two_levels(cls, levels: tuple[str, ...]) -> tuple[str, ...]:
        if len(levels) < 2:
            raise InvalidValue(TWO_LEVELS())
        return levels

    @property
    def highest(self) -> int:
        """The highest level, an integer of at least 1."""
        return len(self.levels) - 1


def too_far(level: float, other: float, highest: int, most: float = 1.0) -> bool:
    """Whether two levels differ by more than `most` levels, or by more than half of a shorter scale."""
    return abs(level - other) > min(most, highest / 2) + TINY


class Adjustment(Value):
    """A deduction, or a cap, of the points of some criteria or of the whole; `grading.scoring` computes it.

    It applies as far as the checks `unless` are not met. Exactly one of `deduct` and `cap` is given.
    """

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)
    title: str
    description: str = ""
    """What students read about it, beside the title."""
    unless: tuple[Check, ...] = Field(min_length=1)
    """It does not apply where these are met; a check that cannot be run counts as met."""
    at_least: float = Field(default=1.0, gt=0, le=1)
    """Share of the checks from which on they count as met: their weighted mean, with `each` every one's."""
    criteria: tuple[str, ...] = Field(default=(), max_length=1_000)
    """Ids of the criteria whose points it concerns; none is the whole, without bonus criteria."""
    deduct: float | None = Field(default=None, gt=0, le=1)
    """Share of the maximum of those criteria that is taken."""
    cap: float | None = Field(default=None, ge=0, lt=1)
    """Share of the maximum of those criteria that they reach at most."""
    each: bool = False
    """Deducts once for every check that is not met, rather than once."""
    partly: bool = False
    """Deducts in proportion to what is lacking, rather than all or nothing."""
    where: str | None = None
    """Default `where` of its checks."""

    @model_validator(mode="after")
    def _one_way(self) -> Adjustment:
        if (self.deduct is None) == (self.cap is None):
            raise InvalidValue(EITHER())
        if self.cap is not None and (self.each or self.partly):
            raise InvalidValue(WITH_DEDUCT())
        if len(set(self.criteria)) != len(self.criteria):
            raise InvalidValue(NAMED_TWICE())
        return self


class Rubric(Value):
    """All criteria of an assignment, with names that count as the same."""

    criteria: tuple[Criterion, ...] = Field(min_length=1)
    equivalents: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """For a name in a check, other names that count (a column renamed in the data)."""
    adjustments: tuple[Adjustment, ...] = Field(default=(), max_length=200, exclude_if=_unsaid)
    """Deductions and caps, from checks. Models neither judge nor see them."""
    bonus_at_most: float | None = Field(default=None, ge=0, exclude_if=lambda value: value is None)
    """Points by which bonus criteria may lift the total above the maximum; without it, all of theirs."""

    @model_validator(mode="after")
    def _unique(self) -> Rubric:
        for not_unique, ids in (
            (CRITERIA_TWICE, [one.id for one in self.criteria]),
            (ADJUSTMENTS_TWICE, [one.id for one in self.adjustments]),
        ):
            twice = sorted({i for i in ids if ids.count(i) > 1})
            if twice:
                raise InvalidValue(not_unique(ids=twice))
        return self

    @model_validator(mode="after")
    def _some_count(self) -> Rubric:
        if all(one.bonus for one in self.criteria):
            raise InvalidValue(ONLY_BONUS())
        if self.bonus_at_most is not None and not any(one.bonus for one in self.criteria):
            raise InvalidValue(NO_BONUS())
        return self

    @model_validator(mode="after")
    def _adjustable(self) -> Rubric:
        bonus = {one.id: one.bonus for one in self.criteria}
        for one in self.adjustments:
            unknown = sorted(set(one.criteria) - set(bonus))
            if unknown:
                raise InvalidValue(UNKNOWN_CRITERION(adjustment=one.id, criteria=unknown))
            if len({bonus[name] for name in one.criteria}) > 1:
                raise InvalidValue(BONUS_AND_OTHERS(adjustment=one.id))
        for n, one in enumerate(self.adjustments):
            for other in self.adjustments[:n]:
                mine, theirs = set(one.criteria), set(other.criteria)
                if mine & theirs and not (mine <= theirs or theirs <= mine):
                    raise InvalidValue(OVERLAP(first=other.id, second=one.id))
        return self

    @property
    def max_points(self) -> float:
        """The sum of the criteria's points; bonus criteria do not count."""
        return sum(criterion.points for criterion in self.criteria if not criterion.bonus)

    def of_stage(self, stage: str) -> tuple[Criterion, ...]:
        """The criteria a stage judges."""
        return tuple(c for c in self.criteria if c.stage == stage)
