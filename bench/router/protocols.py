"""Requests and answers of Ollama's and OpenAI's protocols, as the emulated machines speak them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bench.router.cost_model import STAGES, Work
from bench.router.emulator import Request
from workers.machine.engines.instant import InstanceMaker

MARK = re.compile(r"job-\d+((?:-[a-z]+\d+)+)")
"""Stands in a submission, and says which one it is and how long its answers are."""
CHARS_A_TOKEN = 4
BLANK_RUN = 400
PROSE = "The sky is blue."


def mark(number: int, output: Mapping[str, int]) -> str:
    """What is written into a submission; `output` is stage -> tokens of its answer."""
    return f"job-{number}" + "".join(f"-{stage}{tokens}" for stage, tokens in output.items())


def marked(text: str, stage: str) -> int | None:
    """The tokens of the answer that a text with a mark asks for."""
    found = MARK.search(text)
    tokens = re.search(rf"-{stage}(\d+)", found[1]) if found else None
    return int(tokens[1]) if tokens else None


class _Words(InstanceMaker):
    """Small answers with a few words in each text."""

    def string(self, path: tuple[str, ...], low: int, high: int | None) -> str:
        """Some words, as long as allowed."""
        return "A clear first step.".ljust(low, ".")[:high]


@dataclass(frozen=True)
class ChatRequest:
    """A request as it came, whatever it was spoken in."""

    model: str
    system: str
    user: str
    schema: dict[str, Any] | None
    most: int | None
    """Tokens of the answer."""
    stream: bool

    def text(self) -> str:
        """An answer that fits the schema."""
        return json.dumps(_Words(self.schema).make()) if self.schema else PROSE

    def request(self, name: str, works: Mapping[str, Work] = STAGES) -> Request:
        """What the machine gets to do: the usual sizes where it is a job, else those of the texts."""
        text, prefix = self.text(), hashlib.sha256(self.system.encode()).hexdigest()[:16]
        work = next((w for w in works.values() if w.model.name == self.model), None)
        output = marked(self.user, work.stage) if work else None
        if work is None or output is None:
            shared, own = (-(-len(part) // CHARS_A_TOKEN) for part in (self.system, self.user))
            said = self._bounded(len(text) // CHARS_A_TOKEN)
            return Request(name, self.model, max(1, shared + own), said, prefix if shared else "", shared)
        return Request(name, self.model, work.prompt, self._bounded(output), prefix, work.shared)

    def _bounded(self, output: int) -> int:
        return max(1, min(output, self.most) if self.most else output)


def padded(text: str, length: int) -> str:
    """JSON with white space between its parts until it is so long; other texts again and again."""
    missing = length - len(text)
    if missing <= 0:
        return text
    if not text.startswith("{"):
        return (f"{text} " * (length // len(text) + 1))[:length]
    seams = [at.end() for at in re.finditer(r'", |[{]|\], |\}, ', text)] or [1]
    room = min(BLANK_RUN, -(-missing // len(seams)))
    for seam in reversed(seams):
        here = min(room, missing)
        text = text[:seam] + " " * here + text[seam:]
        missing -= here
    return text


CREATED = "2026-01-01T00:00:00Z"
CONTEXT = 32_768
DETAILS = {
    "parent_model": "",
    "format": "gguf",
    "family": "emulated",
    "families": ["emulated"],
    "parameter_size": "30B",
    "quantization_level": "none",
}


@dataclass(frozen=True)
class Usage:
    """What a generation came to; times in seconds of the client's clock."""

    prompt: int
    cached: int
    output: int
    prompt_s: float
    output_s: float
    cut: bool
    """The limit of the answer was reached."""


class Dialect(Protocol):
    """How one protocol answers."""

    @property
    def stream(self) -> str:
        """Content type of a stream."""

    def piece(self, text: str) -> bytes:
        """A piece of text in the stream."""

    def last(self, counted: Usage) -> bytes:
        """The end of the stream."""

    def whole(self, text: str, counted: Usage) -> Mapping[str, Any]:
        """The whole answer at once."""

    def refusal(self, status: int, why: str) -> Mapping[str, Any]:
        """An error."""


