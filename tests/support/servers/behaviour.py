"""What a protocol server does, and what it saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Stats:
    """What a server saw."""

    requests: int = 0
    active: int = 0
    max_concurrency: int = 0
    disconnects: int = 0
    finished: int = 0
    failed: int = 0
    written: int = 0
    """Pieces of answers begun: the work of a model, as far as there is one."""
    last: dict[str, Any] = field(default_factory=dict)


@dataclass
class Behaviour:
    """How a server behaves; may be changed while it runs. `times` limits a fault to the next n requests."""

    models: tuple[str, ...]
    seconds: float = 0.0
    fault: str = ""
    times: int | None = None
    thinks: int = 0
    """Tokens of thought before the answer."""
    loaded: bool = True
    """Whether the models are in memory."""
    flavour: str = ""
    """Which server that speaks the protocol it is like; see `flavours`."""
    refuses: tuple[str, ...] = ()
    """Fields of a request that are answered with 400."""
    prose: str = ""
    """What is answered without a schema; by default one sentence."""
    token_s: float = 0.0
    """Seconds of a piece, in place of a share of `seconds`."""
    unfit: str = ""
    """A word for which a schema is refused, or ignored where the server does that."""
    repeats: bool = False
    """The model writes one token without end: Ollama stops after the 31st, without a last part."""
    dead: bool = False
    """Its generation thread died."""
    capabilities: tuple[str, ...] = ("completion",)
    context: int = 262_144
    """Tokens the models were made for."""
    refuses_long: bool = False
    """Ollama refuses a prompt that does not fit, as it does for models with a chat template of their own."""
    chars_a_token: float = 4
    tokens_a_piece: int = 1
    """That are counted for each piece sent: servers that guess ahead send several at a time."""
    weights: str = ""
    """Which weights the models have: another word, another digest."""
    answers: Callable[[str, str], str] = lambda _user, text: text
    """From the user message and the usual answer what the model answers instead."""
    waits: tuple[float, ...] = (0.0,)
    """How many answers' time the requests wait that want their answer whole, one after the other, by Ollama's
    own clock: (0, 0, 1) is what three see of a server that works on two at once.
    """
    times_ms: tuple[float, float] = (30.5, 60_661.0)
    """Reading and writing by llama-server's own clock; what an exchange takes beside them is waiting."""
