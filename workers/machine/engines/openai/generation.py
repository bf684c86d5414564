"""One generation over `/v1/chat/completions`: what is sent, what a server refuses of it, what came of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import requests

from grading.domain.errors import BudgetExceeded, EngineBrokeOff, EngineError, JobInvalid, OutputEndless
from workers.machine.engines.base import Cancel, Generation, Phase, Progress, Request
from workers.machine.engines.http.answer import Answer, messages, wrote_something
from workers.machine.engines.http.errors import broke_off, not_a_page, reason, unreachable
from workers.machine.engines.http.watch import Heard, Limits, Watch
from workers.machine.engines.openai.connection import OpenAIWire
from workers.machine.engines.openai.events import Reading
from workers.machine.engines.openai.schemas import LOOK_S, MOST_TOKENS, SHARE, Form, Schemas, judge, question
from workers.machine.engines.openai.server import Server

T = TypeVar("T")
_USAGE = "stream_options"
_SCHEMA = "response_format"
_NAMES = {
    _SCHEMA: (_SCHEMA, "json_schema", "json schema", "grammar", "structured output", "guided"),
    _USAGE: (_USAGE, "include_usage"),
}
_UNKNOWN = ("unknown field", "unknown parameter", "unrecognized", "extra inputs", "not permitted")


@dataclass(frozen=True)
class Peer:
    """A server, with all that was found out about it."""

    url: str
    limits: Limits
    api_key_env: str
    server: Server
    schemas: Schemas
    no_usage: threading.Event = field(default_factory=threading.Event)
    """It refuses to be asked for its counts."""
    heard: Heard = field(default_factory=Heard)

    def watch(self, seconds: float, cancel: Cancel) -> Watch:
        """A watch over an exchange with it."""
        return Watch(seconds, cancel, self.limits, self.server.where, self.heard)

    def wire(self, watch: Watch) -> OpenAIWire:
        """The way to it under a watch."""
        headers = {}
        if self.api_key_env:
            headers["Authorization"] = f"Bearer {os.environ.get(self.api_key_env, '')}"
        return OpenAIWire(watch, self.limits, self.server.where, headers)

    @contextmanager
    def open(self, seconds: float) -> Iterator[OpenAIWire]:
        """A wire with a watch of its own."""
        with self.watch(seconds, Cancel()) as watch, self.wire(watch) as wire:
            yield wire


@dataclass(frozen=True)
class Talk:
    """One generation on its way."""

    peer: Peer
    watch: Watch
    request: Request
    progress: Progress

    def once(self, waited_s: float) -> Generation:
        """One try; `waited_s` is how long it waited for room before."""
        request = self.request
        _chat(request)
        self.progress(0, "loading")  # it may be, as long as the server says nothing
        form = self.peer.schemas.form(request, self._look)
        drafts, prose = request.job.draft, bool(request.chat)
        answer = Answer(self.watch, self.progress, request.max_output_tokens, drafts, prose)
        reading = Reading(self.watch, answer, self.peer.server.where)
        with self.peer.wire(self.watch) as wire:
            form = self._guarded(wire, lambda: self._stream(wire, request, reading, form))
            return self._generation(wire, reading, form, waited_s)

    def _look(self) -> Form:
        """Ask the server a question that shows whether it binds answers to schemas."""
        seconds = min(LOOK_S, SHARE * self.watch.remaining)
        asked = question(self.request, seconds, self.request.cancel)
        with self.peer.watch(seconds, asked.cancel) as inner, self.watch.aside(inner):
            reading = Reading(inner, Answer(inner, _unheard, MOST_TOKENS), self.peer.server.where)
            with self.peer.wire(inner) as wire:
                try:
                    form = self._guarded(wire, lambda: self._stream(wire, asked, reading, Form.BOUND))
                except (BudgetExceeded, OutputEndless):
                    self.watch.check()
                    return Form.UNPROVED
        reading.answer.finish(0)
        return judge(reading.answer.text) if form.sent else form

    def _guarded(self, wire: OpenAIWire, exchange: Callable[[], T]) -> T:
        """Run the exchange and turn every way it can fail into an EngineError."""
        server, watch = self.peer.server, wire.watch
        try:
            return exchange()
        except EngineError as exc:
            if (failure := watch.failure()) is not None:
                raise failure from exc
            if isinstance(exc, EngineBrokeOff) and server.dead(wire):
                raise server.died() from exc
            raise
        except (requests.RequestException, OSError) as exc:
            error = (
                broke_off(server.where, type(exc).__name__)
                if watch.connected
                else unreachable(server.where, self.peer.limits.connect)
            )
            raise watch.failure() or error from exc

    def _stream(self, wire: OpenAIWire, request: Request, reading: Reading, form: Form) -> Form:
        """Read one answer; returns how its schema was asked for in the end."""
        while True:
            payload = self._payload(request, form)
            with wire.post(f"{self.peer.url}/chat/completions", payload) as response:
                status, kind = response.status_code, response.headers.get("Content-Type", "")
                if status == 200 and "application/json" not in kind.lower():
                    not_a_page(wire.where, kind, "text/event-stream")
                    reading.answer.progress(0, "reading")
                    reading.read(wire.chunks(response))
                    return form
                said = wire.body(response)
            refused = _refused(status, said, payload)
            if refused == _SCHEMA:
                form = Form.REFUSED
                self.peer.schemas.learn(request.model, form)
            elif refused == _USAGE:
                self.peer.no_usage.set()
            else:
                if status == 200 and '"error"' not in said:
                    not_a_page(wire.where, kind, "text/event-stream")
                raise self.peer.server.error(wire, status, said, request.model)

    def _payload(self, request: Request, form: Form) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "model": request.model,
            "messages": _chat(request),
            "stream": True,
            "max_tokens": request.max_output_tokens,
            "temperature": request.temperature,
            **_drawing(request),
        }
        if not self.peer.no_usage.is_set():
            payload[_USAGE] = {"include_usage": True}
        if form.sent:
            payload[_SCHEMA] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": request.schema},
            }
        return payload

    def _generation(self, wire: OpenAIWire, reading: Reading, form: Form, waited_s: float) -> Generation:
        request, answer = self.request, reading.answer
        output = answer.finish(reading.tokens.output)
        truncated = reading.finish == "length"
        wrote_something(wire.where, answer.text, truncated=truncated)
        if not truncated:
            self.peer.schemas.saw(request.model, form, answer.text)
        seconds = self.watch.elapsed
        return Generation(
            text=answer.text,
            tokens=reading.tokens.model_copy(update={"output": output}),
            first_token_s=answer.first_token_s,
            seconds=seconds,
            digest=self._digest(wire),
            truncated=truncated,
            sampling={
                "temperature": request.temperature,
                "max_tokens": request.max_output_tokens,
                **_drawing(request),
                "format": form.value,
            },
            timings=reading.timings.model_copy(update={"queued_s": waited_s or None}),
        )

    def _digest(self, wire: OpenAIWire) -> str:
        """The answer is there: a look-up that fails now is no reason to lose it."""
        try:
            return self.peer.server.digest(wire, self.request.model)
        except EngineError:
            return ""


def _chat(request: Request) -> list[dict[str, str]]:
    """The messages, none of them empty: servers refuse such, and mlx_lm.server loses its thread over them."""
    chat = [one for one in messages(request) if one["content"].strip()]
    if not any(one["role"] == "user" for one in chat):
        raise JobInvalid("The job has no prompt, so no model was asked.")
    return chat


def _drawing(request: Request) -> dict[str, Any]:
    """What is sent only where it is given: a seed turns batching off in mlx_lm.server."""
    given = {"top_p": request.top_p, "seed": request.seed, "stop": list(request.stop) or None}
    return {name: value for name, value in given.items() if value is not None}


def _refused(status: int, body: str, payload: dict[str, Any]) -> str:
    """The optional field of a payload that a server says it does not take; empty for other refusals."""
    if status not in (400, 422, 500, 501):
        return ""
    said = reason(body).lower()
    fields = [name for name in (_SCHEMA, _USAGE) if name in payload]
    for name in fields:
        if any(word in said for word in _NAMES[name]):
            return name
    return fields[-1] if fields and any(word in said for word in _UNKNOWN) else ""


def _unheard(_tokens: int, _phase: Phase = "generating", _draft: str = "", /) -> None:
    """Progress of what nobody waits for."""
