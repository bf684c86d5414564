"""The engine for servers that speak `/v1/chat/completions`: streamed, bounded in time and bytes."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import requests

from grading.domain.errors import (
    BudgetExceeded,
    ConfigError,
    EngineBrokeOff,
    EngineError,
    JobInvalid,
    OutputEndless,
)
from grading.domain.jobs import Timings, Tokens
from workers.machine.engines.base import (
    METRICS,
    Cancel,
    Capacity,
    Embeddings,
    Generation,
    Progress,
    Request,
    TokenCounter,
    ToolsRefused,
    unheard,
)
from workers.machine.engines.http.answer import Answer, lines, messages, wrote_something
from workers.machine.engines.http.errors import broke_off, garbled, not_a_page, reason
from workers.machine.engines.http.exchange import BusyRetry, ExchangeCounters, LastToken, Limits, Watch
from workers.machine.engines.openai.fingerprint import Fingerprints
from workers.machine.engines.openai.schema_support import (
    LOOK_S,
    MOST_TOKENS,
    SHARE,
    Schemas,
    SchemaSupport,
    judge,
    question,
)
from workers.machine.engines.openai.server import OpenAIWire, Server
from workers.machine.engines.openai.tool_calls import StreamedCalls, of_tools, refuses_tools, tool_fields
from workers.machine.messages import NO_PROMPT, NO_TIME_LEFT, WROTE_NOTHING

FIELDS = (b"event", b"id", b"retry", b"data")
"""What lines of an event stream begin with, beside comments."""
FINISHED = ("stop", "length", "tool_calls")


@dataclass
class EventStream:
    """The state of one stream."""

    watch: Watch
    answer: Answer
    where: str
    finish: str = ""
    model: str = ""
    """Which one answers, as the server names it."""
    strange: bool = False
    """A line came that is not of an event stream."""
    failed: bool = False
    """The server called the next data an error."""
    refusal: str = ""
    """What it said then."""
    tokens: Tokens = field(default_factory=Tokens)
    timings: Timings = field(default_factory=Timings)
    calls: StreamedCalls = field(default_factory=StreamedCalls)

    def read(self, chunks: Iterator[bytes]) -> None:
        """Take events up to `[DONE]`; a stream that ends unfinished raises an EngineError."""
        try:
            for line in lines(chunks):
                if line.startswith(b":"):  # a comment: mlx_lm.server tells so how far the prompt is
                    self.watch.arrived(token=False)
                elif line.startswith(b"data:"):
                    data = line[5:].strip()
                    if data == b"[DONE]":
                        break
                    self._event(json.loads(data))
                elif line.startswith(b"error:"):  # older llama-servers
                    self._fail(json.loads(line[6:]))
                elif line.startswith(b"event:"):
                    self.failed = line[6:].strip() == b"error"
                elif line and not line.startswith(FIELDS):
                    self.strange = True
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as exc:
            raise garbled(self.where) from exc
        if not self.finish and self.strange:
            raise garbled(self.where)
        if not self.finish:
            raise broke_off(self.where, "its last part is missing")
        if self.finish not in FINISHED:
            raise broke_off(self.where, f"it stopped with {self.finish[:100]!r}")

    def _event(self, event: dict[str, Any]) -> None:
        if self.failed or event.get("error"):
            self._fail(event.get("error") or event)
        self.model = str(event.get("model") or self.model)
        if usage := event.get("usage"):
            self.tokens = _tokens(usage)
        if times := event.get("timings"):
            self._timed(times)
        elif stats := event.get("stats"):
            self.timings = Timings(
                prompt_s=stats.get("time_to_first_token"), output_s=stats.get("generation_time")
            )
        for choice in (event.get("choices") or [])[:1]:
            delta = choice.get("delta") or {}
            text = str(delta.get("content") or "")
            # vLLM gives the same thought under both names
            thought = str(delta.get("reasoning_content") or delta.get("reasoning") or "")
            # counted like a thought: it is no text that is read while it is written
            called = "tool_calls" if self.calls.add(delta.get("tool_calls") or []) else ""
            self.watch.arrived(token=bool(text or thought or called))
            self.answer.add(text, thought=thought or called)
            self.finish = str(choice.get("finish_reason") or self.finish)

    def _fail(self, error: Any) -> None:
        said = (error.get("message") or "") if isinstance(error, dict) else error
        self.failed, self.refusal = False, " ".join(str(said or "an error without a word").split())[:300]
        raise broke_off(self.where, self.refusal)

    def _timed(self, times: dict[str, Any]) -> None:
        """llama-server's own clock, in milliseconds; it counts what it took from its cache there, too."""
        prompt, output = times.get("prompt_ms"), times.get("predicted_ms")
        self.timings = Timings(
            prompt_s=None if prompt is None else max(0.0, float(prompt)) / 1000,
            output_s=None if output is None else max(0.0, float(output)) / 1000,
        )
        cached = int(times.get("cache_n") or 0)
        known = self.tokens
        self.tokens = Tokens(
            prompt=known.prompt or cached + int(times.get("prompt_n") or 0),
            cached=known.cached or cached,
            output=known.output or int(times.get("predicted_n") or 0),
        )


