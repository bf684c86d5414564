"""The stages of a round: one row each, which configuration, scoring, store, pages and commands read.

What a machine does for a stage stands in the module of workers.machine.stages that has its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from grading.domain.base_value import Value
from grading.domain.jobs import Finding, Judgement, Suggestion
from grading.domain.messages import MessageType, define_message
from grading.domain.rubric import Rubric


class StageOutput(Value):
    """What every stage answers."""

    judgements: tuple[Judgement, ...]


class AnalysisOutput(StageOutput):
    """The technical review."""

    summary: str = ""
    strengths: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()


class FeedbackOutput(StageOutput):
    """The personal feedback."""

    achieved: str
    reflection: str
    strengths: tuple[str, ...] = ()
    practice: str
    develop: tuple[str, ...] = ()
    next_step: str


class SecondOpinionOutput(StageOutput):
    """The levels that a model of another family gives."""


@dataclass(frozen=True)
class StageRow:
    """One stage."""

    name: str
    title: MessageType
    output: type[StageOutput]
    """What a valid result holds."""
    max_output_tokens: int
    """Tokens of the longest answer, unless config.toml says otherwise."""
    written: tuple[str, ...]
    """Fields of the answer that are written to the student, and shown while they come."""
    field_titles: Mapping[str, MessageType] = field(default_factory=dict)
    """Titles of these fields for who changes them; the title of the stage, where one has none."""
    judges: str = ""
    """What its criteria are about, for a model that drafts a rubric."""
    always: bool = True
    """Every round has it; else only those whose rubric has a criterion for it."""
    background: bool = False
    """No round that grades has it, and no criterion belongs to it: machines do it when all else is done."""

    @property
    def editable(self) -> tuple[str, ...]:
        """Fields of `written` that are one text: a person may put it in other words."""
        return tuple(name for name in self.written if self.output.model_fields[name].annotation is str)

    def field_title(self, name: str) -> MessageType:
        """The title of a field of the answer."""
        return self.field_titles.get(name, self.title)


SECOND_OPINION = "second_opinion"

STAGES: Mapping[str, StageRow] = {
    row.name: row
    for row in (
        StageRow(
            name="analysis",
            title=define_message("stage.analysis", "Technical review"),
            output=AnalysisOutput,
            max_output_tokens=1200,
            written=("summary", "strengths", "suggestions"),
            judges="the code, its results and how they are shown",
        ),
        StageRow(
            name="feedback",
            title=define_message("stage.feedback", "Personal feedback"),
            output=FeedbackOutput,
            max_output_tokens=800,
            written=("achieved", "reflection", "strengths", "practice", "develop", "next_step"),
            field_titles={
                "achieved": define_message("stage.feedback.achieved", "What was achieved"),
                "reflection": define_message("stage.feedback.reflection", "Your thinking"),
                "practice": define_message("stage.feedback.practice", "In practice"),
                "next_step": define_message("stage.feedback.next_step", "Your next step"),
            },
            judges="written reflection, explanations and ideas",
        ),
        StageRow(
            name=SECOND_OPINION,
            title=define_message("stage.second_opinion", "Second opinion"),
            output=SecondOpinionOutput,
            max_output_tokens=900,
            written=(),
            always=False,
            background=True,
        ),
    )
}


def is_background(stage: str) -> bool:
    """Whether machines do this stage only when all else is done."""
    row = STAGES.get(stage)
    return row is not None and row.background


def grading_stages(stages: Iterable[str]) -> tuple[str, ...]:
    """Those of these stages that grading waits for."""
    return tuple(stage for stage in stages if not is_background(stage))


@dataclass(frozen=True)
class Written:
    """What a stage wrote to the student, of a stage whose output the report has no field for."""

    stage: str
    title: MessageType
    parts: Mapping[str, str | tuple[str, ...]]
    """Field -> paragraph or list, in the order of the row's `written`; empty ones are left out."""

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it as lines of plain text, those of lists with a dash."""
        return tuple(
            line
            for part in self.parts.values()
            for line in ([part] if isinstance(part, str) else [f"- {one}" for one in part])
        )


def written(outputs: Mapping[str, Mapping[str, Any]]) -> tuple[Written, ...]:
    """The texts of these outputs (`Report.outputs`), in the order of the rows."""
    found = []
    for row in STAGES.values():
        values = {name: outputs.get(row.name, {}).get(name) for name in row.written}
        parts = {
            name: tuple(map(str, one)) if isinstance(one, list | tuple) else str(one)
            for name, one in values.items()
            if one
        }
        if parts:
            found.append(Written(row.name, row.title, parts))
    return tuple(found)


def editable_fields() -> dict[str, MessageType]:
    """`STAGE.FIELD` -> its title, of every text of a report that a person may put in other words."""
    return {f"{row.name}.{name}": row.field_title(name) for row in STAGES.values() for name in row.editable}


def stages_of(rubric: Rubric) -> tuple[str, ...]:
    """The stages of a round, by name: those that every round has, and any other that has criteria."""
    named = {criterion.stage for criterion in rubric.criteria}
    return tuple(sorted({row.name for row in STAGES.values() if row.always} | named))
