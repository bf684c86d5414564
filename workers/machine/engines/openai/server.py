"""One server that speaks the OpenAI API: requests under a watch, and what it says of itself beside chats."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import requests

from grading.domain.errors import EngineError, EngineGarbled, EngineUnreachable, JobInvalid, ModelMissing
from grading.domain.messages import Message
from workers.machine.engines.base import Capacity, Embeddings, EmbeddingsRefused, TokenCounter
from workers.machine.engines.http.embeddings import checked
from workers.machine.engines.http.errors import (
    broke_off,
    compressed,
    garbled,
    reason,
    status_error,
    unreachable,
)
from workers.machine.engines.http.exchange import HeldAdapter, Limits, Watch
from workers.machine.engines.openai.capacity import reported, with_cache
from workers.machine.engines.token_estimates import careful
from workers.machine.messages import (
    ANSWERED_ERROR,
    NO_CHATS_V1,
    OPENAI_MODEL_MISSING,
    OPENAI_MODEL_MISSING_OF,
    PROMPT_TOO_LONG,
    THREAD_DIED,
)

LOOK_S = 2.0
MAX_ERROR_BYTES = 10_000
MAX_LOOK_BYTES = 4_000_000


class OpenAIWire:
    """One exchange with a server and the look-ups around it. Use as a context manager.

    Raises EngineErrors, and what requests raises.
    """

    def __init__(self, watch: Watch, limits: Limits, where: str, headers: Mapping[str, str]) -> None:
        self.watch = watch
        self.where = where
        self._limits = limits
        self._headers = {"Accept-Encoding": "identity", **headers}
        self._session = requests.Session()

    def __enter__(self) -> OpenAIWire:
        self._session.trust_env = False
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HeldAdapter(self.watch.hold))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def post(
        self, url: str, payload: Mapping[str, Any], accept: str = "text/event-stream"
    ) -> requests.Response:
        """Begin an exchange; the answer's body is not read yet."""
        # the watch is the stricter one; this is the net below it
        net = max(self._limits.load, self._limits.chunk) + 5
        return self._session.post(
            url,
            json=payload,
            headers={**self._headers, "Accept": accept},
            stream=True,
            timeout=(max(0.01, min(self._limits.connect, self.watch.remaining)), net),
            allow_redirects=False,
        )

    def chunks(self, response: requests.Response) -> Iterator[bytes]:
        """Bytes as they arrive, counted; ends with the body or when the watch shut the connection."""
        from urllib3.exceptions import HTTPError

        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise compressed(self.where)
        try:
            while chunk := response.raw.read1(65_536):
                self.watch.wire(len(chunk))
                yield chunk
        except (HTTPError, ValueError) as exc:  # ValueError: read of a file the watch closed
            raise broke_off(self.where, type(exc).__name__) from exc
        self.watch.check()

    def body(self, response: requests.Response, most: int = MAX_ERROR_BYTES) -> str:
        """The beginning of a body."""
        body = b""
        for chunk in self.chunks(response):
            body += chunk
            if len(body) > most:
                break
        return body[:most].decode("utf-8", "replace")

    def look(
        self, url: str, payload: Mapping[str, Any] | None = None, most_s: float = LOOK_S
    ) -> tuple[int, Any]:
        """Status and JSON of a small answer; nothing for a body that is no JSON."""
        status, text = self.page(url, payload, most_s)
        try:
            return status, json.loads(text)
        except ValueError:
            return status, None

    def page(
        self, url: str, payload: Mapping[str, Any] | None = None, most_s: float = LOOK_S
    ) -> tuple[int, str]:
        """Status and text of a small answer."""
        seconds = max(0.01, min(most_s, self.watch.remaining))
        with self._session.request(
            "GET" if payload is None else "POST",
            url,
            json=payload,
            headers=self._headers,
            stream=True,
            timeout=(seconds, seconds),
            allow_redirects=False,
        ) as response:
            return response.status_code, self.body(response, MAX_LOOK_BYTES)


