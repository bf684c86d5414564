"""A server that speaks Ollama's protocol, with faults on demand. See `base.main` for its options."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from tests.support.servers.base import UNPARSED, Behaviour, ModelHandler, ModelServer, main, shown, stats_of
from tests.support.servers.instances import answer_text, embedding, faulty_text, pieces, tokens

BUSY = "server busy, please try again.  maximum pending requests exceeded"
BROKEN_OFF = {
    "error_midstream": "an error was encountered while running the model: unexpected EOF",
    "unparsed": f"llama-server chat error: map[code:500 message:{UNPARSED} type:server_error]",
}
TOO_LONG = "request ({} tokens) exceeds the available context size ({} tokens), try increasing it"
LOAD_NS = 41_000_000
DETAILS = {
    "parent_model": "",
    "format": "gguf",
    "family": "qwen3moe",
    "families": ["qwen3moe"],
    "parameter_size": "30.5B",
    "quantization_level": "Q4_K_M",
}


def digest_of(model: str, weights: str = "") -> str:
    """The digest this server lists for a model."""
    return hashlib.sha256(f"{model}{weights}".encode()).hexdigest()


class OllamaHandler(ModelHandler):
    """Ollama's routes."""

    def do_GET(self) -> None:
        models = [self._model(name) for name in self.server.behaviour.models]
        routes: dict[str, Any] = {
            "/api/version": {"version": "0.12.6"},
            "/api/tags": {"models": models},
            "/api/ps": {"models": [self._running(m["name"]) for m in models if self.server.behaviour.loaded]},
            "/stats": stats_of(self.server),
        }
        if self.path in routes:
            self.json(routes[self.path])
        else:
            self.json({"error": "404 page not found"}, 404)

    def do_POST(self) -> None:
        payload = self.body()
        if self.path == "/api/show":
            self._show(payload)
        elif self.path in ("/api/chat", "/api/generate"):
            with contextmanager(self.counted)(payload):
                self._answer(payload, chat=self.path == "/api/chat")
        elif self.path == "/api/embed":
            with contextmanager(self.counted)(payload):
                self._embed(payload)
        else:
            self.json({"error": "404 page not found"}, 404)

    def _embed(self, payload: dict[str, Any]) -> None:
        behaviour, model = self.server.behaviour, str(payload.get("model") or "")
        given = payload.get("input") or []
        texts = [given] if isinstance(given, str) else given
        counts = [tokens(text) for text in texts]
        if model not in behaviour.models:
            self.json({"error": f"model '{model}' not found"}, 404)
        elif "embedding" not in behaviour.capabilities:
            self.json({"error": "this model does not support embeddings"}, 501)
        elif max(counts) > behaviour.context and payload.get("truncate") is False:
            self.json({"error": "the input length exceeds the context length"}, 400)
        else:
            self.pause(behaviour.seconds)
            vectors = [embedding(text) for text in texts]
            told = {"total_duration": LOAD_NS, "load_duration": LOAD_NS, "prompt_eval_count": sum(counts)}
            self.json({"model": model, "embeddings": vectors, **told})

    def _model(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "model": name,
            "modified_at": "2025-09-01T08:00:00Z",
            "size": 18_556_701_140,
            "digest": digest_of(name, self.server.behaviour.weights),
            "details": DETAILS,
        }

    def _running(self, name: str) -> dict[str, Any]:
        model = self._model(name)
        context = self.server.contexts.get(name, 4096)
        return {**model, "expires_at": _now(), "size_vram": model["size"], "context_length": context}

    def _show(self, payload: dict[str, Any]) -> None:
        name = str(payload.get("model") or payload.get("name") or "")
        if name not in self.server.behaviour.models:
            self.json({"error": f"model '{name}' not found"}, 404)
            return
        behaviour = self.server.behaviour
        kind = "gptoss" if name.startswith("gpt-oss") else "qwen3moe"
        info = {"general.architecture": kind, f"{kind}.context_length": behaviour.context}
        able = list(behaviour.capabilities)
        self.json({"details": DETAILS, "model_info": info, "capabilities": able, "modified_at": _now()})

    def _answer(self, payload: dict[str, Any], *, chat: bool) -> None:
        fault, behaviour = self.server.take_fault(), self.server.behaviour
        if context := (payload.get("options") or {}).get("num_ctx"):
            self.server.contexts[str(payload.get("model"))] = int(context)
        model = str(payload.get("model") or "")
        if fault == "404" or model not in behaviour.models:
            self.json({"error": f"model '{model}' not found"}, 404)
        elif fault == "500":
            self.json({"error": "llama-server process has terminated: exit status 2"}, 500)
        elif fault == "503":
            self.json({"error": BUSY}, 503)
        elif not self.page(fault):
            self._generate(_Turn(payload, chat, behaviour), fault)

    def _generate(self, turn: _Turn, fault: str) -> None:
        self.until_answering()
        if turn.too_long and self.server.behaviour.refuses_long:
            self.json({"error": TOO_LONG.format(*turn.too_long)}, 400)
            return
        if not turn.stream and not fault:
            self.pause(self.server.behaviour.seconds)
            waits = self.server.behaviour.waits
            waited = waits[next(self.server.answered_whole) % len(waits)]
            self.json(turn.last("".join(turn.parts), len(turn.parts), waited))
            return
        if fault == "hang":  # while a model loads, Ollama sends not even a status line
            self.pause(3600)
        self.begin_stream("application/x-ndjson")
        if not self.broken_stream(fault, turn.line(turn.parts[0] if turn.parts else "")):
            self._stream(turn, fault)
        self.end_stream()

    def _stream(self, turn: _Turn, fault: str) -> None:
        if self.server.behaviour.repeats:
            for _ in range(31):
                self.chunk(turn.line(" a"))
            return
        parts = turn.parts_with(fault)
        if fault == "length":
            parts, turn.reason = parts[: len(parts) // 2], "length"
        step = self.server.behaviour.token_s or self.server.behaviour.seconds / max(1, len(parts))
        for part in shown(fault, parts):
            self.pause(step)
            self.server.wrote()
            self.chunk(turn.line(part))
            if fault in BROKEN_OFF:
                self.chunk(json.dumps({"error": BROKEN_OFF[fault]}).encode() + b"\n")
                return
        for line in turn.called():
            self.chunk(line)
        self.settle("finished")
        self.chunk(
            json.dumps(turn.last("", len(parts) * self.server.behaviour.tokens_a_piece)).encode() + b"\n"
        )


class _Turn:
    """One generation: the text to send and the shape of its lines."""

    def __init__(self, payload: dict[str, Any], chat: bool, behaviour: Behaviour) -> None:
        self._start = time.monotonic()
        self._model = str(payload.get("model"))
        self._chat = chat
        self.stream = bool(payload.get("stream", True))
        if chat:
            messages = payload.get("messages") or []
        else:
            messages = [
                {"role": "system", "content": payload.get("system") or ""},
                {"role": "user", "content": payload.get("prompt") or ""},
            ]
        size = _size(messages, behaviour)
        options = payload.get("options") or {}
        context = int(options.get("num_ctx") or size + 1)
        # what does not fit is left out, the oldest first, then cut; and nothing is said
        while size > context and (old := [m for m in messages if m["role"] != "system"][:-1]):
            messages = [m for m in messages if m is not old[0]]
            size = _size(messages, behaviour)
        said = {
            role: "\n".join(str(m.get("content", "")) for m in messages if m["role"] == role)
            for role in _ROLES
        }
        self._prompt_tokens = _fitting(size, context, options.get("num_keep", 4))
        self.too_long = (size, context) if size >= context else None
        schema = payload.get("format")
        # one that it cannot follow is ignored, and nothing is said
        unfit = behaviour.unfit and behaviour.unfit in json.dumps(schema)
        self._schema = schema if isinstance(schema, dict) and not unfit else None
        text = answer_text(self._schema, said["system"], said["user"])
        text = behaviour.answers(said["user"], text)
        if behaviour.prose and not self._schema:
            text = behaviour.prose
        for stop in (payload.get("options") or {}).get("stop") or ():
            text = text.partition(stop)[0]
        whole = pieces(text)
        limit = int(options.get("num_predict") or -1)
        self.parts = whole[:limit] if limit > 0 else whole
        self.reason = "length" if len(self.parts) < len(whole) else "stop"
        self._tools = payload.get("tools") if messages[-1]["role"] != "tool" else None

    def parts_with(self, fault: str) -> list[str]:
        """The pieces of the answer a model with this fault gives."""
        other = faulty_text(fault, self._schema)
        return pieces(other) if other else self.parts

    def line(self, text: str) -> bytes:
        """One line of the stream."""
        return json.dumps({**self._head(text), "done": False}).encode() + b"\n"

    def called(self) -> list[bytes]:
        """A line that calls the first tool, whole as Ollama sends it."""
        if not self._tools:
            return []
        called = {"name": self._tools[0]["function"]["name"], "arguments": {"city": "Zürich"}}
        message = {"role": "assistant", "content": "", "tool_calls": [{"function": called}]}
        return [json.dumps({**self._head(""), "message": message, "done": False}).encode() + b"\n"]

    def last(self, text: str, count: int, waits: float = 0.0) -> dict[str, Any]:
        """The closing object with its counts, in nanoseconds; it waited for so many answers."""
        total = int((time.monotonic() - self._start) * 1e9) + 1
        return {
            **self._head(text),
            "done": True,
            "done_reason": self.reason,
            "total_duration": LOAD_NS + int((1 + waits) * total),
            "load_duration": LOAD_NS,
            "prompt_eval_count": self._prompt_tokens,
            "prompt_eval_duration": total // 3,
            "eval_count": count,
            "eval_duration": 2 * (total // 3),
        }

    def _head(self, text: str) -> dict[str, Any]:
        said = {"message": {"role": "assistant", "content": text}} if self._chat else {"response": text}
        return {"model": self._model, "created_at": _now(), **said}


def _size(messages: list[dict[str, Any]], behaviour: Behaviour) -> int:
    """Tokens of all messages."""
    return int(tokens("".join(str(m.get("content", "")) for m in messages)) * 4 / behaviour.chars_a_token)


def _fitting(size: int, context: int, keep: int) -> int:
    """Tokens of a prompt that are read: of one that is too long the first `keep` and the last."""
    if size < context:
        return size
    kept = min(size if keep < 0 else keep, context - 1)
    return context - max((context - kept) // 2, 1)


_ROLES = ("system", "user", "assistant")


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def ollama_server(models: tuple[str, ...] = ("tiny",), seconds: float = 0.0, fault: str = "") -> ModelServer:
    """A server to run in this process, as a context manager."""
    return ModelServer(OllamaHandler, Behaviour(models, seconds, fault))


if __name__ == "__main__":
    main(OllamaHandler, __doc__ or "")
