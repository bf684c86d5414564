"""Signatures of events, as Standard Webhooks 1.0 describes them."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from grader_client.errors import InvalidWebhook

TOLERANCE_S = 300.0
"""How far the time of a message may be from now; older ones may have been recorded and sent again."""


def verify_webhook(headers: Mapping[str, str], body: bytes, secrets: Iterable[str]) -> dict[str, Any]:
    """The event in the body of a request that was signed with one of the secrets (`whsec_…`).

    `body` is what came, to the byte. Raises InvalidWebhook, and ValueError for a secret that is none.
    """
    given = {name.lower(): value for name, value in headers.items()}
    keys = [_key(secret) for secret in secrets]
    try:
        message_id, moment, signatures = (given[f"webhook-{one}"] for one in ("id", "timestamp", "signature"))
        late_s = abs(time.time() - int(moment))
    except (KeyError, ValueError, OverflowError):
        raise InvalidWebhook("The message has no signature.") from None
    if late_s > TOLERANCE_S:
        raise InvalidWebhook("The message was not signed now.")
    signed = f"{message_id}.{moment}.".encode() + body
    wanted = [b"v1," + base64.b64encode(hmac.digest(key, signed, "sha256")) for key in keys]
    if not any(hmac.compare_digest(one.encode(), good) for one in signatures.split() for good in wanted):
        raise InvalidWebhook("The message is signed with none of the secrets.")
    event: dict[str, Any] = json.loads(body)
    return event


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise ValueError("A secret is whsec_ and the base64 of random bytes.") from None
