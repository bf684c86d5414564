"""A server that speaks `/v1/chat/completions`, with faults on demand. See `base.main` for its options."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import Any

from tests.servers.base import Behaviour, ModelHandler, ModelServer, main, shown, stats_of
from tests.servers.instances import answer_text, faulty_text, pieces, tokens


class OpenAIHandler(ModelHandler):
    """The routes of an OpenAI-compatible server."""

    def do_GET(self) -> None:
        models = [{"id": m, "object": "model", "created": 0} for m in self.server.behaviour.models]
        routes: dict[str, Any] = {
            "/v1/models": {"object": "list", "data": models},
            "/health": {"status": "ok"},
            "/stats": stats_of(self.server),
        }
        if self.path in routes:
            self.json(routes[self.path])
        else:
            self.json({"error": {"message": "not found"}}, 404)

    def do_POST(self) -> None:
        payload = self.body()
        if self.path != "/v1/chat/completions":
            self.json({"error": {"message": "not found"}}, 404)
            return
        with contextmanager(self.counted)(payload):
            self._answer(payload)

    def _answer(self, payload: dict[str, Any]) -> None:
        fault = self.server.take_fault()
        model = str(payload.get("model") or "")
        if fault == "404" or model not in self.server.behaviour.models:
            self.json(
                {"error": {"message": f"The model `{model}` does not exist", "type": "NotFoundError"}}, 404
            )
        elif fault == "500":
            self.json({"error": {"message": "internal error", "type": "server_error"}}, 500)
        elif fault == "503":
            self.json({"error": {"message": "Loading model", "type": "unavailable_error"}}, 503)
        elif not self.page(fault):
            self._generate(_Turn(payload), fault)

    def _generate(self, turn: _Turn, fault: str) -> None:
        if not turn.stream and not fault:
            self.pause(self.server.behaviour.seconds)
            self.json(turn.whole())
            return
        if fault == "hang":
            self.pause(3600)
        self.begin_stream("text/event-stream")
        if not self.broken_stream(fault, turn.event(turn.parts[0])):
            self._stream(turn, fault)
        self.end_stream()

    def _stream(self, turn: _Turn, fault: str) -> None:
        parts = turn.parts_with(fault)
        if fault == "length":
            parts, turn.reason = parts[: len(parts) // 2], "length"
        step = self.server.behaviour.seconds / max(1, len(parts))
        self.chunk(b": keepalive 0/2\n\n: keepalive 2/2\n\n")
        self.chunk(turn.event(""))
        for _ in range(self.server.behaviour.thinks):
            self.chunk(turn.event("", thought="Hm."))
        for part in shown(fault, parts):
            self.pause(step)
            self.chunk(turn.event(part))
            if fault == "error_midstream":
                self.chunk(b'data: {"error": {"message": "out of memory", "code": 500}}\n\n')
                return
        self.settle("finished")
        self.chunk(turn.event("", turn.reason))
        if turn.wants_usage:
            self.chunk(turn.usage_event(len(parts)))
        self.chunk(b"data: [DONE]\n\n")


class _Turn:
    """One generation: the text to send and the shape of its events."""

    def __init__(self, payload: dict[str, Any]) -> None:
        self._model = str(payload.get("model"))
        self.stream = bool(payload.get("stream", False))
        self.wants_usage = bool((payload.get("stream_options") or {}).get("include_usage"))
        messages = payload.get("messages") or []
        system = "\n".join(str(m["content"]) for m in messages if m["role"] == "system")
        user = "\n".join(str(m["content"]) for m in messages if m["role"] == "user")
        self._prompt, self._cached = tokens(system + user), tokens(system)
        wanted = payload.get("response_format") or {}
        self._schema = (wanted.get("json_schema") or {}).get("schema")
        whole = pieces(answer_text(self._schema, system, user))
        limit = int(payload.get("max_tokens") or len(whole))
        self.parts = whole[:limit]
        self.reason = "length" if len(self.parts) < len(whole) else "stop"

    def parts_with(self, fault: str) -> list[str]:
        """The pieces of the answer a model with this fault gives."""
        other = faulty_text(fault, self._schema)
        return pieces(other) if other else self.parts

    def event(self, text: str, reason: str | None = None, thought: str = "") -> bytes:
        """One server-sent event with a piece of text or of thought."""
        delta = {"role": "assistant", "content": text, **({"reasoning_content": thought} if thought else {})}
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return _event({**self._head("chat.completion.chunk"), "choices": [choice]})

    def usage_event(self, output: int) -> bytes:
        """The event with the counts."""
        return _event({**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage(output)})

    def whole(self) -> dict[str, Any]:
        """The answer without a stream."""
        message = {"role": "assistant", "content": "".join(self.parts)}
        choice = {"index": 0, "message": message, "finish_reason": self.reason}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage(len(self.parts))}

    def _usage(self, output: int) -> dict[str, Any]:
        return {
            "prompt_tokens": self._prompt,
            "completion_tokens": output,
            "total_tokens": self._prompt + output,
            "prompt_tokens_details": {"cached_tokens": self._cached},
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "object": kind, "created": int(time.time()), "model": self._model}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def openai_server(models: tuple[str, ...] = ("tiny",), seconds: float = 0.0, fault: str = "") -> ModelServer:
    """A server to run in this process, as a context manager."""
    return ModelServer(OpenAIHandler, Behaviour(models, seconds, fault))


if __name__ == "__main__":
    main(OpenAIHandler, __doc__ or "")
