"""For libraries that speak by `requests`: sessions whose only way out is an adapter of ours.

Such an adapter sends by `grading.integrations.http_client` (decision 0027).
"""

from __future__ import annotations

import requests
from requests.adapters import BaseAdapter

from grading.integrations.http_client import Answer


def leave_only(session: requests.Session, adapter: BaseAdapter) -> None:
    """Let a session have no other way out, and take nothing from the environment."""
    session.adapters.clear()
    session.trust_env, session.max_redirects = False, 0
    for scheme in ("https://", "http://"):
        session.mount(scheme, adapter)


def as_response(request: requests.PreparedRequest, answer: Answer) -> requests.Response:
    """An answer as `requests` has it."""
    made = requests.Response()
    made.status_code, made._content = answer.status, answer.body
    made.headers = requests.structures.CaseInsensitiveDict(answer.headers)
    made.url, made.request, made.encoding = request.url or "", request, "utf-8"
    return made


def body_of(request: requests.PreparedRequest) -> bytes:
    """What is to be sent, as bytes."""
    body = request.body or b""
    return body.encode() if isinstance(body, str) else bytes(body)
