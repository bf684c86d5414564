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
)

_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_LONGEST = 300


def unreachable(where: str, connect_s: float) -> EngineUnreachable:
    """The error for a connection that was not made."""
    error = EngineUnreachable(
        f"{where} refused the connection or did not answer within {connect_s:g} s. "
        "Start it, or correct its url in config.toml."
    )
    error.refused = True
    return error


def broke_off(where: str, how: str) -> EngineBrokeOff:
    """The error for an answer that ended before it was complete."""
    return EngineBrokeOff(f"{where} broke off the answer ({how}). Look at its log.")


def garbled(where: str) -> EngineGarbled:
    """The error for bytes that are not of the protocol."""
    return EngineGarbled(
        f"{where} sent something that is not part of its protocol. Look what answers at that url."
    )


def compressed(where: str) -> EngineGarbled:
    """The error for an answer in a coding that was not asked for: its bytes cannot be bounded."""
    return EngineGarbled(
        f"{where} sent a compressed answer, which was not asked for. A proxy may stand before it; "
        "correct its url in config.toml."
    )


def not_a_page(where: str, content_type: str, expected: str = "") -> None:
    """Raises EngineGarbled for a content type that is a web page's, or not the `expected` one."""
    if "html" in content_type.lower() or (content_type and expected not in content_type.lower()):
        raise EngineGarbled(
            f"{where} answered with {content_type[:60]!r}, which no engine sends. "
            "A proxy may stand before it; correct its url in config.toml."
        )


def status_error(where: str, status: int, text: str, missing: str) -> EngineError:
    """The error for an HTTP status other than 200; `missing` is the sentence for 404."""
    said = reason(text)
    if status == 404:
        return ModelMissing(missing)
    if status in (429, 503):
        return EngineBusy(f"{where} has no room for another request: {said or status}")
    if status in (502, 504):
        return EngineUnreachable(
            f"A proxy answered for {where}, which does not answer itself: {said or status}. "
            "Start the engine, or correct its url in config.toml."
        )
    if 300 <= status < 400:
        return EngineGarbled(
            f"{where} sends on to another address ({status}). Correct its url in config.toml."
        )
    if status in (401, 403):
        return EngineError(f"{where} refused access with status {status}. Check the engine's API key.")
    if status in (400, 413) and "context" in said.lower():
        return JobInvalid(f"The prompt does not fit the model's context: {said}")
    return EngineError(
        f"{where} answered with status {status}: {said or 'no reason given'}. Look at its log."
    )


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
