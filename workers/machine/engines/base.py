"""The whole contract of an engine: software on a machine that generates text for a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from grading.jobs import Job, Tokens


@dataclass(frozen=True)
class Request:
    """One generation. Durations in seconds; `schema` is the JSON schema the text must follow."""

    job: Job
    model: str
    system: str
    user: str
    schema: dict[str, Any]
    max_output_tokens: int
    temperature: float
    deadline_s: float
    """From now to the end of the generation."""
    repair: str = ""
    """Second try: what was wrong with the first answer. Empty on the first."""
    previous: str = ""
    """Second try: the first answer."""


@dataclass(frozen=True)
class Generation:
    """What an engine answered, with its own counts."""

    text: str
    tokens: Tokens
    first_token_s: float | None
    seconds: float
    digest: str = ""
    """Identifies the weights, as far as the engine tells."""
    truncated: bool = False
    """The token limit ended the text."""
    sampling: dict[str, Any] = field(default_factory=dict)


Phase = Literal["loading", "reading", "generating"]
"""What an engine does for a generation: loads the model, takes in the prompt, or writes.

"loading" is also said while the engine cannot know whether the model is there already.
"""


class Progress(Protocol):
    """Takes the number of output tokens so far and the phase; called at most a few times a second."""

    def __call__(self, tokens: int, phase: Phase = "generating", /) -> None:
        """Say how far a generation is."""
        ...


class Engine(Protocol):
    """Generates text. Thread-safe: a machine calls it from as many threads as it has slots.

    Raises only `grading.errors.EngineError`s, ends by the request's deadline, and bounds bytes and tokens.
    """

    name: str
    uses_model: bool

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request, or raise an EngineError."""
        ...

    def close(self) -> None:
        """Give back what the engine holds."""
        ...


@runtime_checkable
class LoadsModels(Protocol):
    """An engine that keeps models in this process and can load one before the first job asks for it."""

    def load(self, model: str) -> str:
        """Load a model; returns its digest."""
        ...
