"""Linking sign-ins of providers with one's own account, and unlinking them."""

from __future__ import annotations

from datetime import timedelta

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.accounts import sign_in
from app.accounts.single_sign_on import Known, find_known, mark_of
from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.rate_limits import limited, per_person
from app.web.services import services
from grading.domain.errors import GraderError
from grading.store.accounts import credentials, second_factor, sessions, single_sign_on, users
from grading.store.accounts.second_factor import WrongCode
from grading.store.accounts.sign_in_attempts import Caller, TriedTooOften

LINKS = "20 per minute"
"""For one person."""
NEW = timedelta(minutes=10)
"""Who has no password proves by such a session that the account is theirs: a stolen one is older."""
pages = Blueprint("sign_on_links", __name__, url_prefix="/account/sign-ons")


@pages.get("/<name>")
def form(name: str) -> str:
    """Ask for the password before a sign-in is linked."""
    auth.actor()
    return _page(find_known(name))


@pages.post("/<name>")
@limited(LINKS, per_person)
def begin(name: str) -> str | tuple[str, int] | tuple[str, int, dict[str, str]]:
    """Show the way to the provider, for who just proved that the account is theirs."""
    known, reader = find_known(name), auth.user()
    try:
        problem = _problem(reader)
    except TriedTooOften as error:
        return _page(known, _tried_too_often()), error.status, {"Retry-After": str(error.retry_after_s)}
    except GraderError as error:
        return _page(known, render_error(error)), error.status
    if problem:
        return _page(known, problem), 403
    way = known.client().begin(
        known.address("sign_on.answer"),
        prompt="login",  # or who signed in at the provider before, at this computer, would be linked
        link=mark_of(reader),
    )
    return _page(known, way=way)


@pages.post("/<int(max=2147483647):identity_id>/unlink")
def unlink(identity_id: int) -> Response:
    """Unlink one of one's own sign-ins."""
    actor = auth.actor()
    try:
        with services().store.write() as store:
            single_sign_on.unlink(store, actor.user_id, identity_id, local_accounts=sign_in.passwords_on())
    except GraderError as error:
        flash(render_error(error), "danger")
    else:
        flash(_("Unlinked. Sessions that began with it have ended."))
    return redirect(url_for("profile.show"), 303)


def _tried_too_often() -> str:
    return _("Too many wrong attempts. Wait a moment, then try again.")


def _problem(reader: auth.SignedIn) -> str:
    """Why nothing is linked: a wrong password or code, or, of an account without a password, an old session.

    A sign-in that is linked is never asked for the second factor, so the factor is asked for here. Raises
    Conflict, WrongCode, TriedTooOften.
    """
    with services().store.read() as store:
        single_sign_on.require_linkable(store, reader.actor.user_id)
        if not users.has_password(store, reader.actor.user_id):
            if sessions.is_new(store, reader.session_id, NEW):
                return ""
            return _(
                "For this, your sign-in must be recent. Sign out, sign in again, and link within 10 minutes."
            )
        name = users.sign_in_name(store, reader.actor.user_id)
        asks_code = second_factor.has_second_factor(store, reader.actor.user_id)
    given = request.form.get("old", "")[:1000]
    if not given:
        return _("Enter your current password.")
    caller = sign_in.caller_of(reader)
    found = credentials.verify_password(services().store, name, given, caller, "password.check")
    if found != reader.actor.user_id:
        return _("The current password is wrong. Nothing was linked.")
    if asks_code:
        _check_code(reader.actor.user_id, caller)
    return ""


def _check_code(user_id: int, caller: Caller) -> None:
    code, key = request.form.get("one_time_code", "")[:100], services().secret_key
    if second_factor.verify_code(services().store, user_id, code, caller, key, known=True) is None:
        raise WrongCode


def _page(known: Known, problem: str = "", way: str = "") -> str:
    with services().store.read() as store:
        password = users.has_password(store, auth.actor().user_id)
        asks_code = password and second_factor.has_second_factor(store, auth.actor().user_id)
    return render_template(
        "accounts/sign_on_link.html", known=known, problem=problem, way=way, password=password, code=asks_code
    )
