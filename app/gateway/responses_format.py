"""Answers as the Responses API gives them: an object with one message, or its events."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from app.gateway.answers import AnswerFormat
from app.gateway.responses_request import ResponsesRequest
from app.gateway_requests.errors import content
from grading.broker.gateway_requests import Ask, Event
from grading.domain.errors import GraderError

PLACE = {"output_index": 0, "content_index": 0}


class ResponsesFormat(AnswerFormat):
    """A `response`, or the events of one."""

    def __init__(self, request_id: str, wanted: ResponsesRequest, ask: Ask) -> None:
        super().__init__(ask.model)
        self._id, self._item = f"resp_{request_id}", f"msg_{request_id}"
        self._wanted, self._ask = wanted, ask
        self._numbers = itertools.count()
        self._parts: list[str] = []

    def whole(self, text: str, end: Event) -> dict[str, Any]:
        """All of it."""
        cut = end.reason == "length"
        tokens = end.tokens
        return {
            **self._head("incomplete" if cut else "completed"),
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [self._message(text, "incomplete" if cut else "completed")],
            "usage": {
                "input_tokens": tokens.prompt,
                "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": 0},
                "output_tokens": tokens.output,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": tokens.prompt + tokens.output,
            },
        }

    def text(self, event: Event) -> Iterator[bytes]:
        """A piece; before the first, what it is a piece of."""
        if event.text:
            yield from self._begin()
            self._parts.append(event.text)
            piece = {"item_id": self._item, **PLACE, "delta": event.text, "logprobs": []}
            yield self._event("response.output_text.delta", piece)

    def end(self, event: Event) -> Iterator[bytes]:
        """The text, the message and the response, each whole."""
        yield from self._begin()
        text = "".join(self._parts)
        response = self.whole(text, event)
        (message,) = response["output"]
        at = {"item_id": self._item, **PLACE}
        yield self._event("response.output_text.done", {**at, "text": text, "logprobs": []})
        yield self._event("response.content_part.done", {**at, "part": message["content"][0]})
        yield self._event("response.output_item.done", {"output_index": 0, "item": message})
        yield self._event(f"response.{response['status']}", {"response": response})

    def error(self, error: GraderError) -> bytes:
        """The event `error`: with the fields of the API, and as the official client looks for it."""
        said = content(error)
        return self._event(
            "error", {**{name: said["error"][name] for name in ("code", "message", "param")}, **said}
        )

    def _begin(self) -> Iterator[bytes]:
        if self._parts:
            return
        self._parts.append("")
        for name in ("created", "in_progress"):
            yield self._event(f"response.{name}", {"response": self._head("in_progress")})
        empty = {**self._message("", "in_progress"), "content": []}
        yield self._event("response.output_item.added", {"output_index": 0, "item": empty})
        at = {"item_id": self._item, **PLACE}
        yield self._event("response.content_part.added", {**at, "part": _part("")})

    def _event(self, kind: str, value: dict[str, Any]) -> bytes:
        data = {"type": kind, "sequence_number": next(self._numbers), **value}
        return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()

    def _message(self, text: str, status: str) -> dict[str, Any]:
        return {
            "id": self._item,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [_part(text)],
        }

    def _head(self, status: str) -> dict[str, Any]:
        settings = self._wanted.text
        form = settings.format if settings else None
        return {
            "id": self._id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": self._wanted.instructions,
            "max_output_tokens": self._ask.max_tokens,
            "metadata": {},
            "model": self.model,
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": False,
            "temperature": self._ask.temperature,
            "text": {
                "format": {"type": "text"}
                if form is None
                else form.model_dump(by_alias=True, exclude_none=True)
            },
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0 if self._ask.top_p is None else self._ask.top_p,
            "truncation": "disabled",
            "usage": None,
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
