"""A second opinion: the levels of criteria that another model judged before, whose words are not shown."""

from __future__ import annotations

from typing import Any

from grading.domain.jobs import Job, Judgement
from grading.domain.stages import SECOND_OPINION, SecondOpinionOutput
from workers.machine.stages.base import Stage, judged
from workers.machine.stages.schema import Schema, Sizes

_INSTRUCTIONS = """\
You judge a student's homework in a course where code is used to answer questions about data, criterion
by criterion. Another reviewer judged the same work on their own; a teacher sees both judgements beside
each other and decides. You do not see theirs, and nobody helps by guessing it.
Be exact and fair. A different way that answers the question is as good as the expected one. Do not guess
at results that are not shown, and give no level out of kindness. Write the reasons for the teacher, in
plain {language}."""


def _answer(job: Job, size: Sizes) -> str:
    return f"""\
Answer with one JSON object and nothing else:
{judged(job, size)}Only the levels count; no text speaks of points."""


def _properties(_job: Job, _size: Sizes) -> dict[str, Schema]:
    return {}


def _build(_value: dict[str, Any], judgements: tuple[Judgement, ...], _job: Job) -> SecondOpinionOutput:
    return SecondOpinionOutput(judgements=judgements)


STAGE = Stage(
    name=SECOND_OPINION,
    version="second_opinion/1",
    instructions=_INSTRUCTIONS,
    answer=_answer,
    properties=_properties,
    build=_build,
    full=1,
)
