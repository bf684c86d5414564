"""Signing in and out, setting a password by a link, and the browsers that are known."""

from __future__ import annotations

import secrets
import time

from flask import (
    Blueprint,
    current_app,
    flash,
    make_response,
    redirect,
    render_template,
    request,
    session,
    url_for,
)
from flask_login import login_user, logout_user
from itsdangerous import BadData, URLSafeTimedSerializer
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.accounts import single_sign_on
from app.web import auth, frames, kept_forms
from app.web.auth import SignedIn
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error
from app.web.rate_limits import limited
from app.web.security import safe_next
from app.web.services import services
from grading.domain.errors import GraderError
from grading.store.accounts import credentials, second_factor, users
from grading.store.accounts.sign_in_attempts import Caller, KnownBrowser, TriedTooOften
from grading.store.courses import invitations

SIGN_INS = "300 per minute"
"""For one address; a whole class may sit behind it. Each account has its own, lower bound."""
pages = Blueprint("sign_in", __name__)
COOKIE = "grader-known"
AWAITS_CODE = "awaits_code"
"""Key of the cookie's session: who gave the right password and still has to give a code. Nothing but the
page for the code reads it."""
KEPT_S = 180 * 24 * 3600


@pages.get("/sign-in")
def form() -> str:
    """The form."""
    name = session.pop("signs_in_as", "")  # of who just set a password
    return _form(safe_next(request.args.get("next")), name)


@pages.post("/sign-in")
@limited(SIGN_INS)
def enter() -> tuple[str, int] | tuple[str, int, dict[str, str]] | Response:
    """Check name and password; then go on, or show a form that was not sent because a session ended."""
    name, password = request.form.get("name", "")[:200], request.form.get("password", "")[:1000]
    target = safe_next(request.form.get("next"))
    try:
        user_id = credentials.verify_password(
            services().store, name, password, caller(), break_glass_only=not passwords_on()
        )
    except TriedTooOften as error:
        return (
            _form(target, name, waits(error)),
            429,
            {"Retry-After": str(error.retry_after_s)},
        )
    if user_id is None:
        return _form(target, name, _refusal()), 401
    with services().store.read_autocommit() as store:
        if second_factor.has_second_factor(store, user_id):
            return _await_code(store, user_id, target), 200
    if not passwords_on():  # a break-glass account that lost its second factor
        return _form(target, name, _refusal()), 401
    return let_in(user_id, target)


def _refusal() -> str:
    if passwords_on():
        return _("Wrong sign-in name or password. Check both and try again.")
    return _(
        "Wrong sign-in name or password, or not a break-glass account. Passwords of all other accounts are "
        "turned off on this server. Sign in through your school."
    )


def passwords_on() -> bool:
    """Whether passwords of all accounts work, not only of break-glass accounts."""
    return services().config.sign_on.local_accounts


def _await_code(store: Session, user_id: int, target: str | None) -> str:
    """Remember who gave the right password, without a session, and ask for the code."""
    found = users.load_reader(store, user_id)
    session[AWAITS_CODE] = [user_id, found.stamp if found else "", int(time.time())]
    return code_form(target)


def code_form(target: str | None, problem: str = "") -> str:
    """The form for the second factor's code; what was not sent travels on."""
    kept = kept_forms.of_sign_in()
    return render_template("accounts/code.html", next=target, problem=problem, kept=kept)


def let_in(user_id: int, target: str | None) -> Response:
    """Begin a session of somebody who has shown all that is asked for; go on to the target."""
    found = auth.begin_session(user_id)
    session.clear()
    session.permanent = True
    login_user(found)
    kept = kept_forms.of_sign_in()
    if kept is not None:
        return remember(make_response(kept_forms.page(kept)), user_id)
    return remember(redirect(target or url_for("home.home"), 303), user_id)


def _form(target: str | None, name: str, problem: str = "") -> str:
    kept = kept_forms.of_sign_in()
    return render_template(
        "accounts/sign_in.html", next=target, name=name, problem=problem, kept=kept, passwords=passwords_on()
    )