REMEMBER_S = 300.0
COUNT_S = 5.0
_COUNTED = 2_000
_NO_EMBEDDINGS = (400, 404, 405, 500, 501)
_TOO_LONG = "too large to process"
"""llama-server's words for a text that is longer than its physical batch, under status 500."""
_NO_PAGE = ("not found", "file not found", "404 page not found")
_NO_MODEL = ("model_not_found", "invalid model", "no models loaded", "no model loaded")
_DEAD = "generation thread died"
Open = Callable[[float], AbstractContextManager[OpenAIWire]]
"""A wire with a watch of its own, for so many seconds."""


@dataclass
class Server:
    """One server; `url` ends in `/v1`. Thread-safe."""

    url: str
    where: str
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counters: dict[str, tuple[float, TokenCounter | None]] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """The address without `/v1`."""
        return self.url.removesuffix("/v1")

    def error(self, wire: OpenAIWire, status: int, text: str, model: str) -> EngineError:
        """The error for a status other than 200, or an error under status 200."""
        said = reason(text)
        if _DEAD in text or (status == 404 and self.dead(wire)):
            return self.died()
        plain = said.lower().rstrip(".")
        if status in (200, 404) and (plain in _NO_PAGE or plain.startswith("unexpected endpoint")):
            return EngineGarbled(NO_CHATS_V1(engine=self.where))
        if status == 404 or any(word in text.lower() for word in _NO_MODEL):
            return ModelMissing(self.missing(wire, model))
        if status == 200:
            return EngineError(ANSWERED_ERROR(engine=self.where, answer=said))
        return status_error(self.where, status, text, Message())

    def died(self) -> EngineUnreachable:
        """The error for mlx_lm.server whose process lives on without the thread that generates."""
        return EngineUnreachable(THREAD_DIED(engine=self.where))

    def lost(self, watch: Watch, connect_s: float, error: Exception) -> EngineError:
        """The error for a connection that was not made, or broke."""
        if watch.connected:
            return broke_off(self.where, type(error).__name__)
        return unreachable(self.where, connect_s)

    def without_tools(self, wire: OpenAIWire) -> bool:
        """Whether llama-server says that the model's template has no place for tools; it would drop them."""
        _, props = self._look(wire, f"{self.root}/props")
        return field_of(field_of(props, "chat_template_caps"), "supports_tools") is False

    def dead(self, wire: OpenAIWire) -> bool:
        """Whether mlx_lm.server calls itself unwell; a llama-server that loads says 503 in other words."""
        status, health = self._look(wire, f"{self.root}/health")
        return status == 503 and field_of(health, "status") == "unavailable"

    def token_counter(self, model: str, wire: OpenAIWire, open_wire: Open) -> TokenCounter | None:
        """The server's own tokenizer, where it has a page for it."""
        with self._lock:
            known = self._counters.get(model)
        if known is not None and time.monotonic() - known[0] < REMEMBER_S:
            return known[1]
        found: TokenCounter | None = None
        for shape in (_llama, _vllm):
            if _count(self._look(wire, f"{self.root}/tokenize", shape(model, "a b c"))[1]) is not None:
                context = self._reported(wire, model).context_tokens
                found = TokenCounter(context, _Counting(self, model, shape, open_wire).count)
                break
        with self._lock:
            self._counters[model] = (time.monotonic(), found)
        return found

    def count(self, wire: OpenAIWire, payload: dict[str, Any]) -> int | None:
        """Tokens of a text by the server's tokenizer."""
        return _count(self._look(wire, f"{self.root}/tokenize", payload)[1])

    def embed(self, wire: OpenAIWire, model: str, texts: Sequence[str]) -> Embeddings:
        """The embeddings of some texts. Raises EngineErrors, and what requests raises."""
        payload = {"model": model, "input": list(texts), "encoding_format": "float"}
        with wire.post(f"{self.url}/embeddings", payload, "application/json") as response:
            status, body = response.status_code, wire.body(response, MAX_LOOK_BYTES)
        said = reason(body).lower()
        if status != 200:
            if _TOO_LONG in said:
                raise JobInvalid(PROMPT_TOO_LONG(answer=reason(body)))
            if status in _NO_EMBEDDINGS and ("embedding" in said or said.rstrip(".") in _NO_PAGE):
                raise EmbeddingsRefused
            raise self.error(wire, status, body, model)
        try:
            answer = json.loads(body)
            rows = sorted(answer["data"], key=lambda row: int(row["index"]))
            tokens = int((answer.get("usage") or {}).get("prompt_tokens") or 0)
            return checked([row["embedding"] for row in rows], len(texts), tokens, self.where)
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise garbled(self.where) from exc

    def capacity(self, wire: OpenAIWire, model: str) -> Capacity:
        """What the server tells of the room it has for a model."""
        told = self._reported(wire, model)
        if told.context_tokens is None or told.slots is not None:
            return told
        try:
            return with_cache(told, wire.page(f"{self.root}/metrics")[1])
        except (EngineError, requests.RequestException, OSError):
            wire.watch.check()
            return told

    def _reported(self, wire: OpenAIWire, model: str) -> Capacity:
        """Slots and context, as llama-server and vLLM say what they were started with."""
        _, props = self._look(wire, f"{self.root}/props")
        _, listed = self._look(wire, f"{self.url}/models")
        return reported(props, entry(listed, model))

    def missing(self, wire: OpenAIWire, model: str) -> Message:
        """The sentence for a model that it does not have."""
        _, listed = self._look(wire, f"{self.url}/models")
        names = [str(one.get("id")) for one in all_models(listed)][:5]
        if names:
            return OPENAI_MODEL_MISSING_OF(engine=self.where, model=model, known=tuple(names))
        return OPENAI_MODEL_MISSING(engine=self.where, model=model)

    def _look(self, wire: OpenAIWire, url: str, payload: dict[str, Any] | None = None) -> tuple[int, Any]:
        try:
            return wire.look(url, payload)
        except (EngineError, requests.RequestException, OSError):
            wire.watch.check()
            return 0, None