@dataclass(frozen=True)
class Ollama:
    """`/api/chat`: a JSON object a line."""

    model: str
    stream: str = "application/x-ndjson"

    def piece(self, text: str) -> bytes:
        """A line."""
        return json.dumps({**self._said(text), "done": False}).encode() + b"\n"

    def last(self, counted: Usage) -> bytes:
        """The line with the counts."""
        return json.dumps(self.whole("", counted)).encode() + b"\n"

    def whole(self, text: str, counted: Usage) -> Mapping[str, Any]:
        """Text and counts; durations in nanoseconds."""
        return {
            **self._said(text),
            "done": True,
            "done_reason": "length" if counted.cut else "stop",
            "total_duration": _nano(counted.prompt_s + counted.output_s),
            "load_duration": 0,
            "prompt_eval_count": counted.prompt,
            "prompt_eval_duration": _nano(counted.prompt_s),
            "eval_count": counted.output,
            "eval_duration": _nano(counted.output_s),
        }

    def refusal(self, _status: int, why: str) -> Mapping[str, Any]:
        """An error."""
        return {"error": why}

    def _said(self, text: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        return {"model": self.model, "created_at": CREATED, "message": message}


@dataclass(frozen=True)
class OpenAI:
    """`/v1/chat/completions`: server-sent events, or one object."""

    model: str
    usage: bool = False
    """The stream ends with the counts."""
    stream: str = "text/event-stream"

    def piece(self, text: str) -> bytes:
        """An event."""
        return _event(self._delta(text, None))

    def last(self, counted: Usage) -> bytes:
        """Why it ended, the counts if they are wanted, and the end."""
        ends = _event(self._delta("", self._why(counted)))
        counts = {**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage(counted)}
        return ends + (_event(counts) if self.usage else b"") + b"data: [DONE]\n\n"

    def whole(self, text: str, counted: Usage) -> Mapping[str, Any]:
        """The object."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": self._why(counted)}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage(counted)}

    def refusal(self, status: int, why: str) -> Mapping[str, Any]:
        """An error."""
        kind = "not_found_error" if status == 404 else "unavailable_error"
        return {"error": {"message": why, "type": kind, "code": status}}

    def _delta(self, text: str, why: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": why}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "object": kind, "created": 1_767_225_600, "model": self.model}

    def _why(self, counted: Usage) -> str:
        return "length" if counted.cut else "stop"

    def _usage(self, counted: Usage) -> dict[str, Any]:
        return {
            "prompt_tokens": counted.prompt,
            "completion_tokens": counted.output,
            "total_tokens": counted.prompt + counted.output,
            "prompt_tokens_details": {"cached_tokens": counted.cached},
        }


def parse_request(path: str, payload: Mapping[str, Any]) -> tuple[ChatRequest, Dialect] | None:
    """A request for an answer in one of the protocols; nothing for other paths."""
    model = str(payload.get("model") or "")
    if path == "/api/chat":
        schema, most = payload.get("format"), (payload.get("options") or {}).get("num_predict")
        stream, dialect = bool(payload.get("stream", True)), Ollama(model)
        return _asked(payload, schema, most, stream), dialect
    if path == "/v1/chat/completions":
        wanted = payload.get("response_format") or {}
        schema = (wanted.get("json_schema") or {}).get("schema")
        most = payload.get("max_completion_tokens") or payload.get("max_tokens")
        usage = bool((payload.get("stream_options") or {}).get("include_usage"))
        return _asked(payload, schema, most, bool(payload.get("stream"))), OpenAI(model, usage)
    return None


def pages(models: Sequence[str], loaded: Sequence[str]) -> Mapping[str, Any]:
    """What is answered to GET, by path."""
    listed = [{"id": name, "object": "model", "created": 0, "owned_by": "emulator"} for name in models]
    running = [
        {**_model(name), "expires_at": CREATED, "size_vram": 1, "context_length": CONTEXT} for name in loaded
    ]
    about = {"model_path": models[0], "is_generation": True, "max_total_num_tokens": CONTEXT}
    return {
        "/api/version": {"version": "0.12.6"},
        "/api/tags": {"models": [_model(name) for name in models]},
        "/api/ps": {"models": running},
        "/v1/models": {"object": "list", "data": listed},
        "/health": {"status": "ok"},
        # what routers ask before they send anything
        "/get_model_info": about,
        "/model_info": about,
        "/get_server_info": about,
        "/server_info": about,
    }


def show() -> Mapping[str, Any]:
    """What Ollama tells of a model."""
    info = {"general.architecture": "emulated", "emulated.context_length": 262_144}
    return {"details": DETAILS, "model_info": info, "capabilities": ["completion"], "modified_at": CREATED}


def _asked(payload: Mapping[str, Any], schema: Any, most: Any, stream: bool) -> ChatRequest:
    said: dict[str, str] = {"system": "", "user": ""}
    for one in payload.get("messages") or ():
        if one.get("role") in said:
            said[one["role"]] += _text(one.get("content"))
    bound = schema if isinstance(schema, dict) else None
    model = str(payload.get("model") or "")
    return ChatRequest(model, said["system"], said["user"], bound, int(most) if most else None, stream)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return str(content or "")


def _model(name: str) -> dict[str, Any]:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return {
        "name": name, "model": name, "modified_at": CREATED, "size": 1, "digest": digest, "details": DETAILS
    }  # fmt: skip


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _nano(seconds: float) -> int:
    return max(0, round(seconds * 1e9))
