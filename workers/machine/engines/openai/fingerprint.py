"""Which weights a server has: what it lists of them, and what its model does with fixed texts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from grading.domain.errors import EngineUnreachable, ModelMissing
from grading.domain.model_behaviour import (
    LETTERS,
    POSITIONS,
    TEXTS,
    TOKENS,
    Behaviour,
    Position,
    encode,
    of_positions,
    of_texts,
)
from workers.machine.engines.openai.server import OpenAIWire, Server, all_models, entry, field_of
from workers.machine.messages import OPENAI_OTHER_MODEL

TEXT = "Seven words in no particular order:"
"""Nothing in particular follows, so models differ in it. Sent without a chat template where the server takes
that: templates may write the date."""
BEGINNINGS = (
    TEXT,
    "The door opened, and there stood",
    "On the list were eggs, flour and",
    "def f(x, y):\n    return",
    "Am Abend sahen wir",
    "Her favorite number was",
    "The capital of the invented country was called",
    "He wrote a letter to",
)
WEIGHTS = ("n_params", "size", "n_vocab", "n_embd", "n_ctx_train", "vocab_type")
"""What llama-server lists of them."""
ANY_NAME = "llamacpp"
"""Who owns the models of llama-server, which answers to names that it does not have."""
SECONDS = 300.0
"""For one answer: a server may be reading the prompts of a whole batch."""

Payload = dict[str, Any]
Dialect = Callable[[str, str], tuple[str, Payload]]
"""Model and text -> the page that is asked, and what for."""


def _legacy(model: str, text: str) -> tuple[str, Payload]:
    """vLLM and llama-server."""
    return "/completions", {**_greedy(model), "prompt": text, "logprobs": TOKENS, "ignore_eos": True}


def _mixed(model: str, text: str) -> tuple[str, Payload]:
    """mlx_lm.server."""
    return "/completions", {**_greedy(model), "prompt": text, "logprobs": True, "top_logprobs": TOKENS}


def _chat(model: str, text: str) -> tuple[str, Payload]:
    """Servers of chats only."""
    told = [{"role": "user", "content": text}]
    return "/chat/completions", {**_greedy(model), "messages": told, "logprobs": True, "top_logprobs": TOKENS}


def _plain(model: str, text: str) -> tuple[str, Payload]:
    """Servers without log-probabilities."""
    return "/completions", {**_greedy(model), "prompt": text}


def _plain_chat(model: str, text: str) -> tuple[str, Payload]:
    return "/chat/completions", {**_greedy(model), "messages": [{"role": "user", "content": text}]}


def _greedy(model: str) -> Payload:
    return {"model": model, "max_tokens": POSITIONS, "temperature": 0}


WITH_POSITIONS: tuple[Dialect, ...] = (_legacy, _mixed, _chat)
WITH_TEXTS: tuple[Dialect, ...] = (_plain, _plain_chat)


@dataclass
class Fingerprints:
    """Asks one server for the weights of its models. Thread-safe; remembers how a model can be asked."""

    server: Server
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _dialects: dict[str, Dialect] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def digest(self, wire: OpenAIWire, model: str) -> str:
        """`behaviour:…`, as it is now; empty where the server gives neither log-probabilities nor text.

        Raises ModelMissing where it lists other models than this one and would answer in their place.
        """
        listed = self._listed(wire, model)
        found = self._behaviour(wire, model, _told(listed, model))
        return encode(found) if found is not None else ""

    def check_name(self, model: str, answered: str) -> None:
        """Raises ModelMissing for an answer under another name than that of the fingerprint."""
        known = self._names.get(model)
        if known and answered and known != answered:
            raise ModelMissing(
                OPENAI_OTHER_MODEL(engine=self.server.where, model=model, known=known, answered=answered)
            )

    def _listed(self, wire: OpenAIWire, model: str) -> Any:
        status, listed = wire.look(f"{self.server.url}/models")
        if status >= 500:
            raise self.server.error(wire, status, "", model)
        models = all_models(listed)
        strict = any(one.get("owned_by") == ANY_NAME for one in models)
        if strict and not any(model in _names(one) for one in models):
            raise ModelMissing(self.server.missing(wire, model))
        return listed

    def _behaviour(self, wire: OpenAIWire, model: str, told: Mapping[str, object]) -> Behaviour | None:
        known = self._dialects.get(model)
        dialects = (known,) if known is not None else (*WITH_POSITIONS, *WITH_TEXTS)
        for dialect in dialects:
            found = self._ask(wire, model, dialect, told)
            if found is not None:
                with self._lock:
                    self._dialects[model] = dialect
                return found
        return None

    def _ask(
        self, wire: OpenAIWire, model: str, dialect: Dialect, told: Mapping[str, object]
    ) -> Behaviour | None:
        if dialect in WITH_POSITIONS:
            choice = self._choice(wire, model, dialect(model, TEXT))
            positions = list(_positions(choice)) if choice is not None else []
            return of_positions(told, positions) if positions else None
        texts = []
        for beginning in BEGINNINGS[:TEXTS]:
            choice = self._choice(wire, model, dialect(model, beginning))
            if choice is None:
                return None
            texts.append(_text(choice))
        return of_texts(told, texts) if any(texts) else None

    def _choice(self, wire: OpenAIWire, model: str, asked: tuple[str, Payload]) -> dict[str, Any] | None:
        """The first choice of an answer; None where the server does not take what was asked."""
        page, payload = asked
        status, answer = wire.look(f"{self.server.url}{page}", payload, SECONDS)
        choices = field_of(answer, "choices")
        if status == 200 and isinstance(choices, list) and choices and isinstance(choices[0], dict):
            with self._lock:
                self._names[model] = str(field_of(answer, "model") or "")
            return choices[0]
        error = self.server.error(wire, status, json.dumps(answer), model)
        if status in (401, 403, 429) or status >= 502 or isinstance(error, ModelMissing | EngineUnreachable):
            raise error
        return None


def _told(listed: Any, model: str) -> dict[str, object]:
    meta = field_of(entry(listed, model), "meta")
    return {name: meta.get(name) for name in WEIGHTS} if isinstance(meta, dict) else {}


def _names(one: Mapping[str, Any]) -> set[str]:
    """What a model is called: its id, other names, and the end of a path."""
    names = {str(one.get("id")), *map(str, one.get("aliases") or ())}
    return names | {name.rpartition("/")[2] for name in names}


def _positions(choice: Mapping[str, Any]) -> Iterator[Position]:
    """Token -> log-probability, of the likeliest of each position: as chats have it, or as completions."""
    told = choice.get("logprobs")
    content = field_of(told, "content")
    if isinstance(content, list):
        for one in content:
            rows = field_of(one, "top_logprobs")
            found = {_token(row): _value(row) for row in rows if isinstance(row, dict)} if rows else {}
            if not found:
                return
            yield found
        return
    for row in field_of(told, "top_logprobs") or ():
        if not isinstance(row, dict) or not row:
            return
        yield {str(token): float(value) for token, value in row.items()}


def _token(row: Mapping[str, Any]) -> str:
    """Texts alone are not unique: parts of letters all read alike."""
    return str(next((row[name] for name in ("id", "bytes", "token") if row.get(name) is not None), ""))


def _value(row: Mapping[str, Any]) -> float:
    try:
        return float(row["logprob"])
    except (KeyError, TypeError, ValueError):
        return float("-inf")


def _text(choice: Mapping[str, Any]) -> str:
    said = choice.get("text")
    if said is None:
        said = field_of(choice.get("message"), "content")
    return str(said or "").strip()[:LETTERS]
