"""The answer to deep linking: a form that the browser sends to the platform, signed."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from flask import Response, g, render_template

from app.web import frames
from app.web.services import services
from grading.domain.ssrf import read
from grading.integrations.lti.keys import signed
from grading.integrations.lti.messages import chosen
from grading.integrations.lti.values import Platform
from grading.store.database import now
from grading.store.integrations.lti import platforms


def answer_page(
    platform: Platform, deployment: str, settings: Mapping[str, Any], items: Sequence[Mapping[str, Any]]
) -> Response:
    """A page that sends itself to where the platform said. Raises Refused for an address that is none."""
    url = str(settings.get("deep_link_return_url"))
    target = read(url)
    store = services().store
    with store.read() as session:
        moment = now(session)
    said = chosen(platform, deployment, settings, items, moment, secrets.token_urlsafe(24))
    token = signed(platforms.signing_key(store), said)
    answer = Response(render_template("lti/return.html", url=url, token=token))
    origin = f"{'https' if target.secure else 'http'}://{target.header}"
    answer.headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src 'nonce-{g.nonce}'; style-src 'self'; form-action {origin}; "
        f"base-uri 'none'; frame-ancestors {frames.ancestors()}"
    )
    return answer
