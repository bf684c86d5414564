"""What went wrong with an engine over HTTP, as the errors and sentences people read."""

from __future__ import annotations

import html
import json
import re

from grading.domain.errors import (
    EngineBrokeOff,
    EngineBusy,
    EngineError,
    EngineGarbled,
    EngineUnreachable,
    JobInvalid,
    ModelMissing,
    OutputInvalid,
)
from grading.domain.messages import Message
from workers.machine.messages import (
    ANSWER_BROKEN_OFF,
    ANSWERED_STATUS,
    COMPRESSED_ANSWER,
    NO_REASON,
    NO_ROOM,
    OTHER_CONTENT_TYPE,
    OTHER_PROTOCOL,
    OUTPUT_NOT_PARSED,
    PROMPT_TOO_LONG,
    PROXY_ANSWERED,
    REDIRECTED,
    REFUSED_ACCESS,
    REFUSED_CONNECTION,
)

_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_LONGEST = 300
_OF_MODEL = "model produced output that does not match"
"""With this, llama.cpp of 2026 ends an answer that its parser cannot read, as does Ollama, which runs it."""


def unreachable(where: str, connect_s: float) -> EngineUnreachable:
    """The error for a connection that was not made."""
    error = EngineUnreachable(REFUSED_CONNECTION(engine=where, seconds=f"{connect_s:g}"))
    error.refused = True
    return error


def broke_off(where: str, how: str) -> EngineBrokeOff | OutputInvalid:
    """The error for an answer that ended before it was complete: the server's fault, or the model's."""
    if _OF_MODEL in how:
        return OutputInvalid(OUTPUT_NOT_PARSED(engine=where, answer=how))
    return EngineBrokeOff(ANSWER_BROKEN_OFF(engine=where, how=how))


def garbled(where: str) -> EngineGarbled:
    """The error for bytes that are not of the protocol."""
    return EngineGarbled(OTHER_PROTOCOL(engine=where))


def compressed(where: str) -> EngineGarbled:
    """The error for an answer in a coding that was not asked for: its bytes cannot be bounded."""
    return EngineGarbled(COMPRESSED_ANSWER(engine=where))


def not_a_page(where: str, content_type: str, expected: str = "") -> None:
    """Raises EngineGarbled for a content type that is a web page's, or not the `expected` one."""
    if "html" in content_type.lower() or (content_type and expected not in content_type.lower()):
        raise EngineGarbled(OTHER_CONTENT_TYPE(engine=where, type=repr(content_type[:60])))


def status_error(where: str, status: int, text: str, missing: Message) -> EngineError:
    """The error for an HTTP status other than 200; `missing` is the sentence for 404."""
    said = reason(text)
    if status == 404:
        return ModelMissing(missing)
    if status in (429, 503):
        return EngineBusy(NO_ROOM(engine=where, answer=said or status))
    if status in (502, 504):
        return EngineUnreachable(PROXY_ANSWERED(engine=where, answer=said or status))
    if 300 <= status < 400:
        return EngineGarbled(REDIRECTED(engine=where, status=status))
    if status in (401, 403):
        return EngineError(REFUSED_ACCESS(engine=where, status=status))
    if is_too_long(status, said):
        return JobInvalid(PROMPT_TOO_LONG(answer=said))
    return EngineError(ANSWERED_STATUS(engine=where, status=status, answer=said or NO_REASON))


def is_too_long(status: int, said: str) -> bool:
    """Whether a server refuses a prompt because it does not fit the context."""
    return status in (400, 413) and "context" in said.lower()


def reason(text: str) -> str:
    """What a body says, short: of JSON its error, of a web page its title."""
    stripped = text.lstrip()
    if stripped.startswith("<") and (title := _TITLE.search(text)):
        text = html.unescape(title[1])
    elif stripped.startswith("{"):
        text = _error(stripped) or text
    return " ".join(text.split())[:_LONGEST]


def _error(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return ""
    error = value.get("error") or value.get("message") or value.get("detail")
    return str(error.get("message") or "") if isinstance(error, dict) else str(error or "")
