"""Signing in and out."""

from __future__ import annotations

from flask import Blueprint, Response, redirect, render_template, request, session, url_for
from flask_login import login_user, logout_user
from werkzeug.wrappers import Response as BaseResponse

from app.security import safe_next
from app.services import services
from app.who import SignedIn
from grading.store import accounts, tables

pages = Blueprint("sign_in", __name__)
REFUSED = (
    "Name and password do not fit, or the account rests for 15 minutes after too many wrong passwords. "
    "Check both and try again."
)


@pages.get("/sign-in")
def form() -> str:
    """The form."""
    return render_template("sign_in.html", next=safe_next(request.args.get("next")))


@pages.post("/sign-in")
def enter() -> tuple[str, int] | BaseResponse:
    """Check name and password."""
    name, password = request.form.get("name", "")[:200], request.form.get("password", "")[:1000]
    target = safe_next(request.form.get("next"))
    user_id = accounts.check_password(services().store, name, password)
    if user_id is None:
        return render_template("sign_in.html", next=target, name=name, problem=REFUSED), 401
    with services().store.read() as store:
        user = store.get_one(tables.User, user_id)
        signed_in = SignedIn(user, accounts.actor_of(store, user))
    session.clear()
    session.permanent = True
    login_user(signed_in)
    return redirect(target or url_for("pages.home"), 303)


@pages.post("/sign-out")
def leave() -> Response | BaseResponse:
    """End the session."""
    logout_user()
    session.clear()
    return redirect(url_for("sign_in.form"), 303)
