"""Second opinions as values: which submissions get one, and how far levels of a criterion are apart."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from grading.domain.base_value import Value
from grading.domain.jobs import Quote

REASON = "second opinion"
"""Why a round exists that is none of grading: its machine judges what another one judged."""
PRIORITY = "background"
"""Of such a round: behind interactive and batch work."""
Which = Literal["none", "all", "sample", "near"]


class SecondOpinionPolicy(Value):
    """Which submissions of an assignment get a second opinion."""

    which: Which = "none"
    """`near`: those near a threshold, and those whose checks and model disagree."""
    share: float = Field(default=0.2, gt=0, le=1)
    """Of the submissions, in a sample."""
    thresholds: tuple[float, ...] = Field(default=(0.5,), max_length=12)
    """Shares of the maximum at which a grade changes, such as a pass mark."""
    within: float = Field(default=0.05, ge=0, le=0.5)
    """Share of the maximum within which a submission counts as near a threshold."""

    @field_validator("thresholds")
    @classmethod
    def _shares(cls, thresholds: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0 <= one <= 1 for one in thresholds):
            raise ValueError("thresholds are shares of the maximum, from 0 to 1")
        return tuple(sorted(set(thresholds)))


class CriterionOpinion(Value):
    """The levels of one criterion by checks, first and second model."""

    criterion: str
    title: str
    highest: int
    checks: float | None = None
    """The level by its checks; nothing without checks."""
    first: int | None = None
    """The level of the model that graded; nothing where it gave none."""
    second: int
    reason: str = ""
    """Of the second model."""
    quotes: tuple[Quote, ...] = ()
    """Of the second model."""
    apart: bool = False
    """The second model is more than one level from the first one, or from the checks."""
