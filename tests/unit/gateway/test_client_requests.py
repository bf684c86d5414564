"""Requests as tools send them, recorded from each of them: all are taken, with what matters of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.gateway import chat_request
from app.gateway.responses_format import ResponsesFormat
from app.gateway.responses_request import read as read_responses
from app.gateway_requests.errors import fault
from grading.broker.gateway_requests import Ask, Event

STEP = {
    "properties": {"level": {"title": "Level", "type": "string"}, "minutes": {"type": "integer"}},
    "required": ["level", "minutes"],
    "title": "Step",
    "type": "object",
    "additionalProperties": False,
}
PLAN = {
    "$defs": {"Step": STEP},
    "properties": {
        "best": {"$ref": "#/$defs/Step"},
        "other": {"anyOf": [{"$ref": "#/$defs/Step"}, {"type": "null"}]},
    },
    "required": ["best", "other"],
    "title": "Plan",
    "type": "object",
    "additionalProperties": False,
}
WITH_PLAN = {"type": "json_schema", "json_schema": {"schema": PLAN, "name": "Plan", "strict": True}}
LOOK = {
    "name": "look_up",
    "description": "How is the weather",
    "parameters": {"type": "object", "properties": {}},
}
TOOLS = [{"type": "function", "function": LOOK}]
CALL = {"type": "function", "id": "call_1", "function": {"name": "look_up", "arguments": "{}"}}
USAGE = {"include_usage": True}


def chat(*roles: str) -> list[dict[str, Any]]:
    return [{"role": role, "content": f"{number}"} for number, role in enumerate(roles)]


AIDER = ("system", *("user", "assistant") * 3, "user")
RECORDED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "openai parse": (
        {"stream": False, "messages": chat("user"), "response_format": WITH_PLAN},
        {"bound": True},
    ),
    "llm": (
        {"stream": True, "messages": chat("system", "user"), "max_tokens": 9000, "stream_options": USAGE},
        {"tokens": 500},
    ),
    "llm with a tool": (
        {
            "stream": True,
            "messages": [
                *chat("user"),
                {"role": "assistant", "content": "", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "call_1", "content": "rainy"},
            ],
            "stream_options": USAGE,
            "tools": TOOLS,
        },
        {"tools": True},
    ),
    "litellm": ({"messages": chat("system", "user"), "response_format": WITH_PLAN}, {"bound": True}),
    "aider": ({"messages": chat(*AIDER), "stream": True, "temperature": 0}, {"messages": 8}),
    "continue": (
        {"messages": chat("system", "user"), "tools": TOOLS, "stream": True, "stream_options": USAGE},
        {"tools": True},
    ),
    "open webui": ({"messages": chat("system", "assistant", "user"), "max_tokens": 30}, {"messages": 3}),
}


@pytest.mark.parametrize(("sent", "expected"), RECORDED.values(), ids=RECORDED)
def test_requests_of_real_clients_are_taken(sent: dict[str, Any], expected: dict[str, Any]) -> None:
    _, ask = chat_request.read({"model": "grader/feedback", **sent}, 500)
    found = {
        "bound": bool(ask.bound_to) and "$ref" not in json.dumps(ask.bound_to),
        "tokens": ask.max_tokens,
        "tools": ask.tools == tuple(sent.get("tools", ())),
        "messages": len(ask.messages),
    }
    assert {name: found[name] for name in expected} == expected
    assert Ask.model_validate_json(ask.model_dump_json(exclude_defaults=True)) == ask, (
        "as it goes to machines"
    )


def test_a_response_that_breaks_off_is_an_error_event() -> None:
    form = {"type": "json_schema", "strict": True, "name": "Plan", "schema": PLAN}
    raw = {"model": "tiny", "input": "Plan", "text": {"format": form}}
    wanted, _, ask = read_responses(raw, 500)
    assert "$ref" not in json.dumps(ask.bound_to)
    answer = ResponsesFormat("id", wanted, ask)
    begun = list(answer.text(Event(kind="text", text="{")))
    assert json.loads(begun[0].split(b"data: ")[1])["response"]["text"]["format"] == form
    kind, data = answer.error(fault("preempted")).decode().split("\n", 1)
    said = json.loads(data.removeprefix("data: "))
    assert (kind, said["type"], said["code"], said["sequence_number"]) == (
        "event: error",
        "error",
        "preempted",
        5,
    )
    assert said["error"]["code"] == "preempted", "which the official client raises"
