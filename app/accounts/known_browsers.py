"""Browsers in which somebody signed in before: wrong passwords of strangers do not slow them."""

from __future__ import annotations

import secrets

from flask import current_app, request
from itsdangerous import BadData, URLSafeTimedSerializer
from werkzeug.wrappers import Response

from app.web.auth import SignedIn
from app.web.i18n import ngettext
from app.web.services import services
from grading.store.accounts import users
from grading.store.accounts.sign_in_attempts import Caller, KnownBrowser, TriedTooOften

COOKIE = "grader-known"
KEPT_S = 180 * 24 * 3600


def caller() -> Caller:
    """Where this request comes from, and whose browser it shows to be."""
    return Caller(request.remote_addr or "", _shown())


def caller_of(user: SignedIn) -> Caller:
    """The same for somebody who is signed in: their session is as good as a known browser."""
    return Caller(
        request.remote_addr or "", KnownBrowser(user.actor.user_id, user.stamp, f"session {user.session_id}")
    )


def remember(answer: Response, user_id: int) -> Response:
    """Let the browser show later that this account signed in there; of several accounts, the last one."""
    with services().store.look() as store:
        found = users.load_reader(store, user_id)
    if found is None:  # disabled meanwhile
        return answer
    shown = _signer().dumps([user_id, found.stamp, secrets.token_urlsafe(16)])
    answer.set_cookie(
        _name(), str(shown), max_age=KEPT_S, secure=services().https, httponly=True, samesite="Strict"
    )
    return answer


def waits(error: TriedTooOften) -> str:
    """When to try again, in words."""
    return ngettext(
        "After several wrong passwords for this name there is a pause between tries. Nothing is lost. "
        "Try again in %(count)s second.",
        "After several wrong passwords for this name there is a pause between tries. Nothing is lost. "
        "Try again in %(count)s seconds.",
        error.retry_after_s,
    )


def _shown() -> KnownBrowser | None:
    try:
        user_id, stamp, number = _signer().loads(request.cookies.get(_name(), ""), max_age=KEPT_S)
    except BadData:
        return None
    return KnownBrowser(int(user_id), str(stamp), str(number))


def _signer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(current_app.secret_key or "", salt="known-browser")


def _name() -> str:
    return f"__Host-{COOKIE}" if services().https else COOKIE
