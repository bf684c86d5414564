"""Calls of tools by models in this process, written by their chat template and read by mlx-lm's parser."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grading.domain.jobs import ToolCall
from workers.machine.engines.base import Generation, Phase, Progress, Request, ToolsRefused

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, SyntaxError)
"""What parsers raise for what a model wrote; RecursionError is none: texts are bounded."""
Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ToolFormat:
    """How a model writes calls: between two marks, of which the second may be missing."""

    start: str
    end: str
    parse: Callable[[str, Any], Any]

    def visible(self, text: str) -> str:
        """A text without its calls, as far as it is certain that none begins."""
        before, found, _ = text.partition(self.start)
        if found:
            return before
        longest = min(len(self.start) - 1, len(text))
        held = next((n for n in range(longest, 0, -1) if self.start.startswith(text[-n:])), 0)
        return text[: len(text) - held]

    def split(self, text: str, tools: Tools) -> tuple[str, tuple[ToolCall, ...]]:
        """A whole answer as its text and its calls; what cannot be read as a call stays text."""
        shown, calls = list[str](), list[ToolCall]()
        while text:
            before, found, rest = text.partition(self.start)
            shown.append(before)
            if not found:
                break
            inside, closed, text = rest.partition(self.end) if self.end else (rest, "", "")
            try:
                calls += _calls(self.parse(inside, list(tools)))
            except UNREADABLE:
                shown.append(f"{self.start}{inside}{closed}")
        return "".join(shown).rstrip() if calls else "".join(shown), tuple(calls)


def tool_format(tokenizer: Any) -> ToolFormat | None:
    """That of a model's template, where mlx-lm knows it."""
    if not tokenizer.has_tool_calling:
        return None
    return ToolFormat(tokenizer.tool_call_start, tokenizer.tool_call_end or "", tokenizer.tool_parser)


def check_tools(form: ToolFormat | None, request: Request) -> None:
    """Raises ToolsRefused for tools that the template knows no place for, or that must be called."""
    if request.tools and (form is None or request.tool_choice is not None or request.schema):
        raise ToolsRefused


def hiding(form: ToolFormat | None, request: Request, progress: Progress) -> Progress:
    """Progress whose drafts show no call."""
    if form is None or not request.tools:
        return progress

    def tell(tokens: int, phase: Phase = "generating", draft: str = "", /) -> None:
        progress(tokens, phase, form.visible(draft))

    return tell


def with_calls(form: ToolFormat | None, request: Request, made: Generation) -> Generation:
    """The generation with its calls taken out of the text."""
    if form is None or not request.tools:
        return made
    text, calls = form.split(made.text, request.tools)
    return replace(made, text=text, tool_calls=calls)


def as_objects(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose calls have their arguments as objects, as templates want them."""
    if not (calls := message.get("tool_calls")):
        return dict(message)
    try:
        functions = [
            {**one["function"], "arguments": json.loads(one["function"]["arguments"])} for one in calls
        ]
    except ValueError:
        raise ToolsRefused from None
    return {
        **message,
        "tool_calls": [{**one, "function": function} for one, function in zip(calls, functions, strict=True)],
    }


def _calls(parsed: Any) -> list[ToolCall]:
    return [
        ToolCall(
            id=str(one.get("id") or f"call_{secrets.token_hex(8)}"),
            name=str(one["name"]),
            arguments=json.dumps(one.get("arguments") or {}, ensure_ascii=False),
        )
        for one in (parsed if isinstance(parsed, list) else [parsed])
    ]
