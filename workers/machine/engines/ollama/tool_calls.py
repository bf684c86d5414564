"""Calls of tools in Ollama's words: arguments as objects, results by the tool's name, no ids."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from grading.domain.jobs import ToolCall
from workers.machine.engines.base import Request, ToolsRefused
from workers.machine.engines.http.answer import messages
from workers.machine.engines.ollama.server import About

if TYPE_CHECKING:
    from ollama import Message


def check_tools(request: Request, about: About) -> None:
    """Raises ToolsRefused where the model has no template for tools, or a call is demanded."""
    if request.tools and (request.tool_choice is not None or about.tools is False):
        raise ToolsRefused


def chat_of(request: Request) -> list[dict[str, Any]]:
    """The messages of a request."""
    names: dict[str, str] = {}
    return [_message(one, names) for one in messages(request)]


def calls_of(message: Message) -> Iterable[ToolCall]:
    """What a part of an answer calls; Ollama sends each call whole."""
    for call in message.tool_calls or ():
        arguments = json.dumps(dict(call.function.arguments), ensure_ascii=False)
        yield ToolCall(id=f"call_{secrets.token_hex(8)}", name=call.function.name, arguments=arguments)


def _message(message: Mapping[str, Any], names: dict[str, str]) -> dict[str, Any]:
    made = {"role": message["role"], "content": message["content"]}
    if message["role"] == "tool":
        return {**made, "tool_name": names.get(message["tool_call_id"], "")}
    if calls := message.get("tool_calls"):
        names |= {one["id"]: one["function"]["name"] for one in calls}
        made["tool_calls"] = [{"function": _function(one["function"])} for one in calls]
    return made


def _function(called: Mapping[str, Any]) -> dict[str, Any]:
    """The name and the arguments as an object; what is none was no call that the model could make."""
    try:
        arguments = json.loads(called["arguments"] or "{}")
    except (ValueError, RecursionError):
        raise ToolsRefused from None
    if not isinstance(arguments, dict):
        raise ToolsRefused
    return {"name": called["name"], "arguments": arguments}
