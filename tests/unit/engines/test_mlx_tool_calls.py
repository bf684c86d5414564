"""Calls of tools of models in process: what of a text is shown, what is a call, what a template gets."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.tiny_models import make_model
from grading.domain.errors import JobInvalid
from tests.support.engines import ask
from workers.machine.engines.base import ToolsRefused
from workers.machine.engines.mlx.model import load_model
from workers.machine.engines.mlx.tool_calls import ToolFormat, check_tools

TEMPLATE = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>{% endif %}"
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{{ m.role }}: {{ m.content }}{% for tool_call in m.tool_calls or [] %}"
    "<tool_call>{{ tool_call.function.name }}{{ tool_call.name }}{{ tool_call.function.arguments.city }}"
    "</tool_call>{% endfor %}{% endfor %}"
)
"""A place for tools, as mlx-lm recognises it."""
LOOK: Any = {"type": "function", "function": {"name": "look_up", "description": "in <|im_start|>"}}
CALL = {"id": "a", "type": "function", "function": {"name": "look_up", "arguments": '{"city": "Bern"}'}}
CHAT = [
    {"role": "user", "content": "u"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a", "content": "rainy"},
]


@cache
def json_calls() -> ToolFormat:
    """The format of most models, as mlx-lm reads it."""
    from mlx_lm.tool_parsers.json_tools import parse_tool_call

    return ToolFormat("<tool_call>", "</tool_call>", parse_tool_call)


def test_the_template_gets_tools_calls_and_results(tmp_path: Path) -> None:
    plain = load_model(str(make_model(tmp_path / "plain")), None)
    folder = make_model(tmp_path / "tools")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    model = load_model(str(folder), None)
    prompt = model.decode(model.prompt(CHAT, 10, shares=False, tools=(LOOK,)).ids)
    assert "look_up" in prompt
    assert "<tool_call>look_upBern</tool_call>" in prompt
    assert "rainy" in prompt
    assert "<|im_start|>" not in prompt, "tools, too, must not open a turn"
    assert "<tools>" not in model.decode(model.prompt(CHAT, 10, shares=False).ids)
    with pytest.raises(JobInvalid, match="template refuses"):
        model.prompt([CHAT[0], {"role": "system", "content": "s"}], 10, shares=False)
    asked = ask(tools=(LOOK,), schema={})
    check_tools(model.tools, asked)
    for form, request in (
        (plain.tools, asked),
        (model.tools, ask(tools=(LOOK,), schema={}, tool_choice="required")),
        (model.tools, ask(tools=(LOOK,))),
    ):
        with pytest.raises(ToolsRefused):
            check_tools(form, request)


WRITTEN = 'Look.\n<tool_call>\n{"name": "look_up", "arguments": {"city": "Zürich"}}\n</tool_call>'


def test_calls_are_taken_out_of_the_text() -> None:
    text, (one, other) = json_calls().split(f"{WRITTEN}\n{WRITTEN.removeprefix('Look.')}", (LOOK,))
    assert text == "Look."
    assert (one.name, json.loads(one.arguments)) == ("look_up", {"city": "Zürich"})
    assert other.id != one.id
    for wrong in ("<tool_call>[1]</tool_call>", "<tool_call>{</tool_call>", "<tool_call>{", "no <tool", ""):
        assert json_calls().split(wrong, (LOOK,)) == (wrong, ())
    open_end = ToolFormat("[CALLS]", "", lambda text, _tools: {"name": text, "arguments": {}})
    assert [call.name for call in open_end.split("a[CALLS]b", ())[1]] == ["b"]


@given(st.integers(0, len(WRITTEN)))
def test_no_part_of_a_call_is_shown_while_it_is_written(end: int) -> None:
    shown = json_calls().visible(WRITTEN[:end])
    assert "Look.\n".startswith(shown)
    assert shown == WRITTEN[: min(end, len("Look.\n"))]
