"""One's own API tokens."""

from __future__ import annotations

from datetime import timedelta

from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.web import auth
from app.web.auth import SCOPE_TEXTS
from app.web.services import services
from grading.domain.errors import GraderError
from grading.domain.permissions import SCOPES, Actor
from grading.store.accounts import credentials, users

pages = Blueprint("tokens", __name__, url_prefix="/tokens")


@pages.get("")
def listing() -> str:
    """All own tokens and a form for a new one."""
    return _page()


@pages.post("")
def create() -> str:
    """Make a token and show it once."""
    actor = auth.actor()
    auth.require(actor, "tokens.own")
    scopes = [scope for scope in request.form.getlist("scope") if scope in _offered(actor)]
    days = request.form.get("days", "")
    if not days.isdecimal() or len(days) > 6 or not 1 <= int(days) <= 730:
        raise GraderError("Say how many days the token is valid: 1 to 730.")
    with services().store.write() as session:
        name = request.form.get("name", "")
        made = users.create_token(session, actor.user_id, name, scopes, timedelta(days=int(days)))
    return _page(made.secret)


@pages.post("/<int(max=2147483647):token_id>/revoke")
def revoke(token_id: int) -> Response:
    """End a token."""
    actor = auth.actor()
    auth.require(actor, "tokens.own")
    with services().store.write() as session:
        credentials.revoke_token(session, actor.user_id, token_id)
    return redirect(url_for("tokens.listing"), 303)


def _offered(actor: Actor) -> list[str]:
    """Scopes that are of use to this person."""
    teaches = actor.administrator or "instructor" in actor.roles.values()
    useless = {
        "grade": not actor.staff,
        "manage": not teaches,
        "chat": not actor.staff,
        "admin": not actor.administrator,
    }
    return [scope for scope in SCOPES if not useless.get(scope, False)]


def _page(secret: str | None = None) -> str:
    actor = auth.actor()
    auth.require(actor, "tokens.own")
    with services().store.look() as session:
        rows = credentials.tokens_of(session, actor.user_id, _before())
    scopes = _offered(actor)
    shown = rows[: credentials.TOKENS]
    older = shown[-1].id if len(rows) > len(shown) else None
    return render_template(
        "accounts/tokens.html", tokens=shown, older=older, secret=secret, scopes=scopes, may=SCOPE_TEXTS
    )


def _before() -> int | None:
    text = request.args.get("before", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
