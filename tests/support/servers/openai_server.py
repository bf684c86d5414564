"""A server that speaks `/v1/chat/completions`, with faults on demand, like one of the `flavours`."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import Any

from tests.support.servers.base import UNPARSED, Behaviour, ModelHandler, ModelServer, main, shown, stats_of
from tests.support.servers.continuations import continued
from tests.support.servers.flavours import FLAVOURS, Flavour, error, pages, thought
from tests.support.servers.instances import answer_text, embedding, faulty_text, pieces, tokens

DEAD = "generation thread died"

BROKEN_OFF = {"error_midstream": "out of memory", "unparsed": UNPARSED}


class OpenAIHandler(ModelHandler):
    """The routes of an OpenAI-compatible server."""

    @property
    def flavour(self) -> Flavour:
        """What the server is like."""
        return FLAVOURS[self.server.behaviour.flavour]

    def do_GET(self) -> None:
        behaviour = self.server.behaviour
        found = pages(
            self.flavour, behaviour.models, dead=behaviour.dead, tools="tools" in behaviour.capabilities
        )
        if self.path == "/stats":
            self.json(stats_of(self.server))
        elif self.path == "/metrics" and self.flavour.metrics:
            self.whole(self.flavour.metrics, "text/plain; version=0.0.4; charset=utf-8")
        elif self.path in found:
            status, value = found[self.path]
            self.json(value, status)
        else:
            self._stray()

    def do_POST(self) -> None:
        payload = self.body()
        counted = self.flavour.tokenizer
        if self.path == "/tokenize" and counted and counted in payload:
            count = tokens(payload[counted])
            self.json({"tokens": list(range(count)), **({"count": count} if counted == "prompt" else {})})
        elif self.path == "/v1/embeddings":
            with contextmanager(self.counted)(payload):
                self._embed(payload)
        elif self.path == "/v1/completions" or "top_logprobs" in payload:
            self._continue(payload)
        elif self.path != "/v1/chat/completions":
            self._stray()
        else:
            with contextmanager(self.counted)(payload):
                self._answer(payload)

    def _continue(self, payload: dict[str, Any]) -> None:
        """Continue a text, as a fingerprint of the weights asks for it."""
        behaviour, model = self.server.behaviour, str(payload.get("model"))
        if self.flavour.logprobs == "chats" and self.path == "/v1/completions":
            self._stray()
        elif behaviour.dead:
            self._fail(404, DEAD)
        elif model not in behaviour.models and not self.flavour.meta:  # llama-server takes any name
            self._fail(404, f"The model `{model}` does not exist", "NotFoundError")
        elif self.flavour.logprobs == "mixed" and payload.get("logprobs", True) is not True:
            self._fail(400, "logprobs must be of type bool")
        else:
            self.json(continued(payload, model, behaviour.weights, self.flavour.logprobs != "none"))

    def _embed(self, payload: dict[str, Any]) -> None:
        """As llama-server does, with and without `--embeddings`; one that has no such page is `mlx`."""
        behaviour, texts = self.server.behaviour, payload["input"]
        counts = [tokens(text) for text in texts]
        if self.flavour.logprobs == "mixed":
            self._stray()
        elif "embedding" not in behaviour.capabilities:
            self._fail(501, "This server does not support embeddings. Start it with `--embeddings`")
        elif payload.get("model") not in behaviour.models and not self.flavour.meta:
            self._fail(404, f"The model `{payload.get('model')}` does not exist", "NotFoundError")
        elif max(counts) > behaviour.context:
            said = f"input ({max(counts)} tokens) is too large to process. increase the physical batch size"
            self._fail(500, said, "server_error")
        else:
            self.pause(behaviour.seconds)
            rows = [
                {"object": "embedding", "index": at, "embedding": embedding(text)}
                for at, text in enumerate(texts)
            ]
            usage = {"prompt_tokens": sum(counts), "total_tokens": sum(counts)}
            self.json({"object": "list", "data": rows[::-1], "model": payload["model"], "usage": usage})

    def _stray(self) -> None:
        status = self.flavour.strays
        said = f"Unexpected endpoint or method. ({self.path})" if status == 200 else "Not Found"
        self.json(error(self.flavour, status, said, "not_found_error"), status)

    def _fail(self, status: int, message: str, kind: str = "invalid_request_error") -> None:
        self.json(error(self.flavour, status, message, kind), status)

    def _answer(self, payload: dict[str, Any]) -> None:
        fault = self.server.take_fault()
        behaviour = self.server.behaviour
        model = str(payload.get("model") or "")
        refused = [name for name in behaviour.refuses if name in payload]
        if behaviour.dead:
            self._fail(404, DEAD)
        elif fault == "404" or model not in behaviour.models:
            self._fail(404, f"The model `{model}` does not exist", "NotFoundError")
        elif fault == "500":
            self._fail(500, "internal error", "server_error")
        elif fault == "503":
            self._fail(503, "Loading model", "unavailable_error")
        elif refused:
            self._fail(400, f"Unrecognized request argument supplied: {refused[0]}")
        elif behaviour.unfit and behaviour.unfit in json.dumps(payload.get("response_format")):
            self._refuse_schema()
        elif not self.page(fault):
            self._generate(_Turn(payload, self.flavour, behaviour.times_ms), fault)

    def _refuse_schema(self) -> None:
        said = "Grammar error: Pointer '/$defs/nowhere' does not exist"
        if not self.flavour.refuses_late:
            self._fail(400, f"Failed to initialize samplers: {said}")
            return
        self.begin_stream("text/event-stream")
        self.chunk(
            b"data: " + json.dumps(error(self.flavour, 400, said, "BadRequestError")).encode() + b"\n\n"
        )
        self.chunk(b"data: [DONE]\n\n")
        self.end_stream()

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
        for piece in turn.thoughts(self.server.behaviour.thinks):
            self.chunk(piece)
        for part in shown(fault, parts):
            self.pause(step)
            self.server.wrote()
            self.chunk(turn.event(part))
            if fault in BROKEN_OFF:
                self.chunk(turn.broken(fault))
                return
        for piece in turn.called():
            self.chunk(piece)
        self.settle("finished")
        for last in turn.closing(len(parts)):
            self.chunk(last)
        self.chunk(b"data: [DONE]\n\n")


class _Turn:
    """One generation: the text to send and the shape of its events."""

    def __init__(self, payload: dict[str, Any], flavour: Flavour, times_ms: tuple[float, float]) -> None:
        self._flavour = flavour
        self._prompt_ms, self._predicted_ms = times_ms
        self._model = str(payload.get("model"))
        self.stream = bool(payload.get("stream", False))
        self.wants_usage = bool((payload.get("stream_options") or {}).get("include_usage"))
        messages = payload.get("messages") or []
        system = "\n".join(str(m["content"]) for m in messages if m["role"] == "system")
        user = "\n".join(str(m["content"]) for m in messages if m["role"] == "user")
        self._prompt, self._cached = tokens(system + user), tokens(system)
        wanted = (payload.get("response_format") or {}) if flavour.enforces else {}
        self._schema = (wanted.get("json_schema") or {}).get("schema")
        whole = pieces(answer_text(self._schema, system, user))
        limit = int(payload.get("max_tokens") or len(whole))
        self.parts = whole[:limit]
        self.reason = "length" if len(self.parts) < len(whole) else "stop"
        self._tools = payload.get("tools") if messages and messages[-1]["role"] != "tool" else None
        if self._tools:
            self.parts, self.reason = ["I look it up."], "tool_calls"

    def parts_with(self, fault: str) -> list[str]:
        """The pieces of the answer a model with this fault gives."""
        other = faulty_text(fault, self._schema)
        return pieces(other) if other else self.parts

    def event(self, text: str, reason: str | None = None, **more: Any) -> bytes:
        """One server-sent event with a piece of text."""
        return self._delta({"role": "assistant", "content": text}, reason, **more)

    def thoughts(self, count: int) -> list[bytes]:
        """Events with thoughts."""
        told = ["Hm."] * count
        if count and self._flavour.thoughts == "content":
            told = ["<thi", "nk>\n", *told, '{"no": "answer"}', "</th", "ink>\n\n"]
        return [self._delta({"role": "assistant", **thought(self._flavour, one)}) for one in told]

    def called(self) -> list[bytes]:
        """Events with a call of the first tool, in pieces as real servers send it."""
        if not self._tools:
            return []
        begun = {"id": "call_1", "type": "function"}
        name = self._tools[0]["function"]["name"]
        pieces = [
            {**begun, "function": {"name": name, "arguments": ""}},
            *({"function": {"arguments": piece}} for piece in ('{"city": ', '"Zürich"}')),
        ]
        return [self._delta({"tool_calls": [{"index": 0, **piece}]}) for piece in pieces]

    def closing(self, output: int) -> list[bytes]:
        """The last events: why it ends, and the counts."""
        more: dict[str, Any] = {}
        if self._flavour.timings:
            prompt = {
                "cache_n": self._cached,
                "prompt_n": self._prompt - self._cached,
                "prompt_ms": self._prompt_ms,
            }
            more["timings"] = {**prompt, "predicted_n": output, "predicted_ms": self._predicted_ms}
        if not self.wants_usage:
            return [self.event("", self.reason, **more)]
        if self._flavour.usage == "last":
            return [self.event("", self.reason, usage=self._usage(output), **more)]
        counts = {**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage(output)}
        return [self.event("", self.reason, **more), _event(counts)]

    def broken(self, fault: str) -> bytes:
        """The event of a failure in the middle."""
        failure = _event(error(self._flavour, 500, BROKEN_OFF[fault], "server_error"))
        return b"event: error\n" + failure if self._flavour.errors == "string" else failure

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
            "prompt_tokens_details": {"cached_tokens": self._cached} if self._flavour.details else None,
        }

    def _delta(self, delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return _event({**self._head("chat.completion.chunk"), "choices": [choice], **more})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "object": kind, "created": int(time.time()), "model": self._model}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def openai_server(
    models: tuple[str, ...] = ("tiny",), seconds: float = 0.0, fault: str = "", flavour: str = ""
) -> ModelServer:
    """A server to run in this process, as a context manager."""
    return ModelServer(OpenAIHandler, Behaviour(models, seconds, fault, flavour=flavour))


if __name__ == "__main__":
    main(OpenAIHandler, __doc__ or "")
