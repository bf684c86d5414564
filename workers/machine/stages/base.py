"""What a stage is: instructions, the shape of its answer, and how an answer becomes an output value.

A quote is one text that begins with its place, as prompts show it: `1:3:12` is document 1, cell 3, line 12.
An object with a name for each number would cost a model three times the tokens, and a schema that names
documents would be another one for each student.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any

import pydantic

from grading.domain.document import Document, Location
from grading.domain.errors import OutputInvalid
from grading.domain.jobs import Job, Judgement, Quote
from grading.domain.stages import STAGES, StageOutput
from workers.machine.messages import LEVEL_WITHOUT_REASON, OTHER_SCHEMA
from workers.machine.sanitize import clip
from workers.machine.stages import prompt
from workers.machine.stages import schema as shape
from workers.machine.stages.truncation import DEFAULT_CONTEXT_TOKENS, budget

PLACE_CHARS = 12
"""Characters of a place and the blank after it: at most `99:9999:999 `."""
_PLACE = re.compile(
    r"^\W{0,2}(?P<document>\d{1,3}):(?P<one>\d{1,6})(?::(?P<two>\d{1,6}))?(?!\w|:\d)\W{0,2}?(?:\s+|$)"
)


def split_place(said: str, documents: tuple[Document, ...]) -> tuple[Location | None, str]:
    """The place at the beginning of `said`, whether it exists or not, and the words after it.

    No place when it names no document. Two numbers are a document and a cell of a notebook, or a line of
    another file. Cells count in notebooks only, as everywhere. Line 0 stands for an output,
    cell 0 for the whole file.
    """
    found = _PLACE.match(said)
    if found is None:
        return None, said
    words = said[found.end() :]
    number = int(found["document"])
    if not 1 <= number <= len(documents):
        return None, words or said
    document = documents[number - 1]
    one, two = int(found["one"]), int(found["two"] or 0)
    if document.kind == "notebook":
        return Location(document=document.path, cell=one or None, line=two or None), words
    return Location(document=document.path, line=(two if found["two"] else one) or None), words


@dataclass(frozen=True)
class Stage:
    """What a machine does for a stage; what all others know of it is its row in `grading.domain.stages`."""

    name: str
    version: str
    """Changes whenever the prompt or the schema does."""
    instructions: str
    answer: Callable[[Job, shape.Sizes], str]
    """The part of the prompt that describes the answer."""
    properties: Callable[[Job, shape.Sizes], dict[str, shape.Schema]]
    """Everything in the schema beside the judgements."""
    build: Callable[[dict[str, Any], tuple[Judgement, ...], Job], StageOutput]
    full: int
    """Characters of the longest answer beside the judgements when there is room."""

    def render(
        self,
        job: Job,
        context_tokens: int = DEFAULT_CONTEXT_TOKENS,
        count: Callable[[str], int] | None = None,
    ) -> prompt.Prompt:
        """The system message (the same for the whole class), the user message, and flags.

        `count` is the tokenizer's of the model; without it tokens are estimated. Raises JobInvalid.
        """
        said = self.answer(job, shape.sizes(job, self.full))
        example = json.dumps(shape.skeleton(self.schema(job)), ensure_ascii=False)
        return prompt.render(
            job,
            self.instructions,
            f"{said}\nIts shape: {example}",
            budget(context_tokens, job.max_output_tokens, count),
        )

    def schema(self, job: Job) -> shape.Schema:
        """The JSON schema of the answer; its longest valid answer about fits the job's output limit.

        Engines with bound decoding close one that would not.
        """
        size = shape.sizes(job, self.full)
        return shape.record({"judgements": shape.judgements(job, size), **self.properties(job, size)})

    def parse(self, text: str, job: Job) -> StageOutput:
        """The output in a model's answer; OutputInvalid says shortly what a repair must change."""
        value = shape.read_answer(text, self.schema(job))
        given = value["judgements"]
        judgements = tuple(
            Judgement(
                criterion=criterion.id,
                level=given[criterion.id]["level"],
                reason=given[criterion.id]["reason"],
                quotes=tuple(_quote(q, job) for q in given[criterion.id]["quotes"]),
                confidence=given[criterion.id].get("confidence"),
            )
            for criterion in job.rubric.of_stage(job.stage)
        )
        try:
            return self.build(value, judgements, job)
        except pydantic.ValidationError as error:
            raise OutputInvalid(OTHER_SCHEMA(faults=clip(str(error), 300))) from error


def judged(job: Job, size: shape.Sizes) -> str:
    """The line that describes judgements, where the stage has criteria to judge."""
    if not job.rubric.of_stage(job.stage):
        return ""
    return (
        f"- judgements: for every criterion its quotes (at most {size.quotes}, each with its place and\n"
        f"  up to {size.quote - PLACE_CHARS} characters of words), a reason (up to {size.reason} "
        "characters), the level, and your\n"
        "  confidence: how many of 100 experienced markers would give this very level.\n"
    )


def _quote(said: str, job: Job) -> Quote:
    """A quote with the place the model gave, which may be wrong; see `quotes.verify`."""
    place, words = split_place(said, job.documents)
    return Quote(text=words or said, location=place)


def require_words(output: StageOutput) -> None:
    """OutputInvalid for a level that a model gave without a word of why, as when it echoes the shape."""
    for judgement in output.judgements:
        said = (judgement.reason, *(quote.text for quote in judgement.quotes))
        if not any(re.search(r"\w", text) for text in said):
            raise OutputInvalid(LEVEL_WITHOUT_REASON(criterion=judgement.criterion))


@cache
def known_stages() -> Mapping[str, Stage]:
    """Stages by name; each module has its value as STAGE."""
    return MappingProxyType({name: import_module(f"workers.machine.stages.{name}").STAGE for name in STAGES})
