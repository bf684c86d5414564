"""What everybody sets for themselves: settings, password, sessions, API tokens."""

from __future__ import annotations

from datetime import timedelta

from flask import Blueprint, flash, redirect, render_template, request, session, url_for
from werkzeug.wrappers import Response

from app.accounts import sign_in
from app.web import auth, parsing
from app.web.auth import SCOPE_TEXTS
from app.web.i18n import gettext as _
from app.web.i18n import languages, render_error, speak, title_of
from app.web.rate_limits import limited, per_person
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import GraderError
from grading.domain.messages import define_message
from grading.domain.permissions import SCOPES, Actor
from grading.store.accounts import credentials, single_sign_on, users
from grading.store.accounts.sign_in_attempts import TriedTooOften
from grading.store.courses import user_admin
from grading.store.courses.user_admin import Preferences

TOKEN_DAYS = define_message("profile.token_days", "Enter a validity of 1 to 730 days.")

DAILY_TOKENS = define_message(
    "profile.daily_tokens",
    "Enter 1 to %(most)s model tokens per day, or leave the field empty.",
)
PASSWORDS = "20 per minute"
"""For one person who changes their password."""
pages = Blueprint("profile", __name__)


@pages.get("/account")
def show() -> str:
    """One's own settings."""
    return _page()


@pages.post("/account")
def save() -> tuple[str, int] | Response:
    """Keep address, language and whether mail is wanted."""
    actor = auth.actor()
    language = request.form.get("language", "")
    wanted = Preferences(
        request.form.get("email", ""),
        language if language in languages() else "",
        "mail_when_ready" in request.form,
    )
    try:
        with services().store.write() as store:
            before = user_admin.load_own_account(store, actor.user_id)[1]
            user_admin.set_preferences(store, actor.user_id, wanted)
    except GraderError as error:
        return _page(render_error(error), wanted), error.status
    session.pop("language", None)  # what this browser chose before
    speak(wanted.language)
    undo = {"email": before.email, "language": before.language, "mail_when_ready": before.mail_when_ready}
    flash_undo(_("Settings saved."), "profile.save", undo)
    return redirect(url_for("profile.show"), 303)


@pages.post("/account/password")
@limited(PASSWORDS, per_person)
def password() -> tuple[str, int] | tuple[str, int, dict[str, str]] | Response:
    """Set a new password; this session goes on, all others end."""
    reader = auth.user()
    user_id = reader.actor.user_id
    old, new = request.form.get("old", "")[:1000], request.form.get("password", "")
    try:
        if new != request.form.get("again", ""):
            raise GraderError(_("The new passwords do not match. Type the same password twice."))
        with services().store.read_autocommit() as store:
            auth.require_passwords(store, [user_id])
        ended = "tokens" in request.form
        caller, keep = sign_in.caller_of(reader), reader.session_id
        credentials.change_password(services().store, user_id, old, new, caller, others_end=ended, keep=keep)
    except TriedTooOften as error:
        return _page(sign_in.waits(error)), error.status, {"Retry-After": str(error.retry_after_s)}
    except GraderError as error:
        return _page(render_error(error)), error.status
    message = _("Password changed. Your other sessions have ended.")
    flash(
        _("Password changed. Other sessions have ended and your API tokens are revoked.")
        if ended
        else message
    )
    with services().store.read_autocommit() as store:
        locked = any(one.locked for one in single_sign_on.list_sign_ons(store, user_id))
    if locked:
        flash(
            _("Linked sign-ins are locked. Link yours again, and unlink those that are not yours."), "warning"
        )
    auth.go_on(reader)
    return sign_in.remember(redirect(url_for("profile.show"), 303), user_id)


@pages.post("/account/sessions")
def end_other_sessions() -> Response:
    """End all sessions but this one."""
    reader = auth.user()
    user_id, stamp = reader.actor.user_id, reader.stamp
    with services().store.write() as store:
        credentials.end_sessions(store, user_id, keep=reader.session_id)
    flash(_("Signed out of all other sessions."))
    auth.go_on(reader)
    return sign_in.stay_known(redirect(url_for("profile.show"), 303), user_id, stamp)


def _page(problem: str = "", wanted: Preferences | None = None) -> str:
    actor = auth.actor()
    with services().store.read_autocommit() as store:
        account, wishes = user_admin.load_own_account(store, actor.user_id)
        passwords = credentials.may_have_password(
            store, [actor.user_id], local_accounts=sign_in.passwords_on()
        )
        linked = single_sign_on.list_sign_ons(store, actor.user_id)
    chosen = [(one, title_of(one)) for one in languages()]
    return render_template(
        "accounts/profile.html", account=account, wishes=wanted or wishes, offered=chosen, problem=problem,
        least=users.MIN_PASSWORD, passwords=passwords, linked=linked,
    )  # fmt: skip


@pages.get("/tokens")
def list_tokens() -> str:
    """All own tokens and a form for a new one."""
    return _tokens_page()


@pages.post("/tokens")
def create_token() -> str:
    """Make a token and show it once."""
    actor = auth.actor()
    auth.require(actor, "tokens.own")
    scopes = [scope for scope in request.form.getlist("scope") if scope in _offered(actor)]
    days = request.form.get("days", "")
    if not days.isdecimal() or len(days) > 6 or not 1 <= int(days) <= 730:
        raise GraderError(TOKEN_DAYS)
    with services().store.write() as session:
        name = request.form.get("name", "")
        valid, limit = timedelta(days=int(days)), _daily_tokens(actor)
        made = users.create_token(session, actor.user_id, name, scopes, valid, limit)
    return _tokens_page(made.secret)


@pages.post("/tokens/<int(max=2147483647):token_id>/revoke")
def revoke_token(token_id: int) -> Response:
    """End a token."""
    actor = auth.actor()
    auth.require(actor, "tokens.own")
    with services().store.write() as session:
        credentials.revoke_token(session, actor.user_id, token_id)
    return redirect(url_for("profile.list_tokens"), 303)


def _offered(actor: Actor) -> list[str]:
    """Scopes that are of use to this person."""
    useless = {
        "grade": not actor.staff,
        "manage": not actor.staff,
        "chat": not actor.staff,
        "admin": not actor.administrator,
    }
    return [scope for scope in SCOPES if not useless.get(scope, False)]


def _most_daily(actor: Actor) -> int:
    """What this person may give a token a day; 0: any number. Only administrators go beyond the default."""
    return 0 if actor.administrator else services().config.gateway.daily_tokens


def _daily_tokens(actor: Actor) -> int | None:
    """The token's own limit as the form has it; None for the default."""
    text, most = request.form.get("daily_tokens", "").strip(), _most_daily(actor) or users.MOST_DAILY_TOKENS
    if not text:
        return None
    wanted = parsing.whole_number(text, 13)
    if wanted is None or not 1 <= wanted <= most:
        raise GraderError(DAILY_TOKENS(most=most))
    return wanted


def _tokens_page(secret: str | None = None) -> str:
    actor = auth.actor()
    auth.require(actor, "tokens.own")
    with services().store.read_autocommit() as session:
        rows = credentials.list_tokens(session, actor.user_id, _before())
    scopes = _offered(actor)
    listed = rows[: credentials.TOKENS_PER_PAGE]
    older = listed[-1].id if len(rows) > len(listed) else None
    return render_template(
        "accounts/tokens.html", tokens=listed, older=older, secret=secret, scopes=scopes, may=SCOPE_TEXTS,
        most_daily=_most_daily(actor), default_daily=services().config.gateway.daily_tokens,
    )  # fmt: skip


def _before() -> int | None:
    return parsing.whole_number(request.args.get("before", ""))
