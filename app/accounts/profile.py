"""What everybody sets for themselves: address, language, mail, password."""

from __future__ import annotations

from flask import Blueprint, flash, g, redirect, render_template, request, session, url_for
from flask_login import login_user
from werkzeug.wrappers import Response

from app.accounts import known_browsers
from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import languages, title_of
from app.web.rate_limits import limited, per_person
from app.web.services import services
from grading.domain.errors import GraderError
from grading.store.accounts import credentials
from grading.store.accounts import users as accounts
from grading.store.accounts.sign_in_attempts import TriedTooOften
from grading.store.courses import user_admin
from grading.store.courses.user_admin import Wishes

PASSWORDS = "20 per minute"
"""For one person who changes their password."""
pages = Blueprint("account", __name__, url_prefix="/account")


@pages.get("")
def mine() -> str:
    """One's own settings."""
    return _page()


@pages.post("")
def save() -> tuple[str, int] | Response:
    """Keep address, language and whether mail is wanted."""
    actor = auth.actor()
    language = request.form.get("language", "")
    wanted = Wishes(
        request.form.get("email", ""),
        language if language in languages() else "",
        "mail_when_ready" in request.form,
    )
    try:
        with services().store.write() as store:
            user_admin.wish(store, actor.user_id, wanted)
    except GraderError as error:
        return _page(error.message, wanted), error.status
    session.pop("language", None)  # what this browser chose before
    g.pop("language", None)
    if wanted.language:
        g.language = wanted.language
    flash(_("Your settings are saved."))
    return redirect(url_for("account.mine"), 303)


@pages.post("/password")
@limited(PASSWORDS, per_person)
def password() -> tuple[str, int] | tuple[str, int, dict[str, str]] | Response:
    """Set a new password; this session goes on, all others end."""
    actor = auth.actor()
    old, new = request.form.get("old", "")[:1000], request.form.get("password", "")
    try:
        if new != request.form.get("again", ""):
            raise GraderError(_("The two new passwords differ. Type the same one twice."))
        ended = "tokens" in request.form
        caller = known_browsers.caller_of(auth.user())
        credentials.change_password(services().store, actor.user_id, old, new, caller, tokens_end=ended)
    except TriedTooOften as error:
        return _page(known_browsers.waits(error)), error.status, {"Retry-After": str(error.retry_after_s)}
    except GraderError as error:
        return _page(error.message), error.status
    told = _("Your password is changed. Other sessions of yours have ended.")
    flash(_("Your password is changed. Other sessions and your API tokens have ended.") if ended else told)
    return _go_on(actor.user_id)


@pages.post("/sessions")
def elsewhere() -> Response:
    """End all sessions but this one."""
    actor = auth.actor()
    with services().store.write() as store:
        credentials.end_sessions(store, actor.user_id)
    flash(_("You are signed out everywhere else."))
    return _go_on(actor.user_id)


def _go_on(user_id: int) -> Response:
    """Sign this browser in again, with the new stamp; the account knows no other browser any more."""
    login_user(auth.begin_session(user_id))
    return known_browsers.remember(redirect(url_for("account.mine"), 303), user_id)


def _page(problem: str = "", wanted: Wishes | None = None) -> str:
    actor = auth.actor()
    with services().store.look() as store:
        account, wishes = user_admin.own(store, actor.user_id)
    chosen = [(one, title_of(one)) for one in languages()]
    return render_template(
        "accounts/profile.html", account=account, wishes=wanted or wishes, offered=chosen, problem=problem,
        least=accounts.MIN_PASSWORD,
    )  # fmt: skip