def _queued(timings: Timings, seconds: float) -> float:
    """What an exchange has beside reading and writing, where the server tells those: waiting for a slot."""
    if timings.prompt_s is None or timings.output_s is None:
        return 0.0
    return max(0.0, seconds - timings.prompt_s - timings.output_s)


def _tokens(usage: dict[str, Any]) -> Tokens:
    details = usage.get("prompt_tokens_details") or {}
    return Tokens(
        prompt=int(usage.get("prompt_tokens") or 0),
        cached=int(details.get("cached_tokens") or 0),
        output=int(usage.get("completion_tokens") or 0),
    )


T = TypeVar("T")
_USAGE = "stream_options"
_SCHEMA = "response_format"
_NAMES = {
    _SCHEMA: (_SCHEMA, "json_schema", "json schema", "grammar", "structured output", "guided"),
    _USAGE: (_USAGE, "include_usage"),
}
_UNKNOWN = ("unknown field", "unknown parameter", "unrecognized", "extra inputs", "not permitted")


@dataclass(frozen=True)
class ServerState:
    """A server, with all that was found out about it."""

    url: str
    limits: Limits
    api_key_env: str
    server: Server
    schemas: Schemas
    fingerprints: Fingerprints
    no_usage: threading.Event = field(default_factory=threading.Event)
    """It refuses to be asked for its counts."""
    heard: LastToken = field(default_factory=LastToken)

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
class ChatExchange:
    """One generation on its way."""

    peer: ServerState
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
        reading = EventStream(self.watch, answer, self.peer.server.where)
        began = self.watch.elapsed
        with self.peer.wire(self.watch) as wire:
            form = self._guarded(wire, lambda: self._stream(wire, request, reading, form))
            queued_s = waited_s + _queued(reading.timings, self.watch.elapsed - began)
            return self._generation(wire, reading, form, queued_s)

    def _look(self) -> SchemaSupport:
        """Ask the server a question that shows whether it binds answers to schemas."""
        seconds = min(LOOK_S, SHARE * self.watch.remaining)
        asked = question(self.request, seconds, self.request.cancel)
        with self.peer.watch(seconds, asked.cancel) as inner, self.watch.aside(inner):
            reading = EventStream(inner, Answer(inner, unheard, MOST_TOKENS), self.peer.server.where)
            with self.peer.wire(inner) as wire:
                try:
                    form = self._guarded(
                        wire, lambda: self._stream(wire, asked, reading, SchemaSupport.BOUND)
                    )
                except (BudgetExceeded, OutputEndless):
                    self.watch.check()
                    return SchemaSupport.UNPROVED
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
            raise watch.failure() or server.lost(watch, self.peer.limits.connect, exc) from exc

    def _stream(
        self, wire: OpenAIWire, request: Request, reading: EventStream, form: SchemaSupport
    ) -> SchemaSupport:
        """Read one answer; returns how its schema was asked for in the end."""
        if request.tools and self.peer.server.without_tools(wire):
            raise ToolsRefused
        while True:
            payload = self._payload(request, form)
            with wire.post(f"{self.peer.url}/chat/completions", payload) as response:
                status, kind = response.status_code, response.headers.get("Content-Type", "")
                if status == 200 and "application/json" not in kind.lower():
                    not_a_page(wire.where, kind, "text/event-stream")
                    reading.answer.progress(0, "reading")
                    if _was_read(reading, wire.chunks(response), payload):
                        return form
                    status, said = 400, reading.refusal
                else:
                    said = wire.body(response)
            if refuses_tools(request, status, reason(said)):
                raise ToolsRefused
            refused = _refused(status, said, payload)
            if refused == _SCHEMA:
                form = self.peer.schemas.refused(request.model)
            elif refused == _USAGE:
                self.peer.no_usage.set()
            else:
                if status == 200 and '"error"' not in said:
                    not_a_page(wire.where, kind, "text/event-stream")
                raise self.peer.server.error(wire, status, said, request.model)

    def _payload(self, request: Request, form: SchemaSupport) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "model": request.model,
            "messages": _chat(request),
            "stream": True,
            "max_tokens": request.max_output_tokens,
            "temperature": request.temperature,
            **_drawing(request),
            **tool_fields(request),
        }
        if not self.peer.no_usage.is_set():
            payload[_USAGE] = {"include_usage": True}
        if form.sent:
            payload[_SCHEMA] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": request.schema},
            }
        return payload

    def _generation(
        self, wire: OpenAIWire, reading: EventStream, form: SchemaSupport, queued_s: float
    ) -> Generation:
        request, answer = self.request, reading.answer
        self.peer.fingerprints.check_name(request.model, reading.model)
        output = answer.finish(reading.tokens.output)
        truncated = reading.finish == "length"
        calls = reading.calls.whole()
        if request.tool_choice is not None and not calls and not truncated:
            raise ToolsRefused  # some servers drop what they do not know
        if not calls:
            wrote_something(WROTE_NOTHING(engine=wire.where), answer.text, truncated=truncated)
        if not truncated and not calls:
            self.peer.schemas.saw(request.model, form, answer.text)
        seconds = self.watch.elapsed
        return Generation(
            text=answer.text,
            tokens=reading.tokens.model_copy(update={"output": output}),
            first_token_s=answer.first_token_s,
            seconds=seconds,
            truncated=truncated,
            sampling={
                "temperature": request.temperature,
                "max_tokens": request.max_output_tokens,
                **_drawing(request),
                "format": form.value,
            },
            timings=reading.timings.model_copy(update={"queued_s": queued_s or None}),
            tool_calls=calls,
        )