@pages.post("/sign-out")
def leave() -> str | Response:
    """End this session on the server, too: no copy of its cookie is worth anything then."""
    origin = None if frames.framed() else single_sign_on.origin_of_session()
    auth.end_session()
    logout_user()
    session.clear()
    if frames.framed():
        return render_template("web/session_over.html")
    if origin is not None and (page := single_sign_on.signed_out_page(*origin)) is not None:
        return page
    return redirect(url_for("sign_in.form"), 303)


@pages.get("/forgotten")
def forgotten() -> str:
    """Whom to ask for a link."""
    return render_template("accounts/forgotten_password.html")


@pages.get("/reset/<secret>")
@limited(SIGN_INS)
def follow(secret: str) -> Response:
    """Take a link's secret out of the address, so that it reaches no other page, and go on to the form."""
    with services().store.read() as store:
        auth.require_passwords(store, [invitations.link_owner(store, secret[:100]).id])
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
def set_password() -> tuple[str, int] | Response:
    """Set the password; sessions and other links of the account end."""
    password = request.form.get("password", "")
    try:
        if password != request.form.get("again", ""):
            raise GraderError(_("The passwords do not match. Type the same password twice."))
        with services().store.read() as store:
            auth.require_passwords(store, [invitations.link_owner(store, session.get("reset", "")).id])
        user_id = invitations.use_link(services().store, session.get("reset", ""), password)
    except invitations.LinkGone:
        session.pop("reset", None)
        raise
    except GraderError as error:
        return _set_page(render_error(error)), error.status
    session.clear()
    session["signs_in_as"] = request.form.get("username", "")[:200]
    flash(_("Password set. Sign in with it now."))
    # so that whoever is slowed down by strangers gets in by a link
    return remember(redirect(url_for("sign_in.form"), 303), user_id)


def _set_page(problem: str | None = None) -> str:
    with services().store.read() as store:
        user = invitations.link_owner(store, session.get("reset", ""))
        name = users.sign_in_name(store, user.id)
    return render_template(
        "accounts/set_password.html", owner=user, sign_in_name=name, problem=problem, least=users.MIN_PASSWORD
    )


def caller() -> Caller:
    """Where this request comes from, and whose browser it shows to be."""
    return Caller(request.remote_addr or "", _known_browser())


def caller_of(user: SignedIn) -> Caller:
    """The same for somebody who is signed in: as good as a known browser.

    All sessions of an account are one source, or a stolen one would have any number of guesses.
    """
    return Caller(request.remote_addr or "", KnownBrowser(user.actor.user_id, user.stamp, "signed in"))


def stay_known(answer: Response, user_id: int, stamp: str) -> Response:
    """Let a browser that the account knew by an earlier stamp stay known, with its count of guesses.

    No browser becomes known: nobody entered a password.
    """
    browser = _known_browser()
    if browser is None or (browser.user_id, browser.stamp) != (user_id, stamp):
        return answer
    return remember(answer, user_id, browser.id)


def remember(answer: Response, user_id: int, number: str = "") -> Response:
    """Let the browser show later that this account signed in there; of several accounts, the last one."""
    with services().store.read_autocommit() as store:
        found = users.load_reader(store, user_id)
    if found is None:  # disabled meanwhile
        return answer
    signed = _signer().dumps([user_id, found.stamp, number or secrets.token_urlsafe(16)])
    answer.set_cookie(
        _name(), str(signed), max_age=KEPT_S, secure=services().https, httponly=True, samesite="Strict"
    )
    return answer


def waits(error: TriedTooOften) -> str:
    """When to try again, in words."""
    return ngettext(
        "Too many wrong passwords for this sign-in name. Try again in %(count)s second.",
        "Too many wrong passwords for this sign-in name. Try again in %(count)s seconds.",
        error.retry_after_s,
    )


def _known_browser() -> KnownBrowser | None:
    try:
        user_id, stamp, number = _signer().loads(request.cookies.get(_name(), ""), max_age=KEPT_S)
    except BadData:
        return None
    return KnownBrowser(int(user_id), str(stamp), str(number))


def _signer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(current_app.secret_key or "", salt="known-browser")


def _name() -> str:
    return f"__Host-{COOKIE}" if services().https else COOKIE
