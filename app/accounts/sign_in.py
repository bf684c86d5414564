"""Signing in and out, and setting a password by a link."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, session, url_for
from flask_login import login_user, logout_user
from werkzeug.wrappers import Response as BaseResponse

from app.accounts import known_browsers
from app.web import auth, frames
from app.web.i18n import gettext as _
from app.web.rate_limits import limited
from app.web.security import safe_next
from app.web.services import services
from grading.domain.errors import GraderError
from grading.store.accounts import credentials, users
from grading.store.accounts.sign_in_attempts import TriedTooOften
from grading.store.courses import invitations

SIGN_INS = "300 per minute"
"""For one address; a whole class may sit behind it. Each account has its own, lower bound."""
pages = Blueprint("sign_in", __name__)


@pages.get("/sign-in")
def form() -> str:
    """The form."""
    name = session.pop("signs_in_as", "")  # of who just set a password
    return _form(safe_next(request.args.get("next")), name)


@pages.post("/sign-in")
@limited(SIGN_INS)
def enter() -> tuple[str, int] | tuple[str, int, dict[str, str]] | BaseResponse:
    """Check name and password."""
    name, password = request.form.get("name", "")[:200], request.form.get("password", "")[:1000]
    target = safe_next(request.form.get("next"))
    try:
        user_id = credentials.verify_password(services().store, name, password, known_browsers.caller())
    except TriedTooOften as error:
        return (
            _form(target, name, known_browsers.waits(error)),
            429,
            {"Retry-After": str(error.retry_after_s)},
        )
    if user_id is None:
        return _form(target, name, _("Name and password do not fit. Check both and try again.")), 401
    found = auth.begin_session(user_id)
    session.clear()
    session.permanent = True
    login_user(found)
    return known_browsers.remember(redirect(target or url_for("home.home"), 303), user_id)


def _form(target: str | None, name: str, problem: str = "") -> str:
    return render_template("accounts/sign_in.html", next=target, name=name, problem=problem)


@pages.post("/sign-out")
def leave() -> str | BaseResponse:
    """End this session on the server, too: no copy of its cookie is worth anything then."""
    auth.end_session()
    logout_user()
    session.clear()
    if frames.framed():
        return render_template("web/over.html")
    return redirect(url_for("sign_in.form"), 303)


@pages.get("/forgotten")
def forgotten() -> str:
    """Whom to ask for a link."""
    return render_template("accounts/forgotten.html")


@pages.get("/reset/<secret>")
@limited(SIGN_INS)
def follow(secret: str) -> BaseResponse:
    """Take a link's secret out of the address, so that it reaches no other page, and go on to the form."""
    with services().store.read() as store:
        invitations.owner(store, secret[:100])
    session["reset"] = secret[:100]
    answer = redirect(url_for("sign_in.set_form"), 303)
    answer.headers["Referrer-Policy"] = "no-referrer"
    return answer


@pages.get("/reset")
def set_form() -> str:
    """The form for a new password."""
    return _set_page()


@pages.post("/reset")
@limited(SIGN_INS)
def set_password() -> tuple[str, int] | BaseResponse:
    """Set the password; sessions and other links of the account end."""
    password = request.form.get("password", "")
    try:
        if password != request.form.get("again", ""):
            raise GraderError(_("The two passwords differ. Type the same one twice."))
        user_id = invitations.use(services().store, session.get("reset", ""), password)
    except invitations.LinkGone:
        session.pop("reset", None)
        raise
    except GraderError as error:
        return _set_page(error.message), error.status
    session.clear()
    session["signs_in_as"] = request.form.get("username", "")[:200]
    flash(_("Your password is set. Sign in with it now."))
    # so that whoever is slowed down by strangers gets in by a link
    return known_browsers.remember(redirect(url_for("sign_in.form"), 303), user_id)


def _set_page(problem: str | None = None) -> str:
    with services().store.read() as store:
        user = invitations.owner(store, session.get("reset", ""))
        name = users.sign_in_name(store, user.id)
    return render_template(
        "accounts/reset.html", owner=user, sign_in_name=name, problem=problem, least=users.MIN_PASSWORD
    )
