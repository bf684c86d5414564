"""The engine for servers that speak `/v1/chat/completions`: streamed, bounded in time and bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import requests

from grading.errors import BudgetExceeded, ConfigError, EngineError, EngineGarbled
from grading.jobs import Tokens
from workers.machine.engines.base import Generation, Progress, Request
from workers.machine.engines.bounded import (
    Answer,
    Limits,
    Watch,
    broke_off,
    garbled,
    lines,
    messages,
    not_a_page,
    status_error,
    unreachable,
    wrote_something,
)
from workers.machine.engines.held import HeldAdapter

FIELDS = (b"event", b"id", b"retry", b"data")
"""What lines of an event stream begin with, beside comments."""
FINISHED = ("stop", "length")


class OpenAIEngine:
    """Generates with an OpenAI-compatible server; `url` ends in `/v1`. Durations in seconds.

    `schema` "json_schema" sends `response_format`; "none" is for servers that ignore or refuse it.
    `api_key_env` names the environment variable that holds the key. Never sends a seed: it would turn
    batching off in mlx_lm.server.
    """

    name = "openai"
    uses_model = True

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float = 5.0,
        chunk_timeout: float = 60.0,
        load_timeout: float = 300.0,
        schema: Literal["json_schema", "none"] = "json_schema",
        api_key_env: str = "",
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"engines.openai.url: {url!r} must start with http:// or https://.")
        if schema not in ("json_schema", "none"):
            raise ConfigError(f'engines.openai.schema: {schema!r} must be "json_schema" or "none".')
        if api_key_env and not os.environ.get(api_key_env):
            raise ConfigError(f"engines.openai.api_key_env: set the environment variable {api_key_env}.")
        self.url = url.rstrip("/")
        self._limits = Limits(connect=connect_timeout, chunk=chunk_timeout, load=load_timeout)
        self._schema = schema
        self._api_key_env = api_key_env

    @property
    def _where(self) -> str:
        return f"The server at {self.url}"

    def generate(self, request: Request, progress: Progress) -> Generation:
        """Answer a request; see the contract in `base`."""
        if request.deadline_s <= 0:
            raise BudgetExceeded("No time was left for this job before it reached the engine.")
        with Watch(request, self._limits, self._where) as watch, requests.Session() as session:
            session.trust_env = False
            for scheme in ("http://", "https://"):
                session.mount(scheme, HeldAdapter(watch.hold))
            reading = _Reading(watch, Answer(watch, progress, request.max_output_tokens), self._where)
            try:
                self._exchange(session, request, reading)
            except EngineError as exc:
                raise watch.failure() or exc from exc
            except (requests.RequestException, OSError) as exc:
                error = (
                    broke_off(self._where, type(exc).__name__)
                    if watch.connected
                    else unreachable(self._where, self._limits.connect)
                )
                raise watch.failure() or error from exc
            return self._generation(request, reading)

    def close(self) -> None:
        """Nothing is held between requests."""

    def _exchange(self, session: requests.Session, request: Request, reading: _Reading) -> None:
        headers = {"Accept-Encoding": "identity", "Accept": "text/event-stream"}
        if self._api_key_env:
            headers["Authorization"] = f"Bearer {os.environ.get(self._api_key_env, '')}"
        progress = reading.answer.progress
        progress(0, "loading")  # it may be, as long as the server says nothing
        net = max(self._limits.load, self._limits.chunk) + 5
        with session.post(
            f"{self.url}/chat/completions",
            json=self._payload(request),
            headers=headers,
            stream=True,
            timeout=(min(self._limits.connect, request.deadline_s), net),
            allow_redirects=False,
        ) as response:
            if response.status_code != 200:
                raise self._status_error(response, reading.watch, request.model)
            not_a_page(self._where, response.headers.get("Content-Type", ""), "text/event-stream")
            progress(0, "reading")
            reading.read(_chunks(response, reading.watch, self._where))

    def _payload(self, request: Request) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "model": request.model,
            "messages": messages(request),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": request.max_output_tokens,
            "temperature": request.temperature,
        }
        if self._schema == "json_schema" and request.schema:
            payload["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": request.schema},
            }
        return payload

    def _status_error(self, response: requests.Response, watch: Watch, model: str) -> EngineError:
        body = b""
        for chunk in _chunks(response, watch, self._where):
            body += chunk
            if len(body) > 10_000:
                break
        missing = (
            f"{self._where} does not have the model {model}, its generation thread died, or its url "
            "does not end in /v1. Look at its log, load the model there and restart it."
        )
        return status_error(self._where, response.status_code, body.decode("utf-8", "replace"), missing)

    def _generation(self, request: Request, reading: _Reading) -> Generation:
        answer = reading.answer
        truncated = reading.finish == "length"
        wrote_something(self._where, answer.text, truncated=truncated)
        output = reading.tokens.output or answer.chunks
        answer.progress(output)
        return Generation(
            text=answer.text,
            tokens=reading.tokens.model_copy(update={"output": output}),
            first_token_s=answer.first_token_s,
            seconds=reading.watch.elapsed,
            truncated=truncated,
            sampling={
                "temperature": request.temperature,
                "max_tokens": request.max_output_tokens,
                "format": self._schema if request.schema else "none",
            },
        )


@dataclass
class _Reading:
    """The state of one stream of server-sent events."""

    watch: Watch
    answer: Answer
    where: str
    finish: str = ""
    strange: bool = False
    """A line came that is not of an event stream."""
    tokens: Tokens = field(default_factory=Tokens)

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
        if error := event.get("error"):
            said = error.get("message", "") if isinstance(error, dict) else str(error)
            raise broke_off(self.where, str(said)[:300])
        if usage := event.get("usage"):
            self.tokens = _tokens(usage)
        for choice in (event.get("choices") or [])[:1]:
            delta = choice.get("delta") or {}
            text = str(delta.get("content") or "")
            thought = str(delta.get("reasoning_content") or delta.get("reasoning") or "")
            self.watch.arrived(token=bool(text or thought))
            self.answer.add(text, thought=thought)
            self.finish = str(choice.get("finish_reason") or self.finish)


def _tokens(usage: dict[str, Any]) -> Tokens:
    details = usage.get("prompt_tokens_details") or {}
    return Tokens(
        prompt=int(usage.get("prompt_tokens") or 0),
        cached=int(details.get("cached_tokens") or 0),
        output=int(usage.get("completion_tokens") or 0),
    )


def _chunks(response: requests.Response, watch: Watch, where: str) -> Iterator[bytes]:
    """Bytes as they arrive, counted; ends with the body or when the watch shut the connection."""
    from urllib3.exceptions import HTTPError

    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise EngineGarbled(f"{where} sent a compressed answer, which was not asked for.")
    try:
        while chunk := response.raw.read1(65_536):
            watch.wire(len(chunk))
            yield chunk
    except (HTTPError, ValueError) as exc:  # ValueError: read of a file the watch closed
        raise broke_off(where, type(exc).__name__) from exc
    if (failure := watch.failure()) is not None:
        raise failure
