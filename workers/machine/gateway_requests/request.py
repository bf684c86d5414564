"""One request in a machine's hands: what the engine writes for it, told piece by piece to the gateway."""

from __future__ import annotations

import base64
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from redis.exceptions import RedisError

from grading.broker.gateway_requests import Ask, Event, Said, Talks
from grading.config.machines import Placement
from grading.domain.errors import Cancelled, OutputEmpty, OutputTruncated
from grading.domain.evidence import Evidence
from grading.domain.jobs import Job, Material, Tokens
from grading.domain.rubric import Criterion, Rubric
from workers.machine.engines.base import (
    Cancel,
    CountsTokens,
    EmbeddingsRefused,
    Engine,
    Generation,
    MakesEmbeddings,
    Phase,
    Request,
    ToolsRefused,
    calls_tools,
    unheard,
)

Reason = Literal["stop", "length", "tool_calls"]
GONE = "gone"
MOST_UNREAD = 16
"""So many pieces may wait for a slow reader; then they are put together until it has caught up."""
CHARS_A_TOKEN = 4
TEXTS_AT_ONCE = 16
"""Texts of one exchange with the engine: their vectors have 4 MB at most, as JSON."""
COUNT_S = 5.0
UNBOUND = "schema_not_bound"


@dataclass(eq=False)
class GatewayRequest:
    """A request and how far it is. The engine's thread writes, the keeper's sends what was held back."""

    id: str
    ask: Ask
    placement: Placement
    engine: Engine
    talks: Talks
    cancel: Cancel = field(default_factory=Cancel)
    why: str = ""
    """With what it was broken off."""
    in_batch: bool = False
    """The engine has begun with it."""
    _text: str = ""
    _tokens: int = 0
    _stopped: bool = False
    """One of its stop texts came."""
    _told: int = 0
    _unread: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def break_off(self, why: str) -> None:
        """End it within a step of the engine; whoever is first says why."""
        self.why = self.why or why
        self.cancel.cancel()

    def answer(self, seconds: float) -> tuple[Event, ...]:
        """Let the engine write; what is to be said at the end. Raises EngineErrors."""
        if self.ask.inputs:
            return self._embed(seconds)
        if self.ask.needs_tools and not calls_tools(self.engine):
            raise ToolsRefused
        try:
            made = self.engine.generate(self._request(seconds), self._moved)
        except (Cancelled, OutputEmpty, OutputTruncated) as error:
            if self.why:
                return self._failed(self.why)
            if isinstance(error, Cancelled) and not self._stopped:
                raise
            cut = isinstance(error, OutputTruncated)
            return (
                *self._rest(),
                Event(kind="end", reason="length" if cut else "stop", tokens=self._count()),
            )
        if self.ask.bound_to and str(made.sampling.get("format", "none")).startswith("none"):
            return self._failed(UNBOUND)
        return self._whole(made)

    def _embed(self, seconds: float) -> tuple[Event, ...]:
        """A few texts at a time, so that it can be broken off between them."""
        engine, until, tokens = self.engine, time.monotonic() + seconds, 0
        if not isinstance(engine, MakesEmbeddings):
            raise EmbeddingsRefused
        self.in_batch = True
        for at in range(0, len(self.ask.inputs), TEXTS_AT_ONCE):
            texts = self.ask.inputs[at : at + TEXTS_AT_ONCE]
            try:
                made = engine.embed(self.placement.model, texts, until - time.monotonic(), self.cancel)
            except Cancelled:
                if self.why:
                    return self._failed(self.why)
                raise
            tokens += made.tokens or sum(map(_estimated, texts))
            self.talks.say(self.id, Event(kind="vectors", at=at, vectors=tuple(map(_base64, made.vectors))))
        return (Event(kind="end", tokens=Tokens(prompt=tokens)),)

    def tell(self) -> None:
        """Tell what is not told yet, unless the reader is behind."""
        try:
            with self._lock:
                self._tell()
        except RedisError:
            self.break_off(GONE)  # a piece may be lost, so the rest is of no use

    def _whole(self, made: Generation) -> tuple[Event, ...]:
        self._write(made.text)
        reason: Reason = "length" if made.truncated and not self._stopped else "stop"
        if made.tool_calls and reason == "stop":
            reason = "tool_calls"
        end = Event(kind="end", reason=reason, tokens=made.tokens, tool_calls=made.tool_calls)
        return (*self._rest(), end)

    def _failed(self, code: str) -> tuple[Event, ...]:
        return () if code == GONE else (Event(kind="failed", code=code),)

    def _moved(self, tokens: int, phase: Phase = "generating", draft: str = "", /) -> None:
        self.in_batch = phase != "queued"
        if phase != "generating" or self._stopped:
            return
        self._tokens = tokens
        stopped = self._write(draft)
        self.tell()
        if stopped:
            self.cancel.cancel()

    def _write(self, text: str) -> bool:
        """Take all of the text so far; whether one of the stop texts is in it."""
        # half characters, which are no text for JSON
        text = text.encode("utf-8", "replace").decode("utf-8")
        found = [at for stop in self.ask.stop if (at := text.find(stop)) >= 0]
        with self._lock:
            if not self._stopped:
                self._stopped = bool(found)
                self._text = text[: min(found)] if found else text
            return self._stopped

    def _tell(self) -> None:
        piece = self._text[self._told : self._sure()]
        if not piece:
            return
        if self._unread >= MOST_UNREAD:
            self._unread = self.talks.unread(self.id)
            if self._unread >= MOST_UNREAD:
                return
        self._unread = self.talks.say(self.id, Event(kind="text", at=self._told, text=piece))
        self._told += len(piece)

    def _sure(self) -> int:
        """How far the text cannot be the beginning of one that ends it."""
        if self._stopped or not self.ask.stop:
            return len(self._text)
        longest = max(map(len, self.ask.stop)) - 1
        tails = (self._text[len(self._text) - n :] for n in range(min(longest, len(self._text)), 0, -1))
        held = next((len(tail) for tail in tails if any(s.startswith(tail) for s in self.ask.stop)), 0)
        return len(self._text) - held

    def _rest(self) -> tuple[Event, ...]:
        with self._lock:
            rest, at = self._text[self._told :], self._told
            self._told += len(rest)
        return (Event(kind="text", at=at, text=rest),) if rest else ()

    def _count(self) -> Tokens:
        """Of an answer that was cut here, so that no engine counted it: by its tokenizer, or estimated."""
        count = _counter(self.engine, self.placement.model)
        prompt = sum(count(one.content) for one in self.ask.messages)
        return Tokens(prompt=prompt, output=count(self._text) if self._text else 0)

    def _request(self, seconds: float) -> Request:
        ask = self.ask
        return Request(
            job=_job(self.id, ask, seconds),
            model=self.placement.model,
            system="",
            user="",
            schema=ask.bound_to,
            max_output_tokens=ask.max_tokens,
            temperature=ask.temperature,
            deadline_s=seconds,
            top_p=ask.top_p,
            seed=ask.seed,
            chat=tuple(_message(one) for one in ask.messages),
            stop=ask.stop,
            tools=ask.tools,
            tool_choice=ask.tool_choice,
            cancel=self.cancel,
        )


def _base64(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _message(said: Said) -> dict[str, Any]:
    """A message as OpenAI's API has it."""
    message: dict[str, Any] = {"role": said.role, "content": said.content}
    if said.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in said.tool_calls
        ]
    return message | ({"tool_call_id": said.tool_call_id} if said.role == "tool" else {})


def _counter(engine: Engine, model: str) -> Callable[[str], int]:
    measure = engine.token_counter(model, COUNT_S, unheard) if isinstance(engine, CountsTokens) else None
    return measure.count if measure else _estimated


def _estimated(text: str) -> int:
    """Tokens of a text that no engine counts."""
    return max(1, len(text) // CHARS_A_TOKEN)


def _job(request_id: str, ask: Ask, seconds: float) -> Job:
    """What engines want of a job: that the text so far is told. Nothing of it is graded."""
    return Job(
        run_id=request_id,
        round_id="",
        stage="chat",
        material=Material(title=""),
        rubric=Rubric(criteria=(Criterion(id="none", title="none", points=1),)),
        documents=(),
        evidence=Evidence(),
        nonce="",
        budget_s=seconds,
        max_output_tokens=ask.max_tokens,
        draft=True,
    )
