"""The whole contract of an engine: software on a machine that generates text for a job."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast, runtime_checkable

from grading.config.machines import Machine
from grading.domain.engine_details import Detail
from grading.domain.errors import JobInvalid
from grading.domain.jobs import Job, Timings, Tokens, ToolCall
from grading.domain.messages import Message, define_message
from grading.scheduling.crossings import PaysBy


class Cancel:
    """A cancellation token: whoever waits for a generation may end it. Thread-safe; it stays cancelled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the generation any more."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel; each callback is called once, on this thread."""
        with self._lock:
            self._cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    @contextmanager
    def on_cancel(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call `callback` when it is cancelled in the block, or at once when it was before."""
        with self._lock:
            before = self._cancelled
            if not before:
                self._callbacks.append(callback)
        if before:
            callback()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks = [one for one in self._callbacks if one is not callback]


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
    top_p: float | None = None
    seed: int | None = None
    """Sent only where it is given: it turns batching off in some servers."""
    chat: tuple[Mapping[str, Any], ...] = ()
    """Of a request: the messages, in place of `system` and `user`; nothing of them is shared by a class."""
    stop: tuple[str, ...] = ()
    """Of a request: where the text shall end, for servers that know that; the request cuts it in any case."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Of a request: the client's tools, as OpenAI's API describes them; only for engines that call tools."""
    tool_choice: Any = None
    """Which of them must be called, as that API says it."""
    cancel: Cancel = field(default_factory=Cancel)
    """Ends the generation with `Cancelled`, within a decoding step, a prefill chunk or a chunk over HTTP."""


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
    closed: bool = False
    """The token limit was near, so the text was brought to a valid end before its time."""
    sampling: dict[str, Any] = field(default_factory=dict)
    timings: Timings = field(default_factory=Timings)
    """By the engine's or its server's own clock."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What of the client's tools the answer calls."""
    details: Mapping[str, Detail] = field(default_factory=dict)
    """What the engine reports of its strategies, by name; see `grading.domain.engine_details`."""


Phase = Literal["queued", "loading", "reading", "generating"]
"""What an engine does for a generation: waits for room, loads the model, takes in the prompt, or writes.

"loading" is also said while the engine cannot know whether the model is there already.
"""


class Progress(Protocol):
    """Takes the number of output tokens so far, the phase, and where the job asks for it the text so far.

    Called at most a few times a second.
    """

    def __call__(self, tokens: int, phase: Phase = "generating", draft: str = "", /) -> None:
        """Say how far a generation is."""
        ...


def unheard(_tokens: int, _phase: Phase = "generating", _draft: str = "", /) -> None:
    """Progress of a generation that nobody follows."""


ModelSource = Literal["", "ollama", "hub", "server"]
"""Where an engine has its models from: an Ollama that pulls them, files of the Hugging Face hub that the
worker loads, or a server that lists them at `/v1/models`; empty where `grader deploy` can neither bring nor
find them.
"""


class Engine(Protocol):
    """Generates text. Thread-safe: a machine calls it from as many threads as it has slots.

    Raises `grading.domain.errors.EngineError`s only, ends by the request's deadline and when cancelled, and
    bounds bytes and tokens. Its class may also have `model_source`, `calls_tools = True`, and
    `knows_loading = False` where it says "loading" only because it cannot know.
    """

    name: str
    uses_model: bool

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request, or raise an EngineError."""
        ...

    def close(self) -> None:
        """Give back what the engine holds."""
        ...


def model_source(engine: Engine | type[Engine]) -> ModelSource:
    """Where an engine, or an engine's class, has its models from."""
    return cast(ModelSource, getattr(engine, "model_source", ""))


def knows_loading(engine: Engine) -> bool:
    """Whether it says "loading" only while a model is loaded."""
    return bool(getattr(engine, "knows_loading", True))


def calls_tools(engine: Engine) -> bool:
    """Whether it hands a request's tools to its model, and gives the calls back."""
    return bool(getattr(engine, "calls_tools", False))


class ToolsRefused(JobInvalid):
    """The model or its server cannot call tools."""

    code = "tools_not_supported"
    of_requests = True
    default_message = define_message(
        "error.tools_not_supported", "The model or its server cannot call these tools."
    )


class EmbeddingsRefused(JobInvalid):
    """The model or its server makes no embeddings."""

    code = "embeddings_not_supported"
    of_requests = True
    default_message = define_message(
        "error.embeddings_not_supported", "The model or its server makes no embeddings."
    )


@dataclass(frozen=True)
class Embeddings:
    """One vector for each text, all of the same length."""

    vectors: tuple[tuple[float, ...], ...]
    tokens: int
    """Of all texts, as the server counts them; 0 where it counts none."""


@runtime_checkable
class MakesEmbeddings(Protocol):
    """An engine whose server makes embeddings, for the gateway."""

    def embed(self, model: str, texts: Sequence[str], seconds: float, cancel: Cancel) -> Embeddings:
        """The embeddings of some texts, none of them cut, within `seconds`. Raises EngineErrors."""
        ...


class ChecksMachine(ABC):
    """An engine that not every machine's settings suit."""

    @classmethod
    @abstractmethod
    def check_machine(cls, machine: Machine) -> None:
        """Look at a machine's settings before the engine is opened. Raises ConfigError."""


@runtime_checkable
class LoadsModels(Protocol):
    """An engine that keeps models in this process and can load one before the first job asks for it."""

    def load(self, model: str) -> str:
        """Load a model; returns its digest."""
        ...


@dataclass(frozen=True)
class TokenCounter:
    """How long texts are for a model: its context in tokens, where known, and its own tokenizer's count."""

    context_tokens: int | None
    count: Callable[[str], int]


@runtime_checkable
class CountsTokens(Protocol):
    """An engine that has its models' tokenizers."""

    def token_counter(self, model: str, seconds: float, progress: Progress) -> TokenCounter | None:
        """The measure of a model, loaded if need be within `seconds`; None where there is no tokenizer."""
        ...


@runtime_checkable
class ReportsDigest(Protocol):
    """An engine that can tell which weights a model has, by a digest or by a few generated tokens."""

    def digest(self, model: str, seconds: float) -> str:
        """`ALGORITHM:HEX` of weights, configuration and tokenizer, or `behaviour:…`; empty when unknown.

        Raises EngineErrors.
        """
        ...


@dataclass(frozen=True)
class Capacity:
    """What a server has room for, as it says itself or shows; None where it does neither."""

    slots: int | None = None
    """Generations at once; further requests wait in the server's own queue."""
    context_tokens: int | None = None
    """The most tokens that one generation reads and writes."""
    cache_tokens: int | None = None
    """The most tokens of all generations together."""
    slots_setting: str = ""
    """What the server calls the number of slots."""
    context_setting: str = ""
    """What it calls the context."""


@runtime_checkable
class ReportsCapacity(Protocol):
    """An engine that can ask its server how much that has room for."""

    def capacity(self, model: str, at_once: int, seconds: float) -> Capacity:
        """How much a loaded model has room for, within `seconds`.

        A server that does not tell its slots may be sent up to `at_once` short requests together, to see
        whether some wait. Raises EngineErrors.
        """
        ...


Generate = Callable[[Request, Progress], Generation]


@dataclass(frozen=True)
class Comparison:
    """A strategy of an engine beside the direct way: both generate on demand, whichever would be faster."""

    strategy: str
    """What it is called: "hybrid", "sharded", "speculative"."""
    pays_by: PaysBy
    direct: Generate
    with_strategy: Generate
    detail: str = ""
    """The detail of a generation that tells whether the strategy was taken; empty where it always is."""
    computers: int = 1
    """How many computers the strategy takes."""


@runtime_checkable
class ComparesStrategy(Protocol):
    """An engine with a strategy that pays only at times."""

    def comparison(
        self, model: str, seconds: float, fits: Callable[[int], bool], draft: str = ""
    ) -> AbstractContextManager[Comparison | None]:
        """Both ways of a model, ready within `seconds`, while the context is open; None without a strategy.

        `draft` names a draft model to try where the settings name none. What has to be loaded a second time
        for the direct way is asked of `fits` in bytes. Raises EngineErrors.
        """
        ...


@runtime_checkable
class ReportsUnavailability(Protocol):
    """An engine that notices by itself that it is unavailable, also with nothing to do."""

    def on_unavailable(self, report: Callable[[Message], None]) -> None:
        """Call `report` from now on, on any thread, with why it is away; a request tells when it is back."""
        ...


@dataclass(frozen=True)
class Metric:
    """A number that an engine reports: a `counter` since its start, or a `gauge` of now."""

    kind: Literal["counter", "gauge"]
    help: str
    """What it counts, as a sentence: /metrics serves it."""


@runtime_checkable
class ReportsMetrics(Protocol):
    """An engine that counts what it does.

    /metrics serves `NAME` as `grader_engine_NAME`, counters with `_total` behind it. Names are of small
    letters, digits and underscores, at most 60 characters; at most 64 names of a machine are served.
    """

    metrics: Mapping[str, Metric]
    """All that it may report, by name."""

    def counters(self) -> Mapping[str, float]:
        """The values; what it does not know is left out."""
        ...


METRICS: Mapping[str, Metric] = {
    "running": Metric("gauge", "Generations in the engine's batch."),
    "requests": Metric("counter", "Generations started."),
    "cancelled": Metric("counter", "Generations canceled or timed out."),
    "prompt_tokens": Metric("counter", "Prompt tokens, as counted by the engine."),
    "cached_tokens": Metric("counter", "Prompt tokens read from a prefix cache, as counted by the engine."),
    "output_tokens": Metric("counter", "Output tokens, as counted by the engine."),
}
"""What most engines report."""
