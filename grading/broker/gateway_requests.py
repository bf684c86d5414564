"""Gateway requests in Redis: requests of other tools, the pieces of their answers, both sides' heartbeats.

All of it lives in Redis for as long as somebody waits, and has an expiry: the request, the pieces of its
answer, and a heartbeat of each side. The message in the queue is only the gateway request's id.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from pydantic import Field, ValidationError
from redis import Redis

from grading.broker import lua_scripts
from grading.broker.lua_scripts import Script
from grading.config.machines import Placement
from grading.domain.base_value import Value
from grading.domain.jobs import Tokens, ToolCall
from grading.domain.stages import grading_stages

CHAT = "grader.chat"
SIGN_S = 5.0
"""A side that gave no heartbeat for so long is gone."""
KEYS = "grader:gateway:"
PREEMPTED, ENDING = "preempted", "machine_ending"
"""Why a machine breaks a gateway request off: grading needs its slot, or the machine is told to end."""
NO_MODEL = "none"
"""What heartbeats say is the source of a stage's model where its engine has none: it answers no requests."""


class Said(Value):
    """One message of a chat."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """What the assistant asked for."""
    tool_call_id: str = ""
    """Of a tool: whose result it is."""


class Ask(Value):
    """What a request asks for: a system message at most, then user and assistant in turn, with a user.

    Or the embeddings of `inputs`, of a model that `embedder` names.
    """

    model: str
    messages: tuple[Said, ...] = ()
    inputs: tuple[str, ...] = ()
    max_tokens: int = 0
    temperature: float = 1.0
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    bound_to: dict[str, Any] = Field(default_factory=dict)
    """The JSON schema the answer must follow; empty: any text."""
    tools: tuple[dict[str, Any], ...] = ()
    """The client's tools that the answer may call, as the API describes them."""
    tool_choice: Any = None
    """Which of them it must call, as the API says it; nothing: as it likes."""

    @property
    def needs_tools(self) -> bool:
        """Whether only an engine that knows tools can answer it."""
        return bool(self.tools) or any(one.tool_calls or one.role == "tool" for one in self.messages)


class Event(Value):
    """What a machine says of a gateway request: it has begun, wrote on, came to the end, or failed."""

    kind: Literal["begun", "text", "vectors", "end", "failed"]
    machine: str = ""
    model: str = ""
    at: int = 0
    """Characters of the answer before this text, or embeddings before these."""
    text: str = ""
    vectors: tuple[str, ...] = ()
    """Embeddings, each in base64: 32-bit floats, the least significant byte first."""
    reason: Literal["stop", "length", "tool_calls"] = "stop"
    tool_calls: tuple[ToolCall, ...] = ()
    tokens: Tokens = Tokens()
    code: str = ""
    """Of an EngineError, or PREEMPTED, or ENDING."""


def chat_queue(model: str) -> str:
    """The queue of gateway requests that ask for a model, or for `grader/STAGE`."""
    slug = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")[:40]
    return f"chat.{slug}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"


def alias(stage: str) -> str:
    """The name of whatever model does a stage."""
    return f"grader/{stage}"


DRAFTING = alias("analysis")
"""What the web app asks for the first draft of a rubric, whether there is a gateway or not."""


def embedder(model: str) -> str:
    """How requests for embeddings name a model: one that chats may have the same name."""
    return f"embeddings of {model}"


def served(stages: Mapping[str, Placement], embedders: Mapping[str, Placement]) -> dict[str, Placement]:
    """What gateway requests can ask a machine with these placements for, by the name they use."""
    graded = {stage: stages[stage] for stage in grading_stages(stages)}
    return (
        {one.model: one for one in graded.values()}
        | {alias(stage): one for stage, one in graded.items()}
        | {embedder(model): one for model, one in embedders.items()}
    )


def gateway_queues(
    stages: Mapping[str, Placement], embedders: Mapping[str, Placement]
) -> dict[str, Placement]:
    """The queues of requests that a machine with these placements can answer, and by which of these."""
    return {chat_queue(name): placement for name, placement in served(stages, embedders).items()}


