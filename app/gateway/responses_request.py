"""Reads requests of the Responses API, in its basic form, as chat requests: texts in, one text out."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.gateway import chat_request
from app.gateway.chat_request import ChatCompletionRequest, Lenient
from app.gateway_requests.errors import Refused
from grading.broker.gateway_requests import Ask

UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    # field -> the values that ask for nothing
    "previous_response_id": (None,),  # nothing is stored
    "conversation": (None,),
    "background": (None, False),
    "prompt": (None,),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "top_logprobs": (None, 0),
}
PARAMS = {"messages": "input", "response_format": "text.format"}
"""Fields of a chat request -> those that they were made of."""


class InputText(Lenient):
    """A part of a message; only text is read here."""

    type: Literal["input_text", "output_text"]
    text: str


class InputMessage(Lenient):
    """One item of `input`."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[InputText]

    def chat(self) -> dict[str, Any]:
        """As a message of a chat."""
        parts = [self.content] if isinstance(self.content, str) else [part.text for part in self.content]
        return {"role": self.role, "content": "\n".join(parts)}


class TextFormat(Lenient):
    """`text.format`."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    strict: bool | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")

    def chat(self) -> dict[str, Any]:
        """As `response_format` of a chat."""
        schema = None if self.schema_ is None else {"schema": self.schema_}
        return {"type": self.type, "json_schema": schema}


class TextSettings(Lenient):
    """`text`."""

    format: TextFormat | None = None


class ResponsesRequest(Lenient):
    """A request as it came."""

    model: str = Field(min_length=1, max_length=300)
    input: str | list[InputMessage]
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    stream: bool | None = None
    text: TextSettings | None = None

    def chat(self) -> dict[str, Any]:
        """As a chat request."""
        first = [{"role": "system", "content": self.instructions}] if self.instructions else []
        said = (
            [{"role": "user", "content": self.input}]
            if isinstance(self.input, str)
            else [message.chat() for message in self.input]
        )
        form = self.text.format if self.text else None
        return {
            "model": self.model,
            "messages": first + said,
            "max_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stream": self.stream,
            "response_format": form.chat() if form else None,
        }


def read(raw: Any, most_tokens: int) -> tuple[ResponsesRequest, ChatCompletionRequest, Ask]:
    """A request, as a chat request, and what a machine is asked for. Raises Refused."""
    wanted = chat_request.validate(ResponsesRequest, raw, UNSUPPORTED)
    try:
        body, ask = chat_request.read(wanted.chat(), most_tokens)
    except Refused as error:
        error.param = PARAMS.get(error.param or "", error.param)
        raise
    return wanted, body, ask
