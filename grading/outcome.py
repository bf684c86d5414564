"""The combined outcome of a round, as values; the formulas are in `grading/report.py`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grading.jobs import AnalysisOutput, FeedbackOutput, Provenance, Quote
from grading.model import CheckOutcome, Flag, RoundState
from grading.rubric import Value


class CriterionGrade(Value):
    """Points of one criterion, or none when it could not be judged."""

    criterion: str
    title: str
    stage: str
    points: float | None
    max_points: float
    level: float | None
    highest: int
    basis: Literal["checks", "rules", "model", "checks and model", "ungraded"]
    reason: str = ""
    evidence: tuple[CheckOutcome, ...] = ()
    quotes: tuple[Quote, ...] = ()


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
