"""Parses chat requests: refuses fields that it cannot honour, ignores harmless ones."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from app.gateway.answer_schema import check_depth, read_schema
from app.gateway_requests.errors import Refused
from grading.broker.gateway_requests import Ask, Said
from grading.domain.jobs import ToolCall

MOST_MESSAGES = 500
MOST_TOOLS = 128
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    # field -> the values that ask for nothing
    "n": (None, 1),
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


class CalledFunction(Lenient):
    """What a call of a tool calls."""

    name: str = Field(min_length=1, max_length=200)
    arguments: str


class Call(Lenient):
    """A call of a tool in the assistant's message."""

    id: str = Field(max_length=200)
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Lenient):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = Field(default=None, max_length=200)

    @property
    def of_tools(self) -> bool:
        """Whether it is a call of tools, or the result of one."""
        return self.role == "tool" or (self.role == "assistant" and bool(self.tool_calls))

    def said(self) -> Said:
        """As machines take it."""
        role: Any = self.role
        calls = self.tool_calls or () if role == "assistant" else ()
        return Said(
            role=role,
            content=self.text,
            tool_calls=tuple(
                ToolCall(id=one.id, name=one.function.name, arguments=one.function.arguments) for one in calls
            ),
            tool_call_id=(self.tool_call_id or "") if role == "tool" else "",
        )

    @property
    def text(self) -> str:
        """All of it."""
        if self.content is None:
            return ""
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


class Function(Lenient):
    """What a tool is; only functions of the client are tools here."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Lenient):
    """One of `tools`."""

    type: Literal["function"]
    function: Function


class ChosenFunction(Lenient):
    """The name of a function that must be called."""

    name: str = Field(min_length=1, max_length=64)


class ToolChoice(Lenient):
    """`tool_choice`, where it names a function."""

    type: Literal["function"]
    function: ChosenFunction


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
    tools: list[Tool] | None = Field(default=None, max_length=MOST_TOOLS)
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None

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
        **_tools(body),
    )
    check_characters(ask, "messages")
    return body, ask


def check_characters(ask: Ask, param: str) -> None:
    """Raises Refused for texts that are no Unicode."""
    try:
        ask.model_dump_json()
    except ValueError:
        raise Refused(f"{param} has an invalid character (a lone surrogate).", param) from None


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
        if not message.text.strip() and not message.of_tools:
            continue
        if message.role in ("system", "developer"):
            system.append(message.text)
        elif chat and chat[-1].role == message.role and not (message.of_tools or chat[-1].tool_calls):
            together = f"{chat[-1].content}\n\n{message.text}"
            chat[-1] = chat[-1].model_copy(update={"content": together})
        else:
            chat.append(message.said())
    if not any(one.role == "user" for one in chat):
        raise Refused("No message has the role user and a text. Add one.", "messages")
    first = [Said(role="system", content="\n\n".join(system))] if system else []
    return (*first, *chat)


def _tools(body: ChatCompletionRequest) -> dict[str, Any]:
    """The client's tools, unless it says that none may be called."""
    if not body.tools or body.tool_choice == "none":
        return {}
    tools = tuple(one.model_dump(exclude_none=True) for one in body.tools)
    check_depth(tools, "tools")
    choice = body.tool_choice
    if isinstance(choice, ToolChoice):
        if choice.function.name not in {one.function.name for one in body.tools}:
            raise Refused(
                f"tool_choice names {choice.function.name!r}, which is none of tools.", "tool_choice"
            )
        return {"tools": tools, "tool_choice": choice.model_dump()}
    return {"tools": tools, "tool_choice": None if choice == "auto" else choice}


def _schema(form: Form | None) -> dict[str, Any]:
    if form is None or form.type == "text":
        return {}
    if form.type == "json_object":
        return {"type": "object"}
    if form.json_schema is None:
        raise Refused("response_format.json_schema.schema is missing.", "response_format")
    return read_schema(form.json_schema.schema_)
