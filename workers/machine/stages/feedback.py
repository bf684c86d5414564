"""Personal, encouraging feedback about ideas and reflection answers."""

from __future__ import annotations

from typing import Any

from grading.domain.jobs import Job, Judgement
from grading.domain.stages import FeedbackOutput
from workers.machine.stages.base import Stage, judged
from workers.machine.stages.schema import Schema, Sizes, many, text

_INSTRUCTIONS = """\
You write personal feedback to a student about their thinking: the ideas in their work and their
answers to the reflection questions. Another reviewer looks after the technical details.
Be warm, honest and concrete. Speak of what this student did and wrote, with their own words and
results; praise that would fit anybody helps nobody. Name the next thing to learn as something within
reach. An answer that repeats the question, stays general or is left empty is a low level, however
friendly your words are. Write to the student as "you", in plain {language}, without headings or lists
inside the texts."""


def _answer(job: Job, size: Sizes) -> str:
    return f"""\
Answer with one JSON object and nothing else:
{judged(job, size)}- achieved: what the student set out to do and reached, up to {size.chars(420)} characters.
- reflection: your reply to their reflection answers, taking up one thought of theirs, up to
  {size.chars(420)} characters; where there is none, say so kindly.
- strengths: up to {size.items(3)}, each up to {size.chars(130)} characters.
- practice: how the work would hold up in a real company and what to look at there, up to
  {size.chars(320)} characters.
- develop: up to {size.items(3)} things to work on, each up to {size.chars(130)} characters.
- next_step: exactly one small thing to do this week, up to {size.chars(220)} characters.
Only the reasons may speak of levels, and no text speaks of points."""


def _properties(job: Job, size: Sizes) -> dict[str, Schema]:
    return {
        "achieved": text(size.chars(420)),
        "reflection": text(size.chars(420)),
        "strengths": many(text(size.chars(130)), size.items(3)),
        "practice": text(size.chars(320)),
        "develop": many(text(size.chars(130)), size.items(3)),
        "next_step": text(size.chars(220)),
    }


def _build(value: dict[str, Any], judgements: tuple[Judgement, ...], job: Job) -> FeedbackOutput:
    return FeedbackOutput(
        judgements=judgements,
        achieved=value["achieved"],
        reflection=value["reflection"],
        strengths=tuple(value["strengths"]),
        practice=value["practice"],
        develop=tuple(value["develop"]),
        next_step=value["next_step"],
    )


STAGE = Stage(
    name="feedback",
    version="feedback/4",
    instructions=_INSTRUCTIONS,
    answer=_answer,
    properties=_properties,
    build=_build,
    full=2_350,
)
