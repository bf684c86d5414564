"""The technical review against the rubric."""

from __future__ import annotations

from typing import Any

from grading.jobs import AnalysisOutput, Finding, Job, Judgement, Suggestion
from grading.model import Location
from workers.machine.stages.base import Stage
from workers.machine.stages.shape import Schema, Sizes, many, record, text
from workers.machine.stages.text import visible

_MOST_DOCUMENTS = 40

_INSTRUCTIONS = """\
You review the technical side of a student's homework in a course where code is used to answer
questions about data. You read the code, its outputs and what the student wrote, and compare them
with the task and the criteria.
Be exact and fair: say what works, what does not, where, and what it leads to. A different way that
answers the question is as good as the expected one. Code that ends in an error, or
that nobody has run, is worth less than code whose output is there. Do not guess at results that
are not shown. Where tests failed, say what the code does with that input and why. Write to the
student as "you", in plain English."""


def _answer(job: Job, size: Sizes) -> str:
    return f"""\
Answer with one JSON object and nothing else:
- judgements: for every criterion its quotes (at most {size.quotes}, up to {size.quote} characters
  each), a reason (up to {size.reason} characters), and the level.
- summary: what the work does and how well, up to {size.chars(300)} characters.
- strengths: up to {size.items(3)}, each names something the student really did.
- findings: up to {size.items(5)} remarks, the most important first, each with a severity (praise, note,
  minor or major), a short title, a detail of up to {size.chars(160)} characters, and its place:
  document, cell and line, or null where there is none.
- suggestions: up to {size.items(2)}, each with what to do, why it matters, how to do it, and a short
  example in the student's language that does not give the solution away."""


def _documents(job: Job) -> dict[str, str]:
    """Visible path → path, of as many documents as a schema can name."""
    return {visible(d.path): d.path for d in job.documents[:_MOST_DOCUMENTS]}


def _properties(job: Job, size: Sizes) -> dict[str, Schema]:
    paths = list(_documents(job))
    whole: Schema = {"type": ["integer", "null"]}
    finding = {
        "severity": {"type": "string", "enum": ["praise", "note", "minor", "major"]},
        "title": text(size.chars(70)),
        "detail": text(size.chars(160)),
        "document": {"type": ["string", "null"], "enum": [*paths, None]} if paths else {"type": "null"},
        "cell": whole,
        "line": whole,
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
    paths = _documents(job)

    def place(given: dict[str, Any]) -> Location | None:
        path = paths.get(given["document"])
        return Location(document=path, cell=given["cell"], line=given["line"]) if path is not None else None

    return AnalysisOutput(
        judgements=judgements,
        summary=value["summary"],
        strengths=tuple(value["strengths"]),
        findings=tuple(
            Finding(severity=f["severity"], title=f["title"], detail=f["detail"], location=place(f))
            for f in value["findings"]
        ),
        suggestions=tuple(Suggestion(**s) for s in value["suggestions"]),
    )


ANALYSIS = Stage(
    name="analysis",
    version="analysis/2",
    instructions=_INSTRUCTIONS,
    answer=_answer,
    properties=_properties,
    build=_build,
    full=3_600,
)
