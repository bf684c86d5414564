"""The stages of a round: one row each, which configuration, scoring, store, pages and commands read.

What a machine does for a stage stands in the module of workers.machine.stages that has its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grading.domain.jobs import Finding, Judgement, Suggestion
from grading.domain.rubric import Rubric
from grading.domain.value import Value


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


@dataclass(frozen=True)
class StageRow:
    """One stage."""

    name: str
    title: str
    """For people, in English; pages translate it."""
    output: type[StageOutput]
    """What a valid result holds."""
    max_output_tokens: int
    """Tokens of the longest answer, unless config.toml says otherwise."""
    written: tuple[str, ...]
    """Fields of the answer that are written to the student, and shown while they come."""
    always: bool = True
    """Every round has it; else only those whose rubric has a criterion for it."""


STAGES: Mapping[str, StageRow] = {
    row.name: row
    for row in (
        StageRow(
            name="analysis",
            title="Technical review",
            output=AnalysisOutput,
            max_output_tokens=1200,
            written=("summary", "strengths", "suggestions"),
        ),
        StageRow(
            name="feedback",
            title="Personal feedback",
            output=FeedbackOutput,
            max_output_tokens=800,
            written=("achieved", "reflection", "strengths", "practice", "develop", "next_step"),
        ),
    )
}


@dataclass(frozen=True)
class Written:
    """What a stage wrote to the student, of a stage whose output the report has no field for."""

    stage: str
    title: str
    parts: tuple[str | tuple[str, ...], ...]
    """Paragraphs and lists, in the order of the row's `written`; empty ones are left out."""


def written(outputs: Mapping[str, Mapping[str, Any]]) -> tuple[Written, ...]:
    """The texts of these outputs (`Report.outputs`), in the order of the rows."""
    found = []
    for row in STAGES.values():
        values = [outputs.get(row.name, {}).get(name) for name in row.written]
        parts = [tuple(map(str, one)) if isinstance(one, list | tuple) else str(one) for one in values if one]
        if parts:
            found.append(Written(row.name, row.title, tuple(parts)))
    return tuple(found)


def stages_of(rubric: Rubric) -> tuple[str, ...]:
    """The stages of a round, by name: those that every round has, and any other that has criteria."""
    named = {criterion.stage for criterion in rubric.criteria}
    return tuple(sorted({row.name for row in STAGES.values() if row.always} | named))
