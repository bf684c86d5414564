"""Asking a provider by `grading.integrations.http_client`: documents, user info, Authlib's token requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests
from requests.adapters import BaseAdapter

from grading.domain.messages import define_message
from grading.domain.ssrf import Refused
from grading.integrations.http_client import Allowed, Answer, OutsideFailed, TooMuch, ask
from grading.integrations.oidc.values import ProviderFailed
from grading.integrations.requests_adapter import as_response, body_of
from grading.integrations.told_texts import text_of

NO_ANSWER = define_message("sign_on.no_answer", "The provider does not answer: %(why)s")
TOO_LARGE = define_message("sign_on.too_large", "The provider's answer is too large.")
NOT_ALLOWED = define_message("sign_on.not_allowed", "Grader may not connect to the provider: %(why)s")
REDIRECTED = define_message(
    "sign_on.redirected",
    "The provider answered with a redirect (%(status)s), which Grader does not follow.",
)
ANSWERED = define_message("sign_on.answered", "The provider answered %(status)s.")
NOT_AN_OBJECT = define_message("sign_on.not_an_object", "The provider's answer is not a JSON object.")
SIGNED_ANSWER = define_message(
    "sign_on.signed_answer",
    "The provider signs or encrypts its user info. Have it send plain JSON to this client.",
)

TIMEOUT_S = 8.0
"""Somebody waits."""
LARGEST = 256_000
NO_HEADERS: Mapping[str, str] = {}


def fetch_object(url: str, allow: Allowed, headers: Mapping[str, str] = NO_HEADERS) -> dict[str, Any]:
    """A JSON object. Raises ProviderFailed for everything else, redirects among it."""
    answer = _ask("GET", url, headers, b"", allow)
    if answer.status != 200:
        raise ProviderFailed(ANSWERED(status=answer.status))
    if answer.headers.get("content-type", "").startswith("application/jwt"):
        raise ProviderFailed(SIGNED_ANSWER)
    return _object(answer)


def fetch_user_info(url: str, access_token: str, allow: Allowed) -> dict[str, Any]:
    """What the provider says of the owner of an access token. Raises ProviderFailed."""
    return fetch_object(url, allow, {"Authorization": f"Bearer {access_token}"})


@dataclass
class TokenRequests(BaseAdapter):
    """Sends what Authlib prepared, and gives it nothing but the texts of a JSON object.

    Redirects are refused: they would carry code and secret to another address.
    """

    allow: Allowed

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """The answer. Raises ProviderFailed."""
        headers = {name: str(value) for name, value in request.headers.items()}
        headers |= {"Accept-Encoding": "identity"}
        answer = _ask(request.method or "POST", request.url or "", headers, body_of(request), self.allow)
        if answer.status >= 500:
            raise ProviderFailed(ANSWERED(status=answer.status))
        texts = {name: value for name, value in _object(answer).items() if isinstance(value, str)}
        if answer.status != 200 and "error" not in texts:
            raise ProviderFailed(ANSWERED(status=answer.status))
        if "error" in texts:
            texts = {name: text_of(texts.get(name)) for name in ("error", "error_description")}
        return as_response(request, Answer(answer.status, {}, json.dumps(texts).encode()))

    def close(self) -> None:
        """Nothing is kept open."""


def _ask(method: str, url: str, headers: Mapping[str, str], body: bytes, allow: Allowed) -> Answer:
    head = {"Accept": "application/json", **headers, "User-Agent": "Grader"}
    try:
        answer = ask(
            method, url, headers=head, body=body, timeout_s=TIMEOUT_S, most_bytes=LARGEST, allow=allow
        )
    except TooMuch:
        raise ProviderFailed(TOO_LARGE) from None
    except OutsideFailed as error:
        raise ProviderFailed(NO_ANSWER(why=error.coded)) from None
    except Refused as error:
        raise ProviderFailed(NOT_ALLOWED(why=error.coded)) from None
    if 300 <= answer.status < 400:
        raise ProviderFailed(REDIRECTED(status=answer.status))
    return answer


def _object(answer: Answer) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        raise ProviderFailed(NOT_AN_OBJECT) from None
    if not isinstance(found, dict):
        raise ProviderFailed(NOT_AN_OBJECT)
    return found
