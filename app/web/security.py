"""Headers, cookies, sizes and redirects: what keeps pages safe, in one place."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import IO
from urllib.parse import urlsplit

from flask import Blueprint, Flask, Response, g, request
from flask.blueprints import BlueprintSetupState
from flask_wtf.csrf import CSRFProtect
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge
from werkzeug.middleware.proxy_fix import ProxyFix

from app.web import frames
from app.web.services import Services

MIB = 1024 * 1024
NO_DEVICES = ", ".join(
    f"{name}=()" for name in ("camera", "microphone", "geolocation", "payment", "usb", "display-capture")
)
"""Nothing here needs any of them, so no script may ask."""
DRAIN_BYTES = 256 * MIB
"""An upload that is too large is read and thrown away up to here, so that browsers show the answer."""


def secure(app: Flask, services: Services) -> None:
    """Set limits and cookies, add the headers, and protect all forms against CSRF."""
    app.config.update(
        SECRET_KEY=services.secret_key,
        MAX_CONTENT_LENGTH=services.config.server.max_upload_mb * MIB,
        MAX_FORM_MEMORY_SIZE=2 * MIB,
        MAX_FORM_PARTS=4 * services.config.server.max_files + 1000,
        SESSION_COOKIE_NAME="__Host-grader" if services.https else "grader",
        SESSION_COOKIE_SECURE=services.https,
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_PATH="/",
        PERMANENT_SESSION_LIFETIME=12 * 3600,
        WTF_CSRF_TIME_LIMIT=None,
    )
    if services.https:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1, x_proto=1, x_host=1)  # type: ignore[method-assign]
    app.before_request(_nonce)
    app.before_request(_refuse_large)
    app.after_request(_headers)
    CSRFProtect(app)


def without_token(blueprint: Blueprint, *views: Callable[..., object]) -> None:
    """Let all views of a blueprint, or only these, be asked without a form's token: they have other proof."""

    def exempt(state: BlueprintSetupState) -> None:
        for one in views or (blueprint,):
            state.app.extensions["csrf"].exempt(one)

    blueprint.record(exempt)


def _refuse_large() -> None:
    """Refuse by Content-Length, before any form is parsed; nothing is kept in memory."""
    length, limit = request.content_length or 0, request.max_content_length
    if limit is None or length <= limit:
        return
    if length <= DRAIN_BYTES:
        _throw_away(request.environ["wsgi.input"], length)
    raise RequestEntityTooLarge


def read_rest() -> None:
    """Read what is left of the request: browsers do not show an answer that comes before they sent it all."""
    with suppress(OSError, HTTPException):
        _throw_away(request.stream, DRAIN_BYTES)


def _throw_away(stream: IO[bytes], most: int) -> None:
    while most > 0 and (chunk := stream.read(min(most, 64 * 1024))):
        most -= len(chunk)


def _nonce() -> None:
    g.nonce = secrets.token_urlsafe(16)


def _headers(response: Response) -> Response:
    nonce = g.get("nonce", "")
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self' 'nonce-{nonce}'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
        f"base-uri 'none'; frame-ancestors {frames.ancestors()}"
    )
    response.headers.setdefault("Content-Security-Policy", policy)  # a view may have a stricter one
    response.headers["X-Content-Type-Options"] = "nosniff"
    if not frames.framed():  # which platforms may, the policy says
        response.headers["X-Frame-Options"] = "DENY"
    response.headers.setdefault("Referrer-Policy", "same-origin")
    response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
    response.headers["Cross-Origin-Embedder-Policy"] = "require-corp"
    response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
    response.headers["Permissions-Policy"] = NO_DEVICES
    response.headers["X-Permitted-Cross-Domain-Policies"] = "none"
    response.headers["X-DNS-Prefetch-Control"] = "off"
    if request.endpoint not in ("static", "bootstrap.static"):
        response.headers.setdefault("Cache-Control", "no-store")
    if request.is_secure:
        response.headers["Strict-Transport-Security"] = "max-age=31536000"
    return response


def safe_next(target: str | None) -> str | None:
    """The target if it is a path on this server, or nothing."""
    if not target or not target.startswith("/") or "\\" in target or any(ord(c) < 32 for c in target):
        return None
    parts = urlsplit(target)
    return target if not parts.scheme and not parts.netloc and not target.startswith("//") else None