@dataclass(frozen=True)
class _Counting:
    """Counts texts with a server's tokenizer; carefully estimated where it does not answer."""

    server: Server
    model: str
    shape: Callable[[str, str], dict[str, Any]]
    open_wire: Open
    _known: dict[int, int] = field(default_factory=dict)
    _silent: threading.Event = field(default_factory=threading.Event)
    """It did not answer: a submission has hundreds of texts, and each would wait for it again."""

    def count(self, text: str) -> int:
        """Tokens of a text."""
        if not text:
            return 0
        key = hash(text)
        counted = self._known.get(key)  # once: other threads may clear it
        if counted is None and not self._silent.is_set():
            counted = self._ask(text)
            if counted is None:
                self._silent.set()
            else:
                if len(self._known) >= _COUNTED:
                    self._known.clear()
                self._known[key] = counted
        return int(careful(text)) + 1 if counted is None else counted

    def _ask(self, text: str) -> int | None:
        try:
            with self.open_wire(COUNT_S) as wire:
                return self.server.count(wire, self.shape(self.model, text))
        except EngineError:
            return None


def _llama(_model: str, text: str) -> dict[str, Any]:
    return {"content": text, "add_special": False}


def _vllm(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "prompt": text, "add_special_tokens": False}


def field_of(value: Any, name: str) -> Any:
    """A field of what should be an object; None where it is none."""
    return value.get(name) if isinstance(value, dict) else None


def all_models(listed: Any) -> list[dict[str, Any]]:
    """The entries of `/v1/models`."""
    data = field_of(listed, "data")
    return [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []


def entry(listed: Any, model: str) -> dict[str, Any] | None:
    """The entry of a model; of a server with one model that one, as it answers to any name."""
    models = all_models(listed)
    named = [one for one in models if one.get("id") == model] or models
    return named[0] if len(named) == 1 else None


def _count(answer: Any) -> int | None:
    if isinstance(count := field_of(answer, "count"), int):
        return count
    return len(tokens) if isinstance(tokens := field_of(answer, "tokens"), list) else None
