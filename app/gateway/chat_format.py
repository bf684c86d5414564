"""Answers as chat completions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.gateway.answers import AnswerFormat, data_line
from app.gateway_requests.errors import content
from grading.broker.gateway_requests import Event
from grading.domain.errors import GraderError
from grading.domain.jobs import Tokens, ToolCall


class ChatFormat(AnswerFormat):
    """`chat.completion`, or chunks of one."""

    def __init__(self, request_id: str, model: str, *, include_usage: bool) -> None:
        super().__init__(model)
        self._id = f"chatcmpl-{request_id}"
        self._include_usage = include_usage

    def whole(self, text: str, end: Event) -> dict[str, Any]:
        """All of it."""
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if end.tool_calls:
            message |= {"content": text or None, "tool_calls": [_call(one) for one in end.tool_calls]}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": end.reason}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(end.tokens)}

    def text(self, event: Event) -> Iterator[bytes]:
        """A chunk; the first names the role."""
        first = {"role": "assistant"} if event.at == 0 else {}
        if event.text:
            yield self._chunk({**first, "content": event.text})

    def end(self, event: Event) -> Iterator[bytes]:
        """The calls of tools, each whole; why it ends, and the counts where they are wanted."""
        for index, call in enumerate(event.tool_calls):
            yield self._chunk({"role": "assistant", "tool_calls": [{"index": index, **_call(call)}]})
        yield self._chunk({}, event.reason)
        if self._include_usage:
            head = self._head("chat.completion.chunk")
            yield data_line({**head, "choices": [], "usage": _usage(event.tokens)})
        yield b"data: [DONE]\n\n"

    def error(self, error: GraderError) -> bytes:
        """The body of an error as data."""
        return data_line(content(error))

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        none: dict[str, Any] = {"usage": None} if self._include_usage else {}
        return data_line({**self._head("chat.completion.chunk"), "choices": [choice], **none})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self.created, "model": self.model}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.prompt + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
    }
