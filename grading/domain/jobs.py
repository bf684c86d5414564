"""What a machine is sent and what it sends back: frozen values that cross process borders as JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from grading.domain.base_value import Value
from grading.domain.document import Document, Location
from grading.domain.engine_details import Details
from grading.domain.errors import Retry
from grading.domain.evidence import Evidence, Flag
from grading.domain.messages import Message, Params
from grading.domain.rubric import Rubric

ENGLISH = "English"


def _nothing(value: object) -> bool:
    """Left out of JSON, so that machines which do not know the field still take what has nothing in it."""
    return value is None or value is False or value in (ENGLISH, Timings())


def _none(value: object) -> bool:
    return value == ()


def _empty(value: object) -> bool:
    return value in ({}, "")


class WorkedExample(Value):
    """A correction by a person that an instructor chose to show. The words in it are another student's."""

    id: int
    criterion: str
    excerpt: str
    """What that student wrote, without names."""
    level: float
    """What a person gave it."""
    model_level: float | None = None
    """What a model had given it."""
    reason: str = ""

    @property
    def code(self) -> str:
        """The same for the same example with the same words; nobody who wrote them could know it."""
        return hashlib.sha256(f"example {self.model_dump_json()}".encode()).hexdigest()[:16]

    @property
    def key(self) -> str:
        """Its number and its code, as gradings keep it."""
        return f"{self.id}:{self.code}"


def heading(example_id: int) -> str:
    """How the line begins that introduces an example in a prompt: what one was shown is found by it."""
    return f"## Example {example_id}, for"


class Material(Value):
    """What a whole class shares: goes into the system message, so that machines can cache its prefix."""

    title: str
    task: str = ""
    instructions: str = ""
    """The instructor's own words for this stage."""
    starter: str = ""
    solution: str = ""
    language: str = Field(default=ENGLISH, exclude_if=_nothing)
    """What people speak in the course, as its English name; what a model writes for people is in it."""
    examples: tuple[WorkedExample, ...] = Field(default=(), exclude_if=_none)
    """For criteria of the stage."""


class Job(Value):
    """What a machine is sent to do: one run of one stage. Holds no name of a student."""

    run_id: str
    round_id: str
    stage: str
    attempt: int = 1
    material: Material
    rubric: Rubric
    documents: tuple[Document, ...]
    evidence: Evidence
    nonce: str
    """Random hex, fences what the student wrote; new for every run."""
    budget_s: float
    max_output_tokens: int
    temperature: float = 0.3
    top_p: float | None = Field(default=None, exclude_if=_nothing)
    """Only the likeliest tokens that together have this probability are drawn from; all without it."""
    seed: int | None = Field(default=None, exclude_if=_nothing)
    """Makes drawing repeatable where the engine can; some servers then stop batching."""
    draft: bool = Field(default=False, exclude_if=_nothing)
    """The student may see what is written while it is being written."""
    avoid: tuple[str, ...] = ()
    """Machines that failed at it; they hand it on while another one that can do it is alive."""
    secret: str = Field(default="", repr=False)
    """With it the machine proves that a result is that of who has this job."""
    alone: bool = False
    """It was lost together with other runs: nothing else runs beside it."""


def read_job(raw: Mapping[str, Any]) -> Job:
    """What a machine was sent. Raises ValidationError.

    Fields this version does not know are left out, or machines that are updated last would refuse all work.
    """
    return Job.model_validate(raw, extra="ignore")


class Quote(Value):
    """Words taken from the submission; `location` is set by the check that found them there."""

    text: str = Field(max_length=600)
    location: Location | None = None


class Judgement(Value):
    """The level a stage proposes for a criterion."""

    criterion: str
    level: int = Field(ge=0)
    reason: str = ""
    quotes: tuple[Quote, ...] = ()
    confidence: int | None = Field(default=None, ge=0, le=100, exclude_if=lambda found: found is None)
    """Per cent, as the model says itself; nothing from engines that do not say."""


class Finding(Value):
    """A remark at a place in the submission."""

    severity: Literal["praise", "note", "minor", "major"]
    title: str
    detail: str = ""
    location: Location | None = None


class Suggestion(Value):
    """What to do better, why, and how, with a short example."""

    what: str
    why: str
    how: str
    example: str = ""
    location: Location | None = None


MOST_TOKENS = 1_000_000_000
"""Of one run: more is no count."""
TokenCount = Annotated[int, Field(ge=0, le=MOST_TOKENS)]


class Tokens(Value):
    """Tokens counted by the engine; `cached` of the prompt came from a prefix cache."""

    prompt: TokenCount = 0
    cached: TokenCount = 0
    output: TokenCount = 0


class ToolCall(Value):
    """A call of a tool of its own that a gateway request's model asks the client for."""

    id: str
    name: str
    arguments: str
    """JSON, as the model wrote it."""


class Timings(Value):
    """Seconds by the engine's or its server's own clock; nothing where it does not tell."""

    queued_s: float | None = None
    """Waited for room."""
    load_s: float | None = None
    """Loaded the model."""
    prompt_s: float | None = None
    """Read the prompt."""
    output_s: float | None = None
    """Wrote the answer."""


class SentPrompt(Value):
    """The two messages a model was sent, to the letter; of a repaired answer those of the first try."""

    system: str
    user: str


class Provenance(Value):
    """How a result came about."""

    machine: str
    engine: str
    model: str
    digest: str = ""
    prompt_version: str = ""
    prompt_hash: str = ""
    sampling: dict[str, Any] = Field(default_factory=dict)
    tokens: Tokens = Tokens()
    first_token_s: float | None = None
    seconds: float = 0.0
    timings: Timings = Field(default=Timings(), exclude_if=_nothing)
    repaired: bool = False
    uses_model: bool = True
    """False for the `rules` engine."""
    examples: tuple[str, ...] = Field(default=(), exclude_if=_none)
    """Keys of the examples that the model read."""
    details: Details = Field(default_factory=dict, exclude_if=_empty)
    """What the engine reports of its strategies, by name."""


class Result(Value):
    """What a machine sends back: an output that follows the stage's schema, or an error code."""

    run_id: str
    round_id: str
    stage: str
    ok: bool
    output: dict[str, Any] = Field(default_factory=dict)
    flags: tuple[Flag, ...] = ()
    error: str | None = None
    message: str = ""
    """Why it failed, in English."""
    message_code: str = Field(default="", exclude_if=_empty)
    """Which message it is; empty where nobody translates it."""
    params: Params = Field(default_factory=dict, exclude_if=_empty)
    """Of the message."""
    retry: Retry = "elsewhere"
    provenance: Provenance
    prompt: SentPrompt | None = Field(default=None, exclude_if=_nothing)
    """What the model read; the server keeps it for the instructor."""

    @property
    def coded(self) -> Message:
        """Why it failed, to be rendered in a language."""
        return Message(code=self.message_code, params=self.params, message=self.message)


def read_result(raw: object) -> Result:
    """What a machine sent back, without fields this version does not know. Raises ValidationError."""
    return Result.model_validate(raw, extra="ignore")
