"""Chats as tools send them: system messages anywhere, the assistant first or last, empty messages."""

from __future__ import annotations

from typing import Any

import pytest

from app.gateway import chat_request
from app.gateway_requests.errors import Refused

S, D, U, A, T = "system", "developer", "user", "assistant", "tool"


def sent(*messages: tuple[str, Any]) -> list[tuple[str, str]]:
    raw = {"model": "tiny", "messages": [{"role": role, "content": text} for role, text in messages]}
    _, ask = chat_request.read(raw, 100)
    return [(one.role, one.content) for one in ask.messages]


CHATS = {
    "as before": ([(S, "s"), (U, "u"), (A, "a"), (U, "v")], [(S, "s"), (U, "u"), (A, "a"), (U, "v")]),
    "a reminder at the end": ([(S, "s"), (U, "u"), (S, "t")], [(S, "s\n\nt"), (U, "u")]),
    "the only one in the middle": ([(U, "u"), (D, "s"), (U, "v")], [(S, "s"), (U, "u\n\nv")]),
    "assistant last": ([(U, "u"), (A, "It")], [(U, "u"), (A, "It")]),
    "assistant first": ([(S, "s"), (A, "Hello!"), (U, "u")], [(S, "s"), (A, "Hello!"), (U, "u")]),
    "an empty one": ([(U, "u"), (A, ""), (U, "v"), (S, " ")], [(U, "u\n\nv")]),
    "parts": ([(U, [{"type": "text", "text": "u"}, {"type": "text", "text": "v"}])], [(U, "u\nv")]),
}


@pytest.mark.parametrize(("messages", "expected"), CHATS.values(), ids=CHATS)
def test_chats_as_templates_want_them(messages: list[Any], expected: list[Any]) -> None:
    assert sent(*messages) == expected


CALLS = [{"id": "1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}]


def test_calls_of_tools_and_their_results_stay_apart() -> None:
    messages = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": None, "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "1", "content": ""},
        {"role": "tool", "tool_call_id": "1", "content": "t"},
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "tool_calls": CALLS},
    ]
    _, ask = chat_request.read({"model": "tiny", "messages": messages}, 100)
    assert [(one.role, one.content) for one in ask.messages[2:]] == [(T, ""), (T, "t"), (A, "a"), (A, "")]
    assert ask.messages[5].tool_calls[0].name == "look_up"
    assert ask.needs_tools


TOOL = {"type": "function", "function": {"name": "look_up"}}
DEEP: Any = {}
for _ in range(300):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "look up"}}]}, "tools.0.function.name"),
        ({"tools": [TOOL] * 200}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": DEEP}}]}, "tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "b"}}}, "tool_choice"),
    ],
)
def test_tools_that_no_server_could_take(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Refused) as refused:
        chat_request.read({"model": "tiny", "messages": [{"role": "user", "content": "u"}], **fields}, 100)
    assert refused.value.param == param


@pytest.mark.parametrize("messages", [[(S, "s")], [(A, "a")], [(S, "s"), (U, " "), (A, "a")]])
def test_nobody_asks(messages: list[Any]) -> None:
    with pytest.raises(Refused, match="role user") as refused:
        sent(*messages)
    assert refused.value.param == "messages"


@pytest.mark.parametrize(
    ("fields", "most", "said"),
    [
        ({}, 100, ""),
        ({"max_tokens": 100}, 100, ""),
        ({"max_tokens": 7}, 7, ""),
        ({"max_tokens": 8192}, 100, "max_tokens is 8192, and answers have at most 100 tokens here."),
        ({"max_completion_tokens": 101}, 100, "max_tokens is 101, and answers have at most 100 tokens here."),
    ],
)
def test_more_tokens_than_there_are_is_no_error(fields: dict[str, Any], most: int, said: str) -> None:
    raw = {"model": "tiny", "messages": [{"role": "user", "content": "u"}], **fields}
    body, ask = chat_request.read(raw, 100)
    assert (ask.max_tokens, chat_request.note(body, ask)) == (most, said)
