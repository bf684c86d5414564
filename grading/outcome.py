"""The combined outcome of a round, as values; the formulas are in `grading/report/`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grading.jobs import AnalysisOutput, FeedbackOutput, Provenance, Quote
from grading.model import CheckOutcome, Flag, Location, RoundState
from grading.rubric import Value

Basis = Literal["checks", "rules", "model", "checks and model", "ungraded", "person"]


def _nothing(value: object) -> bool:
    """Left out of JSON: what was combined has no changes in it."""
    return value is None or value == "" or value == ()


class Corrected(Value):
    """What a person changed, and what stood there before."""

    by: str = ""
    reason: str = ""
    points: float | None = None
    """Before; nothing where it could not be judged, or the points were not changed."""
    text: str = ""
    """Before."""


class PersonComment(Value):
    """A comment that a person added."""

    text: str
    by: str
    location: Location | None = None


class CriterionGrade(Value):
    """Points of one criterion, or none when it could not be judged."""

    criterion: str
    title: str
    stage: str
    points: float | None
    max_points: float
    level: float | None
    highest: int
    basis: Basis
    reason: str = ""
    evidence: tuple[CheckOutcome, ...] = ()
    quotes: tuple[Quote, ...] = ()
    corrected: Corrected | None = Field(default=None, exclude_if=_nothing)


class Report(Value):
    """The combined outcome of a round."""

    status: RoundState
    criteria: tuple[CriterionGrade, ...]
    points: float | None
    """The total; nothing while a stage is missing (then see `points_so_far`)."""
    points_so_far: float
    max_points: float
    held: bool = False
    flags: tuple[Flag, ...] = ()
    analysis: AnalysisOutput | None = None
    feedback: FeedbackOutput | None = None
    stages: dict[str, Provenance] = Field(default_factory=dict)
    failures: dict[str, str] = Field(default_factory=dict)
    """For a stage without a result, the sentence that says why."""
    notice: str = ""
    """Who or what wrote this report, in plain words."""
    comments: tuple[PersonComment, ...] = Field(default=(), exclude_if=_nothing)
    corrected: dict[str, Corrected] = Field(default_factory=dict, exclude_if=lambda found: not found)
    """What people changed of the words, by target (`grading/changes.py`), such as `finding:2`."""
