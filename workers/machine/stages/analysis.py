"""The technical review against the rubric."""

from __future__ import annotations

from typing import Any

from grading.domain.jobs import Finding, Job, Judgement, Suggestion
from grading.domain.stages import AnalysisOutput
from workers.machine.stages.base import PLACE_CHARS, Stage, judged, split_place
from workers.machine.stages.schema import Schema, Sizes, many, record, text

_INSTRUCTIONS = """\
You review the technical side of a student's homework in a course where code is used to answer
questions about data. You read the code, its outputs and what the student wrote, and compare them with
the task, criterion by criterion.
Be exact and fair: say what works, what does not, where, and what it leads to. A different way that
answers the question is as good as the expected one. Code that ends in an error, or that nobody has
run, is worth less than code whose output is there. Do not guess at results that are not shown. Where
tests failed, say what the code does with that input and why. Write to the student as "you", in plain
{language}."""


def _answer(job: Job, size: Sizes) -> str:
    return f"""\
Answer with one JSON object and nothing else:
{judged(job, size)}- summary: what the work does and how well, up to {size.chars(300)} characters.
- strengths: up to {size.items(3)}, each names something the student really did, up to
  {size.chars(110)} characters.
- findings: up to {size.items(5)} remarks, the most important first, each with a severity (praise, note,
  minor or major), a title of up to {size.chars(70)} characters, a detail of up to {size.chars(160)}, and in
  "at" its place, such as 1:3:12, or null where there is none.
- suggestions: up to {size.items(2)}, each with what to do, why it matters (up to {size.chars(110)} characters
  each), how to do it (up to {size.chars(150)}), and an example of up to {size.chars(120)} characters in the
  language of the code that does not give the solution away.
Only the reasons may speak of levels, and no text speaks of points."""


def _properties(job: Job, size: Sizes) -> dict[str, Schema]:
    finding = {
        "severity": {"type": "string", "enum": ["praise", "note", "minor", "major"]},
        "title": text(size.chars(70)),
        "detail": text(size.chars(160)),
        "at": {"type": ["string", "null"], "maxLength": PLACE_CHARS},
    }
    suggestion = {
        "what": text(size.chars(110)),
        "why": text(size.chars(110)),
        "how": text(size.chars(150)),
        "example": text(size.chars(120)),
    }
    return {
        "summary": text(size.chars(300)),
        "strengths": many(text(size.chars(110)), size.items(3)),
        "findings": many(record(finding), size.items(5)),
        "suggestions": many(record(suggestion), size.items(2)),
    }


def _build(value: dict[str, Any], judgements: tuple[Judgement, ...], job: Job) -> AnalysisOutput:
    return AnalysisOutput(
        judgements=judgements,
        summary=value["summary"],
        strengths=tuple(value["strengths"]),
        findings=tuple(
            Finding(
                severity=f["severity"],
                title=f["title"],
                detail=f["detail"],
                location=split_place(f["at"] or "", job.documents)[0],
            )
            for f in value["findings"]
        ),
        suggestions=tuple(Suggestion(**s) for s in value["suggestions"]),
    )


STAGE = Stage(
    name="analysis",
    version="analysis/4",
    instructions=_INSTRUCTIONS,
    answer=_answer,
    properties=_properties,
    build=_build,
    full=3_600,
)
