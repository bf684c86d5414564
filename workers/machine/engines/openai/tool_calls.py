"""Calls of tools as servers that speak `/v1/chat/completions` stream them: in pieces, bounded."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grading.domain.errors import OutputEndless
from grading.domain.jobs import ToolCall
from workers.machine.engines.base import Request
from workers.machine.engines.http.answer import MAX_TEXT_BYTES
from workers.machine.messages import TEXT_TOO_LONG

MOST_CALLS = 64
_REFUSAL = "tool"


@dataclass
class _Piece:
    """A call so far."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass
class StreamedCalls:
    """The calls of one answer, by the index that the server gives them."""

    _known: dict[int, _Piece] = field(default_factory=dict)
    _bytes: int = 0

    def add(self, pieces: list[dict[str, Any]]) -> bool:
        """Take pieces; whether there were any. Raises OutputEndless, and what a wrong shape raises."""
        for piece in pieces:
            known = self._known.setdefault(int(piece.get("index") or 0), _Piece())
            function = piece.get("function") or {}
            known.id = known.id or str(piece.get("id") or "")
            known.name = known.name or str(function.get("name") or "")
            known.arguments.append(str(function.get("arguments") or ""))
            self._bytes += len(known.arguments[-1])
            if self._bytes > MAX_TEXT_BYTES or len(self._known) > MOST_CALLS:
                raise OutputEndless(TEXT_TOO_LONG(bytes=MAX_TEXT_BYTES))
        return bool(pieces)

    def whole(self) -> tuple[ToolCall, ...]:
        """All that have a name, in their order; with an id also where the server gives none."""
        return tuple(
            ToolCall(
                id=known.id or f"call_{secrets.token_hex(8)}",
                name=known.name,
                arguments="".join(known.arguments) or "{}",
            )
            for _, known in sorted(self._known.items())
            if known.name
        )


def of_tools(message: Mapping[str, Any]) -> bool:
    """Whether a message of a chat is a call of tools, or the result of one."""
    return message["role"] == "tool" or bool(message.get("tool_calls"))


def tool_fields(request: Request) -> dict[str, Any]:
    """What is sent for a request with tools."""
    if not request.tools:
        return {}
    chosen = {} if request.tool_choice is None else {"tool_choice": request.tool_choice}
    return {"tools": list(request.tools), **chosen}


def refuses_tools(request: Request, status: int, said: str) -> bool:
    """Whether a server says that it cannot call tools, or not for this model, or not as it was asked to."""
    return bool(request.tools) and status in (400, 422, 500, 501) and _REFUSAL in said.lower()
