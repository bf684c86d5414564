"""The section `webhooks` of the OpenAPI document: the events that receivers are sent."""

from __future__ import annotations

from typing import Any

from grading.integrations import events

HEADERS = {
    "webhook-id": "the ID of the event, the same for every attempt and receiver",
    "webhook-timestamp": "the time of this attempt, in seconds since 1970",
    "webhook-signature": (
        "`v1,` and the base64 of HMAC-SHA256 over `{id}.{timestamp}.{raw body}`, "
        "one for each secret, separated by spaces"
    ),
}
"""Of each message, as Standard Webhooks 1.0 has them."""
ANSWERS = {
    "2XX": "The receiver accepted the message.",
    "410": "The receiver no longer accepts messages at this URL.",
    "default": "The message is retried later.",
}


def webhooks(schema: dict[str, Any]) -> dict[str, Any]:
    """An operation for each type of event; `schema` is that of `events.Event`."""
    return {kind: {"post": _operation(kind, about.text, schema)} for kind, about in events.EVENTS.items()}


def _operation(kind: str, about: str, schema: dict[str, Any]) -> dict[str, Any]:
    typed = {**schema, "properties": {"type": {"const": kind}}}
    content = {"application/json": {"schema": typed, "example": events.examples(kind)[0]}}
    return {
        "operationId": "event_" + kind.replace(".", "_"),
        "tags": ["events"],
        "summary": about,
        "security": [],
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": True,
                "schema": {"type": "string"},
                "description": words,
            }
            for name, words in HEADERS.items()
        ],
        "requestBody": {"required": True, "content": content},
        "responses": {status: {"description": words} for status, words in ANSWERS.items()},
    }
