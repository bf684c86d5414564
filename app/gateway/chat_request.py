"""Parses chat requests: refuses fields that it cannot honour, ignores harmless ones."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from app.gateway.answer_schema import read_schema
from app.gateway_requests.errors import Refused
from grading.broker.gateway_requests import Ask, Said

MOST_MESSAGES = 500
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    # field -> the values that ask for nothing
    "n": (None, 1),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
}
Stop = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class _Lenient(BaseModel):
    """Unknown fields do no harm."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, strict=True)


class Part(_Lenient):
    """A part of a message; only text is read here."""

    type: Literal["text"]
    text: str


class Message(_Lenient):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]

    @property
    def text(self) -> str:
        """All of it."""
        return self.content if isinstance(self.content, str) else "\n".join(p.text for p in self.content)


class Schema(_Lenient):
    """What `response_format` holds for `json_schema`."""

    schema_: dict[str, Any] = Field(alias="schema")


class Form(_Lenient):
    """`response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Schema | None = None


class StreamOptions(_Lenient):
    """`stream_options`."""

    include_usage: bool = False


class ChatCompletionRequest(_Lenient):
    """A request as it came."""

    model: str = Field(min_length=1, max_length=300)
    messages: list[Message] = Field(min_length=1, max_length=MOST_MESSAGES)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = Field(default=None, ge=0, le=2**31 - 1)
    stop: Stop | list[Stop] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: Form | None = None


def read(raw: Any, most_tokens: int) -> tuple[ChatCompletionRequest, Ask]:
    """A request and what a machine is asked for. Raises Refused."""
    if not isinstance(raw, dict):
        raise Refused("The request must be a JSON object.")
    for name, harmless in UNSUPPORTED.items():
        if raw.get(name) not in harmless:
            raise Refused(f"{name} is not supported. Remove it.", name)
    try:
        body = ChatCompletionRequest.model_validate(raw)
    except ValidationError as error:
        raise _explained(error) from None
    wanted = body.max_completion_tokens or body.max_tokens or most_tokens
    if wanted > most_tokens:
        raise Refused(f"max_tokens is {wanted}. Use at most {most_tokens}.", "max_tokens")
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(stop) > 4:
        raise Refused("stop has more than 4 sequences. Use at most 4.", "stop")
    ask = Ask(
        model=body.model,
        messages=_chat(body.messages),
        max_tokens=wanted,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=body.top_p,
        seed=body.seed,
        stop=tuple(stop),
        bound_to=_schema(body.response_format),
    )
    try:
        ask.model_dump_json()
    except ValueError:
        raise Refused("A message contains an invalid character (a lone surrogate).", "messages") from None
    return body, ask


def _explained(error: ValidationError) -> Refused:
    # of a value with several kinds, what is wrong deepest inside is said
    problem = max(error.errors(include_input=False, include_url=False), key=lambda one: len(one["loc"]))
    # of texts that may also be lists, pydantic names the kind it tried
    parts = [str(p) for p in problem["loc"] if not str(p).startswith(("list[", "constrained-", "str"))]
    param = ".".join(parts)
    return Refused(f"{param}: {problem['msg']}.", param)


def _chat(messages: list[Message]) -> tuple[Said, ...]:
    """One system message at most, then user and assistant in turn: templates of many models want no other."""
    chat: list[Said] = []
    for message in messages:
        role: Any = "system" if message.role == "developer" else message.role
        if role == "system" and any(earlier.role != "system" for earlier in chat):
            raise Refused("System messages must come first.", "messages")
        if chat and chat[-1].role == role:
            chat[-1] = Said(role=role, content=f"{chat[-1].content}\n\n{message.text}")
        else:
            chat.append(Said(role=role, content=message.text))
    spoken = [earlier for earlier in chat if earlier.role != "system"]
    if not spoken or spoken[0].role != "user" or spoken[-1].role != "user":
        raise Refused(
            "The first message after the system message, and the last one, must have the role user.",
            "messages",
        )
    if not all(earlier.content.strip() for earlier in spoken):
        raise Refused("A message is empty. Remove it.", "messages")
    return tuple(earlier for earlier in chat if earlier.content.strip())


def _schema(form: Form | None) -> dict[str, Any]:
    if form is None or form.type == "text":
        return {}
    if form.type == "json_object":
        return {"type": "object"}
    if form.json_schema is None:
        raise Refused("response_format.json_schema.schema is missing.", "response_format")
    return read_schema(form.json_schema.schema_)