def _chat(request: Request) -> list[dict[str, Any]]:
    """The messages, none of them empty: servers refuse such, and mlx_lm.server loses its thread over them.

    Calls of tools and their results count as something.
    """
    chat = [one for one in messages(request) if one["content"].strip() or of_tools(one)]
    if not any(one["role"] == "user" for one in chat):
        raise JobInvalid(NO_PROMPT)
    return chat


def _drawing(request: Request) -> dict[str, Any]:
    """What is sent only where it is given: a seed turns batching off in mlx_lm.server."""
    given = {"top_p": request.top_p, "seed": request.seed, "stop": list(request.stop) or None}
    return {name: value for name, value in given.items() if value is not None}


def _was_read(reading: EventStream, chunks: Iterator[bytes], payload: dict[str, Any]) -> bool:
    """Read an answer; false where it only says that the schema is refused, as vLLM does within a stream."""
    try:
        reading.read(chunks)
    except EngineBrokeOff:
        if reading.answer.chunks or _refused(400, reading.refusal, payload) != _SCHEMA:
            raise
        return False
    return True


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


SCHEMAS = ("auto", "json_schema", "none")


class OpenAIEngine:
    """Generates with an OpenAI-compatible server; `url` ends in `/v1`. Durations in seconds.

    `schema` "auto" asks a few odd tokens of a model at its first use, to see whether the server binds answers
    to a schema, and remembers that for an hour; "json_schema" always sends `response_format`, "none" never.
    `api_key_env` names the environment variable that holds the key. `busy_timeout` is how long a server
    without room is asked again, at most a quarter of the job's time.
    """

    name = "openai"
    uses_model = True
    model_source = "server"
    knows_loading = False
    calls_tools = True
    metrics = METRICS

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float = 5.0,
        chunk_timeout: float = 60.0,
        load_timeout: float = 300.0,
        busy_timeout: float = 60.0,
        schema: Literal["auto", "json_schema", "none"] = "auto",
        api_key_env: str = "",
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"engines.openai.url: {url!r} must start with http:// or https://.")
        if schema not in SCHEMAS:
            raise ConfigError(f'engines.openai.schema: {schema!r} must be "auto", "json_schema" or "none".')
        if api_key_env and not os.environ.get(api_key_env):
            raise ConfigError(f"engines.openai.api_key_env: set the environment variable {api_key_env}.")
        address = url.rstrip("/")
        server = Server(address, f"The server at {address}")
        self._peer = ServerState(
            address,
            Limits(connect_timeout, chunk_timeout, load_timeout, busy_timeout),
            api_key_env,
            server,
            Schemas(schema),
            Fingerprints(server),
        )
        self._counters = ExchangeCounters()

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request; see the contract in `base`."""
        if request.deadline_s <= 0:
            raise BudgetExceeded(NO_TIME_LEFT)
        with self._peer.watch(request.deadline_s, request.cancel) as watch, self._counters.generation(watch):
            watch.check()
            patience = BusyRetry(watch, progress, self._peer.limits.busy)
            talk = ChatExchange(self._peer, watch, request, progress)
            made = patience.until_room(lambda: talk.once(patience.waited))
            self._counters.answered(made.tokens)
            return made

    def digest(self, model: str, seconds: float) -> str:
        """`behaviour:…`, a fingerprint of what the model does now; see `grading.domain.model_behaviour`."""
        self._counters.open()
        peer = self._peer
        with peer.watch(seconds, Cancel()) as watch:
            patience = BusyRetry(watch, unheard, peer.limits.busy)
            return patience.until_room(
                lambda: self._talk(watch, lambda wire: peer.fingerprints.digest(wire, model))
            )

    def _talk(self, watch: Watch, talk: Callable[[OpenAIWire], T]) -> T:
        peer = self._peer
        try:
            with peer.wire(watch) as wire:
                return talk(wire)
        except EngineError as exc:
            raise watch.failure() or exc from exc
        except (requests.RequestException, OSError) as exc:
            raise watch.failure() or peer.server.lost(watch, peer.limits.connect, exc) from exc

    def token_counter(self, model: str, seconds: float, progress: Progress) -> TokenCounter | None:
        """The server's own tokenizer (llama-server, vLLM); None where it has no page for it."""
        self._counters.open()
        with self._peer.open(seconds) as wire:
            return self._peer.server.token_counter(model, wire, self._peer.open)

    def capacity(self, model: str, at_once: int, seconds: float) -> Capacity:
        """What llama-server and vLLM tell of their room; nothing is sent to find out about others'."""
        self._counters.open()
        with self._peer.open(seconds) as wire:
            return self._peer.server.capacity(wire, model)

    def embed(self, model: str, texts: Sequence[str], seconds: float, cancel: Cancel) -> Embeddings:
        """By `/v1/embeddings`; see the contract in `base`."""
        self._counters.open()
        peer = self._peer
        with peer.watch(seconds, cancel) as watch:
            watch.check()
            patience = BusyRetry(watch, unheard, peer.limits.busy)
            return patience.until_room(
                lambda: self._talk(watch, lambda wire: peer.server.embed(wire, model, texts))
            )

    def counters(self) -> Mapping[str, float]:
        """See `base.METRICS`."""
        return self._counters.counters()

    def close(self) -> None:
        """End what runs; later generations fail."""
        self._counters.close()
