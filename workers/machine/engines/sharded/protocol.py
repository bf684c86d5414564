"""What worker and ranks say to each other: a JSON object a line, through standard input and output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from grading.domain.base_value import Value
from grading.domain.errors import EngineGarbled
from workers.machine.engines.base import Phase

Mode = Literal["auto", "pipeline", "tensor"]
"""How a model is shared out: whole layers to each rank, or a part of every layer; `auto` as the model can."""


# --- to a rank ------------------------------------------------------------------------------------------


class Begin(Value):
    """First of all: who the rank is, and how all of them work. The same for all but for `rank`."""

    word: Literal["begin"] = "begin"
    rank: int
    hosts: tuple[str, ...]
    model: str
    mode: Mode
    slots: int
    prefill_step: int
    prefix_tokens: int
    """What the shared prefixes that are kept may have, all together."""
    max_context: int | None
    wired_limit: bool
    seed: int
    """Of the randomness that all ranks draw the same from."""


class Load(Value):
    """All ranks have the same files: load the model."""

    word: Literal["load"] = "load"


class Add(Value):
    """A generation that joins. `shared` of its tokens are those of a whole class."""

    id: int
    ids: tuple[int, ...]
    shared: int
    max_tokens: int
    temperature: float
    top_p: float | None
    seed: int | None
    schema_text: str
    """The JSON schema the answer is bound to, as text that keeps the order of its keys; empty: none."""


class Step(Value):
    """Take one step with these generations added, and those dropped as nobody waits for them."""

    word: Literal["step"] = "step"
    number: int
    add: tuple[Add, ...] = ()
    drop: tuple[int, ...] = ()


ToRank = Annotated[Begin | Load | Step, Field(discriminator="word")]

# --- from a rank ----------------------------------------------------------------------------------------


class Here(Value):
    """The rank runs, with these files of the model and this software; both must be the same everywhere."""

    word: Literal["here"] = "here"
    digest: str
    software: str
    pid: int
    """Of its process, on its own computer."""


class Ready(Value):
    """The model is loaded, shared out in this way."""

    word: Literal["ready"] = "ready"
    mode: Mode


DROPPED, FAILED = "dropped", "failed"


class News(Value):
    """What became of a generation in a step."""

    id: int
    phases: tuple[Phase, ...] = ()
    tokens: tuple[int, ...] = ()
    cached: int = 0
    end: str = ""
    """Its finish reason; DROPPED when nobody waits for it, FAILED when it failed alone; else empty."""
    error: str = ""
    """Why it failed."""
    complete: bool = False
    closed: bool = False
    """Of an answer that was bound to its schema, at its end; see `Bound`."""


class Done(Value):
    """A step was taken. Without `cache_bytes` it is the same on every rank, or they have come apart."""

    word: Literal["done"] = "done"
    number: int
    news: tuple[News, ...] = ()
    counts: dict[str, int] = Field(default_factory=dict)
    """What the step added to the counters."""
    cache_bytes: int = 0
    """What this rank's prefix caches hold; layers differ from rank to rank."""


class Failed(Value):
    """The rank cannot go on, and ends."""

    word: Literal["failed"] = "failed"
    code: str
    message: str


FromRank = Annotated[Here | Ready | Done | Failed, Field(discriminator="word")]

_to_rank: TypeAdapter[ToRank] = TypeAdapter(ToRank)
_from_rank: TypeAdapter[FromRank] = TypeAdapter(FromRank)


_T = TypeVar("_T")


def line(word: ToRank | FromRank) -> bytes:
    """A word as a line."""
    return word.model_dump_json().encode() + b"\n"


def to_rank(said: bytes) -> ToRank:
    """What the worker said. Raises EngineGarbled."""
    return _read(_to_rank, said)


def from_rank(said: bytes) -> FromRank:
    """What a rank said. Raises EngineGarbled."""
    return _read(_from_rank, said)


def _read(adapter: TypeAdapter[_T], said: bytes) -> _T:
    try:
        return adapter.validate_json(said)
    except ValidationError as error:
        raise EngineGarbled(f"This is not a message between worker and rank: {said[:80]!r}.") from error


@dataclass(frozen=True)
class Settings:
    """How ranks are started and work. Durations in seconds; see `ShardedEngine`."""

    hosts: tuple[str, ...]
    mode: Mode
    slots: int
    prefill_step: int
    prefix_tokens: int
    max_context: int | None
    wired_limit: bool
    remote: str
    load_timeout: float
    step_timeout: float

    def begin(self, rank: int, model: str, seed: int) -> Begin:
        """What a rank is told first."""
        return Begin(
            rank=rank,
            hosts=self.hosts,
            model=model,
            mode=self.mode,
            slots=self.slots,
            prefill_step=self.prefill_step,
            prefix_tokens=self.prefix_tokens,
            max_context=self.max_context,
            wired_limit=self.wired_limit,
            seed=seed,
        )
