"""The report of a round, as values: points, adjustments, comments; formulas are in `grading.scoring`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from grading.domain.base_value import Value
from grading.domain.document import Location
from grading.domain.evidence import CheckOutcome, Flag
from grading.domain.jobs import Provenance, Quote
from grading.domain.messages import Message, Params, verbatim
from grading.domain.round_states import RoundState
from grading.domain.stages import AnalysisOutput, FeedbackOutput, StageOutput

Basis = Literal["checks", "rules", "model", "checks and model", "ungraded", "person"]


def _nothing(value: object) -> bool:
    """Left out of JSON: what was combined has no changes in it."""
    return value is None or value is False or value == "" or value == ()


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
    change: int = Field(default=0, exclude=True)
    """The change that added it."""


class AppliedItem(Value):
    """A rubric item that a person applied to a criterion."""

    item: str
    text: str
    points: float
    """More, or less where negative; together with the level's points they stay between 0 and the maximum."""
    by: str = ""


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
    bonus: bool = Field(default=False, exclude_if=_nothing)
    """Its points come on top of the maximum."""
    items: tuple[AppliedItem, ...] = Field(default=(), exclude_if=_nothing)
    """Rubric items that people applied; `points` includes theirs, `level` does not."""
    points_before_items: float | None = Field(default=None, exclude_if=lambda points: points is None)
    """Where there are items and points."""
    confidence: int | None = Field(default=None, exclude_if=_nothing)
    """The model's own in its level, in per cent; for staff."""

    @property
    def level_points(self) -> float | None:
        """The points without rubric items; nothing where it could not be judged."""
        return self.points if self.points_before_items is None else self.points_before_items


class Adjusted(Value):
    """An adjustment of the rubric in a report: whether it applies, and the points it takes."""

    adjustment: str
    title: str
    description: str = ""
    criteria: tuple[str, ...] = ()
    """Ids of the criteria it concerns; none is the whole."""
    deduct: float | None = None
    """Share of the maximum that it takes as its checks came out; 0 where they are met."""
    at_worst: float | None = None
    """Share of the maximum that it takes when no check is met."""
    cap: float | None = None
    """Share of the maximum that is left at most."""
    applies: bool
    """By its checks, or as a person decided."""
    undecided: bool = False
    """A check could not be run, and it might take more."""
    points: float = 0.0
    """Taken; never more than there were."""
    evidence: tuple[CheckOutcome, ...] = ()
    corrected: Corrected | None = Field(default=None, exclude_if=_nothing)
    """A person waived or applied it; its points are those taken before."""


class Report(Value):
    """The combined outcome of a round."""

    status: RoundState
    criteria: tuple[CriterionGrade, ...]
    points: float | None
    """The total; nothing while a stage is missing (then see `points_so_far`)."""
    points_so_far: float
    max_points: float
    """Without those of bonus criteria; `points` may be more."""
    held: bool = False
    flags: tuple[Flag, ...] = ()
    analysis: AnalysisOutput | None = None
    feedback: FeedbackOutput | None = None
    outputs: dict[str, dict[str, Any]] = Field(default_factory=dict, exclude_if=lambda found: not found)
    """What other stages answered, by stage, with the fields of their row's output but for judgements."""
    stages: dict[str, Provenance] = Field(default_factory=dict)
    failures: dict[str, str] = Field(default_factory=dict)
    """For a stage without a result, the sentence that says why, in English."""
    failure_messages: dict[str, Message] = Field(default_factory=dict, exclude_if=lambda found: not found)
    """The same as coded messages; without those that an older version wrote."""
    notice: str = ""
    """Who or what wrote this report, in plain words. In English."""
    notice_code: str = Field(default="", exclude_if=_nothing)
    notice_params: Params = Field(default_factory=dict, exclude_if=lambda found: not found)
    comments: tuple[PersonComment, ...] = Field(default=(), exclude_if=_nothing)
    corrected: dict[str, Corrected] = Field(default_factory=dict, exclude_if=lambda found: not found)
    """What people changed of the words, by target (`grading.domain.report_changes`), such as `finding:2`."""
    adjustments: tuple[Adjusted, ...] = Field(default=(), exclude_if=_nothing)
    bonus_at_most: float | None = Field(default=None, exclude_if=lambda most: most is None)

    def stage_output(self, stage: str) -> Mapping[str, Any]:
        """What a stage answered, by the fields of its output; empty where it has no result."""
        own = getattr(self, stage, None)
        return dict(own) if isinstance(own, StageOutput) else self.outputs.get(stage, {})

    def with_text(self, stage: str, name: str, text: str) -> Report:
        """The report with another text in this field of what the stage answered."""
        own = getattr(self, stage, None)
        if isinstance(own, StageOutput):
            return self.model_copy(update={stage: own.model_copy(update={name: text})})
        outputs = {**self.outputs, stage: {**self.outputs[stage], name: text}}
        return self.model_copy(update={"outputs": outputs})

    @property
    def coded_notice(self) -> Message:
        """Who or what wrote this report, to be rendered in a language."""
        return Message(code=self.notice_code, params=self.notice_params, message=self.notice)

    @property
    def failed(self) -> dict[str, Message]:
        """Stages without a result, and why."""
        return {
            stage: self.failure_messages.get(stage) or verbatim(sentence)
            for stage, sentence in self.failures.items()
        }

    @property
    def bonus_lost(self) -> float:
        """Points of the criteria, less adjustments, that lie above what bonus may add."""
        if self.bonus_at_most is None:
            return 0.0
        judged = sum(one.points or 0.0 for one in self.criteria)
        taken = sum(one.points for one in self.adjustments)
        return max(0.0, round(judged - taken - self.points_so_far, 2))
