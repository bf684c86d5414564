"""Linking sign-ins of providers with one's own account, and unlinking them."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, url_for
from werkzeug.wrappers import Response

from app.accounts import proof, sign_in
from app.accounts.single_sign_on import Known, begin_again, find_known
from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.rate_limits import limited, per_person
from app.web.services import services
from grading.domain.errors import GraderError
from grading.store.accounts import single_sign_on
from grading.store.accounts.sign_in_attempts import TriedTooOften
from grading.store.accounts.single_sign_on import LinkedSignOn

LINKS = "20 per minute"
"""For one person."""
ONE = "/<int(max=2147483647):identity_id>/unlink"
pages = Blueprint("sign_on_links", __name__, url_prefix="/account/sign-ons")
Page = str | tuple[str, int] | tuple[str, int, dict[str, str]]


@pages.get("/<name>")
def form(name: str) -> str:
    """Ask for a proof before a sign-in is linked."""
    user_id = auth.actor().user_id
    known = find_known(name)
    with services().store.read_autocommit() as store:
        single_sign_on.require_linkable(store, user_id)
    return _link_page(known)


@pages.post("/<name>")
@limited(LINKS, per_person)
def begin(name: str) -> Page:
    """Show the way to the provider, for who just proved that the account is theirs."""
    known, reader = find_known(name), auth.user()
    try:
        with services().store.read() as store:
            single_sign_on.require_linkable(store, reader.actor.user_id)
        problem = proof.problem(reader)
    except TriedTooOften as error:
        return _link_page(known, _tried_too_often()), error.status, _later(error)
    except GraderError as error:
        return _link_page(known, render_error(error)), error.status
    if problem:
        return _link_page(known, problem), 403
    # or who signed in at the provider before, at this computer, would be linked
    return _link_page(known, way=begin_again(known, "link", reader))


@pages.get(ONE)
def unlink_form(identity_id: int) -> str:
    """Ask for a proof before a sign-in is unlinked."""
    return _unlink_page(_own(identity_id))


@pages.post(ONE)
@limited(LINKS, per_person)
def unlink(identity_id: int) -> Page | Response:
    """Unlink one of one's own sign-ins."""
    reader, found = auth.user(), _own(identity_id)
    try:
        problem = proof.problem(reader)
        if problem:
            return _unlink_page(found, problem), 403
        with services().store.write() as store:
            user_id, local = reader.actor.user_id, sign_in.passwords_on()
            single_sign_on.unlink_own(store, user_id, identity_id, local_accounts=local)
    except TriedTooOften as error:
        return _unlink_page(found, _tried_too_often()), error.status, _later(error)
    except GraderError as error:
        return _unlink_page(found, render_error(error)), error.status
    flash(_("Unlinked. Sessions that began with it have ended."))
    return redirect(url_for("profile.show"), 303)


def _own(identity_id: int) -> LinkedSignOn:
    """Raises NotFound."""
    with services().store.read_autocommit() as store:
        return single_sign_on.find_sign_on(store, auth.actor().user_id, identity_id)


def _tried_too_often() -> str:
    return _("Too many wrong attempts. Wait a moment, then try again.")


def _later(error: TriedTooOften) -> dict[str, str]:
    return {"Retry-After": str(error.retry_after_s)}


def _link_page(known: Known, problem: str = "", way: str = "") -> str:
    asked = proof.asked(auth.user())
    return render_template("accounts/sign_on_link.html", known=known, problem=problem, way=way, proof=asked)


def _unlink_page(found: LinkedSignOn, problem: str = "") -> str:
    asked = proof.asked(auth.user())
    return render_template("accounts/sign_on_unlink.html", one=found, problem=problem, proof=asked)