class Talks:
    """The talks over one Redis client. Seconds; methods raise redis errors."""

    def __init__(self, client: Redis, sign_s: float = SIGN_S) -> None:
        self.redis = client
        self.sign_s = sign_s
        self._withdraw = Script(client, lua_scripts.WITHDRAW)

    @property
    def _sign_ms(self) -> int:
        return int(self.sign_s * 1000)

    # --- the gateway's side ---

    def ask(self, request_id: str, ask: Ask, seconds: float) -> None:
        """Put a request down, for at most so long, and say that somebody waits for its answer."""
        with self.redis.pipeline() as pipe:
            pipe.set(
                _key(request_id, "ask"), ask.model_dump_json(exclude_defaults=True), px=int(seconds * 1000)
            )
            pipe.set(_key(request_id, "reader"), 1, px=self._sign_ms)
            pipe.execute()

    def waits(self, request_id: str) -> bool:
        """Say that somebody still waits; whether a machine has the gateway request in hand."""
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.set(_key(request_id, "reader"), 1, px=self._sign_ms)
            pipe.exists(_key(request_id, "held"))
            return bool(pipe.execute()[1])

    def hear(self, request_id: str, seconds: float = 0.0) -> Event | None:
        """The next thing the machine said; waits for it, or looks only (0)."""
        key = _key(request_id, "said")
        if not seconds:
            row = cast("str | None", self.redis.lpop(key))
        else:
            found = cast("Sequence[str] | None", self.redis.blpop([key], timeout=seconds))
            row = found[1] if found else None
        return None if row is None else Event.model_validate_json(row)

    def withdraw(self, request_id: str, model: str) -> None:
        """Nobody waits any more: forget the request, and take its message off the queue."""
        self._withdraw(keys=[chat_queue(model)], args=[request_id])
        self.redis.delete(*(_key(request_id, what) for what in ("ask", "reader", "said")))

    # --- the machine's side ---

    def take(self, request_id: str, machine: str) -> tuple[Ask, float] | None:
        """A request's request and the seconds left for it; nothing when nobody waits or another has it."""
        with self.redis.pipeline() as pipe:
            pipe.get(_key(request_id, "ask"))
            pipe.pttl(_key(request_id, "ask"))
            pipe.exists(_key(request_id, "reader"))
            row, left_ms, waits = pipe.execute()
        if row is None or left_ms <= 0 or not waits:
            return None
        try:
            ask = Ask.model_validate_json(row)
        except ValidationError:
            return None  # of another version; who asked is told by the end of its time
        if not self.redis.set(_key(request_id, "held"), machine, px=self._sign_ms, nx=True):
            return None
        return ask, left_ms / 1000

    def hold(self, gateway_requests: Iterable[str]) -> set[str]:
        """Say that these are in hand; those of them for whom still somebody waits."""
        names = list(gateway_requests)
        with self.redis.pipeline(transaction=False) as pipe:
            for request_id in names:
                # one that was away for too long was given up, and may be somewhere else
                pipe.pexpire(_key(request_id, "held"), self._sign_ms)
                pipe.exists(_key(request_id, "reader"))
            answers = pipe.execute()
        return {request_id for i, request_id in enumerate(names) if answers[2 * i] and answers[2 * i + 1]}

    def say(self, request_id: str, event: Event) -> int:
        """Tell the gateway; how many things it has not read yet."""
        with self.redis.pipeline() as pipe:
            self._say(pipe, request_id, event)
            return int(pipe.execute()[0])

    def unread(self, request_id: str) -> int:
        """How many things the gateway has not read yet."""
        return self.redis.llen(_key(request_id, "said"))

    def leave(self, request_id: str, *last: Event) -> None:
        """Say the last of it; the request is not in hand any more. With nothing to say, nobody listens."""
        with self.redis.pipeline() as pipe:
            for event in last:
                self._say(pipe, request_id, event)
            pipe.delete(_key(request_id, "held"), *(() if last else (_key(request_id, "said"),)))
            pipe.execute()

    def _say(self, pipe: Any, request_id: str, event: Event) -> None:
        key = _key(request_id, "said")
        pipe.rpush(key, event.model_dump_json(exclude_defaults=True))
        pipe.pexpire(key, 4 * self._sign_ms)  # who waits reads at once


def _key(request_id: str, what: str) -> str:
    return f"{KEYS}{request_id}:{what}"
