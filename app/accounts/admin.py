"""Everybody there is, for administrators."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.web import auth
from app.web import password_links as shown_links
from app.web.i18n import gettext as _
from app.web.services import services
from grading.domain.errors import Forbidden, GraderError
from grading.domain.permissions import Actor
from grading.store.courses import user_admin

pages = Blueprint("users", __name__, url_prefix="/users")
PERSON = "/<int(max=2147483647):user_id>"


@pages.get("")
def listing() -> str:
    """Everybody; a search and a kind."""
    return _listing()


@pages.post("")
def create() -> str | tuple[str, int]:
    """Make an account and show the link by which its owner comes in."""
    actor = _administrator()
    said = {name: request.form.get(name, "") for name in ("sign_in_name", "name", "email")}
    try:
        with services().store.write() as session:
            user_id = user_admin.create(
                session, **said, administrator="administrator" in request.form, actor=actor
            )
            back = url_for("users.person", user_id=user_id)
            return shown_links.page(session, user_id, actor, back)
    except GraderError as error:
        return _listing(error.message), error.status


@pages.get(PERSON)
def person(user_id: int) -> str:
    """Somebody, with their courses."""
    return _person(user_id)


@pages.post(PERSON)
def change(user_id: int) -> tuple[str, int] | Response:
    """Another name or address."""
    actor = _administrator()
    try:
        with services().store.write() as session:
            name, email = request.form.get("name", ""), request.form.get("email", "")
            user_admin.rename(session, user_id, name, email, actor)
    except GraderError as error:
        if error.status != 400:
            raise
        return _person(user_id, error.message), error.status
    flash(_("Saved."))
    return redirect(url_for("users.person", user_id=user_id), 303)


@pages.post(f"{PERSON}/administrator")
def administrator(user_id: int) -> Response:
    """Make somebody an administrator, or no longer."""
    actor, value = _administrator(), request.form.get("value") == "1"
    with services().store.write() as session:
        user_admin.put_flag(session, user_id, "administrator", value, actor)
    flash(_("They are an administrator now.") if value else _("They are no administrator any more."))
    return redirect(url_for("users.person", user_id=user_id), 303)


@pages.post(f"{PERSON}/disabled")
def disabled(user_id: int) -> Response:
    """Keep somebody out, or let them in again."""
    actor, value = _administrator(), request.form.get("value") == "1"
    with services().store.write() as session:
        user_admin.put_flag(session, user_id, "disabled", value, actor)
    told = (
        _("The account is disabled; its sessions have ended.")
        if value
        else _("The account can be used again.")
    )
    flash(told)
    return redirect(url_for("users.person", user_id=user_id), 303)


@pages.post(f"{PERSON}/link")
def link(user_id: int) -> str:
    """A link to set a password, shown once."""
    actor = _administrator()
    with services().store.write() as session:
        if user_admin.find(session, user_id).person.disabled:
            raise Forbidden(_("The account is disabled; let it be used again first."))
        back = url_for("users.person", user_id=user_id)
        return shown_links.page(session, user_id, actor, back)


def _administrator() -> Actor:
    actor = auth.actor()
    auth.require(actor, "administer")
    return actor


def _listing(problem: str = "") -> str:
    _administrator()
    search, kind = request.args.get("q", "")[:200], request.args.get("kind", "")
    page = request.args.get("page", "")
    number = int(page) if page.isdecimal() and len(page) < 7 else 1
    with services().store.look() as session:
        people = user_admin.listing(session, search, kind, number)
    return render_template(
        "accounts/users.html", people=people, search=search, kind=kind, problem=problem, form=request.form
    )


def _person(user_id: int, problem: str = "") -> str:
    actor = _administrator()
    with services().store.look() as session:
        account = user_admin.find(session, user_id)
    return render_template(
        "accounts/user.html", account=account, own=user_id == actor.user_id, problem=problem
    )
