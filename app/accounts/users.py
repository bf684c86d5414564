"""Accounts of people, for administrators: list, change, disable, export, erase."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from typing import IO

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask import Response as FlaskResponse
from sqlalchemy.exc import SQLAlchemyError
from werkzeug.wrappers import Response

from app.accounts import sign_in
from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import Conflict, Forbidden, GraderError
from grading.domain.permissions import Actor
from grading.store import Store
from grading.store.accounts import single_sign_on
from grading.store.courses import user_admin
from grading.store.privacy import erasure, export
from grading.store.privacy.erasure import StudentIdentity, find_identity, find_student

pages = Blueprint("users", __name__)
PERSON = "/users/<int(max=2147483647):user_id>"
log = logging.getLogger(__name__)
IN_MEMORY = 8 * 1024 * 1024
PIECE = 256 * 1024


@pages.get("/users")
def listing() -> str:
    """Everybody; a search and a kind."""
    return _listing()


@pages.post("/users")
def create() -> str | tuple[str, int] | Response:
    """Make an account and show the link by which its owner comes in, if passwords are on."""
    actor = _administrator()
    fields = {name: request.form.get(name, "") for name in ("sign_in_name", "name", "email")}
    try:
        with services().store.write() as session:
            user_id = user_admin.create_account(
                session, **fields, administrator="administrator" in request.form, actor=actor
            )
            back = url_for("users.person", user_id=user_id)
            if sign_in.passwords_on():
                return auth.show_password_link(session, user_id, actor, back)
    except GraderError as error:
        return _listing(render_error(error)), error.status
    flash(_("Account created. Its owner signs in through your school."))
    return redirect(back, 303)


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
            before = user_admin.load_account(session, user_id).person
            user_admin.rename_user(session, user_id, name, email, actor)
    except GraderError as error:
        if error.status != 400:
            raise
        return _person(user_id, render_error(error)), error.status
    undo = {"name": before.name, "email": before.email}
    flash_undo(_("Saved."), "users.change", undo, user_id=user_id)
    return redirect(url_for("users.person", user_id=user_id), 303)


@pages.post(f"{PERSON}/administrator")
def administrator(user_id: int) -> Response:
    """Make somebody an administrator, or no longer."""
    actor, value = _administrator(), request.form.get("value") == "1"
    with services().store.write() as session:
        user_admin.set_flag(session, user_id, "administrator", value, actor)
    message = _("Administrator role granted.") if value else _("Administrator role removed.")
    flash_undo(message, "users.administrator", {"value": 0 if value else 1}, user_id=user_id)
    return redirect(url_for("users.person", user_id=user_id), 303)


@pages.post(f"{PERSON}/disabled")
def disabled(user_id: int) -> Response:
    """Keep somebody out, or let them in again."""
    actor, value = _administrator(), request.form.get("value") == "1"
    with services().store.write() as session:
        user_admin.set_flag(session, user_id, "disabled", value, actor)
    message = _("Account disabled. Its sessions have ended.") if value else _("Account enabled.")
    flash_undo(message, "users.disabled", {"value": 0 if value else 1}, user_id=user_id)
    return redirect(url_for("users.person", user_id=user_id), 303)


@pages.post(f"{PERSON}/link")
def link(user_id: int) -> str:
    """A link to set a password, shown once."""
    actor = _administrator()
    with services().store.write() as session:
        if user_admin.load_account(session, user_id).person.disabled:
            raise Forbidden(_("This account is disabled. Enable it first."))
        back = url_for("users.person", user_id=user_id)
        return auth.show_password_link(session, user_id, actor, back)


@pages.post(f"{PERSON}/sign-ons/<int(max=2147483647):identity_id>/unlink")
def unlink(user_id: int, identity_id: int) -> Response:
    """Unlink somebody's sign-in at a provider, such as one that is not theirs; one's own needs a proof."""
    actor = _administrator()
    if user_id == actor.user_id:
        return redirect(url_for("sign_on_links.unlink_form", identity_id=identity_id), 303)
    try:
        with services().store.write() as session:
            user_admin.load_account(session, user_id)
            single_sign_on.unlink(session, user_id, identity_id, actor.name)
    except Conflict as error:
        flash(render_error(error), "danger")
    else:
        flash(_("Unlinked. Sessions that began with it have ended."))
    return redirect(url_for("users.person", user_id=user_id), 303)


def _administrator() -> Actor:
    actor = auth.actor()
    auth.require(actor, "administer")
    return actor


def _listing(problem: str = "") -> str:
    _administrator()
    search, kind = request.args.get("q", "")[:200], request.args.get("kind", "")
    page = request.args.get("page", "")
    number = int(page) if page.isdecimal() and len(page) < 7 else 1
    with services().store.read_autocommit() as session:
        people = user_admin.list_users(session, search, kind, number)
    return render_template(
        "accounts/users.html", people=people, search=search, kind=kind, problem=problem, form=request.form
    )


def _person(user_id: int, problem: str = "") -> str:
    actor = _administrator()
    with services().store.read_autocommit() as session:
        account = user_admin.load_account(session, user_id)
        linked = single_sign_on.list_sign_ons(session, user_id)
    return render_template(
        "accounts/user.html", account=account, own=user_id == actor.user_id, problem=problem, linked=linked
    )


@pages.get(f"{PERSON}/erase")
def erase_form(user_id: int) -> str:
    """What there is of a student, and how to erase it."""
    _administrator()
    return _erase_page(user_id)


@pages.post(f"{PERSON}/erase")
def erase_user(user_id: int) -> str | tuple[str, int] | Response:
    """Erase everything of a student whose id was typed."""
    actor = _administrator()
    store = services().store
    with store.read() as session:
        student = find_identity(session, f"user:{user_id}")
    if request.form.get("typed", "").strip() not in _ids(student):
        return _erase_page(
            user_id, _("Nothing was deleted: the sign-in name does not match this student.")
        ), 422
    with store.write() as session:
        erasure.erase_student(session, student, actor.name)
    flash(_("All data of %(who)s was deleted. Earlier backups still contain it.", who=_confirmation(student)))
    response = redirect(url_for("home.home"), 303)
    # after the answer: rewriting the file takes as long as it is large
    response.call_on_close(lambda: _compact(store))
    return response


@pages.get(f"{PERSON}/export.zip")
def export_user(user_id: int) -> FlaskResponse:
    """All that is held on a student."""
    actor = _administrator()
    store = services().store
    with store.read() as session:
        student = find_student(session, f"user:{user_id}")
    to = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed when it was sent
    export.write_export(store, student, to, actor.name)
    response = FlaskResponse(_pieces(to), content_type="application/zip")
    response.headers.set("Content-Disposition", "attachment", filename=f"user-{user_id}.zip")
    response.call_on_close(to.close)
    return response


def _ids(student: StudentIdentity) -> tuple[str, ...]:
    """What may be typed: an id, never only a name."""
    return (student.name, *student.subjects)


def _counted(name: str, count: int) -> str:
    """So many of what is theirs, in words."""
    words = {
        "submissions": ngettext("%(count)s submission", "%(count)s submissions", count),
        "rounds": ngettext("%(count)s grading", "%(count)s gradings", count),
        "runs": ngettext("%(count)s run on machines", "%(count)s runs on machines", count),
        "tokens": ngettext("%(count)s token", "%(count)s tokens", count),
        "class zips": ngettext(
            "%(count)s class ZIP file that may contain their work",
            "%(count)s class ZIP files that may contain their work",
            count,
        ),
    }
    return words.get(name, f"{count} {name}")


def _confirmation(student: StudentIdentity) -> str:
    """What the form asks for: a name to sign in with, which people know better than a platform's number."""
    return next(iter(student.local or student.subjects), student.name)


def _erase_page(user_id: int, problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        student, counts = erasure.preview_erasure(session, f"user:{user_id}")
    return render_template(
        "accounts/erase.html",
        user_id=user_id,
        student=student,
        asked=_confirmation(student),
        count_text=_counted,
        counts=counts,
        problem=problem,
    )


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while piece := file.read(PIECE):
            yield piece


def _compact(store: Store) -> None:
    try:
        erasure.compact_database(store)
    except (GraderError, SQLAlchemyError) as error:
        log.warning("a student was erased, but VACUUM of the database failed: %s", error)
