"""Parses chat requests: refuses fields that it cannot honour, ignores harmless ones."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

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


class Lenient(BaseModel):
    """Unknown fields do no harm."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, strict=True)


Body = TypeVar("Body", bound=Lenient)


class Part(Lenient):
    """A part of a message; only text is read here."""

    type: Literal["text"]
    text: str


class Message(Lenient):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]

    @property
    def text(self) -> str:
        """All of it."""
        return self.content if isinstance(self.content, str) else "\n".join(p.text for p in self.content)


class Schema(Lenient):
    """What `response_format` holds for `json_schema`."""

    schema_: dict[str, Any] = Field(alias="schema")


class Form(Lenient):
    """`response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Schema | None = None


class StreamOptions(Lenient):
    """`stream_options`."""

    include_usage: bool = False


class ChatCompletionRequest(Lenient):
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

    @property
    def wanted(self) -> int | None:
        """The most tokens that the answer shall have."""
        return self.max_completion_tokens or self.max_tokens


def note(body: ChatCompletionRequest, ask: Ask) -> str:
    """What of the request is done otherwise, for who looks why an answer is short; empty for nothing.

    Tools ask for as many tokens as a model has, most of which no answer needs: refusing would stop them all.
    """
    if body.wanted is None or body.wanted <= ask.max_tokens:
        return ""
    return f"max_tokens is {body.wanted}, and answers have at most {ask.max_tokens} tokens here."


def read(raw: Any, most_tokens: int) -> tuple[ChatCompletionRequest, Ask]:
    """A request and what a machine is asked for. Raises Refused."""
    body = validate(ChatCompletionRequest, raw, UNSUPPORTED)
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(stop) > 4:
        raise Refused("stop has more than 4 sequences. Use at most 4.", "stop")
    ask = Ask(
        model=body.model,
        messages=_chat(body.messages),
        max_tokens=min(body.wanted or most_tokens, most_tokens),
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


def validate(kind: type[Body], raw: Any, unsupported: dict[str, tuple[Any, ...]]) -> Body:
    """A body of this kind. Raises Refused for what it is not and for fields that cannot be honoured."""
    if not isinstance(raw, dict):
        raise Refused("The request must be a JSON object.")
    for name, harmless in unsupported.items():
        if raw.get(name) not in harmless:
            raise Refused(f"{name} is not supported. Remove it.", name)
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise _explained(error) from None


def _explained(error: ValidationError) -> Refused:
    # of a value with several kinds, what is wrong deepest inside is said
    problem = max(error.errors(include_input=False, include_url=False), key=lambda one: len(one["loc"]))
    # of texts that may also be lists, pydantic names the kind it tried
    parts = [str(p) for p in problem["loc"] if not str(p).startswith(("list[", "constrained-", "str"))]
    param = ".".join(parts)
    return Refused(f"{param}: {problem['msg']}.", param)


def _chat(messages: list[Message]) -> tuple[Said, ...]:
    """One system message at most, then user and assistant in turn: templates of many models want no other.

    System messages that come later are added to the first, empty ones of any role say nothing.
    """
    system: list[str] = []
    chat: list[Said] = []
    for message in messages:
        if not message.text.strip():
            continue
        role: Any = message.role
        if role in ("system", "developer"):
            system.append(message.text)
        elif chat and chat[-1].role == role:
            chat[-1] = Said(role=role, content=f"{chat[-1].content}\n\n{message.text}")
        else:
            chat.append(Said(role=role, content=message.text))
    if not any(one.role == "user" for one in chat):
        raise Refused("No message has the role user and a text. Add one.", "messages")
    first = [Said(role="system", content="\n\n".join(system))] if system else []
    return (*first, *chat)


def _schema(form: Form | None) -> dict[str, Any]:
    if form is None or form.type == "text":
        return {}
    if form.type == "json_object":
        return {"type": "object"}
    if form.json_schema is None:
        raise Refused("response_format.json_schema.schema is missing.", "response_format")
    return read_schema(form.json_schema.schema_)
