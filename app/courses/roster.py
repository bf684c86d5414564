"""The people of a course: list, import of a table, roles, links."""

from __future__ import annotations

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from app.web import auth, parsing
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error, render_message
from app.web.rate_limits import UPLOADS, limited, per_person
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import CannotUndo, Conflict, GraderError
from grading.domain.permissions import Actor, Subject, may
from grading.store.accounts import users
from grading.store.courses import courses, invitations, roster
from grading.store.courses.roster import Plan
from grading.store.database import now
from grading.tabular import roster_csv
from grading.tabular.roster_csv import Roster

pages = Blueprint("roster", __name__, url_prefix="/courses/<int(max=2147483647):course_id>/people")
PERSON = "/<int(max=2147483647):user_id>"


@pages.get("")
def listing(course_id: int) -> str:
    """Everybody in the course; a search and one role."""
    return _listing(course_id)


def _listing(course_id: int, problem: str = "") -> str:
    actor = auth.in_course("roster.see", course_id)
    search, role = request.args.get("q", "")[:200], request.args.get("role", "")
    page = request.args.get("page", "")
    number = int(page) if page.isdecimal() and len(page) < 7 else 1
    with services().store.read_autocommit() as session:
        course = courses.load_course_title(session, course_id)
        people = roster.list_members(
            session, course_id, search, role if role in roster_csv.ROLES else "", number
        )
        changes = may(actor, "roster.change", Subject(course_id))
        uninvited = invitations.count_uninvited(session, course_id) if changes else 0
    return render_template(
        "courses/roster.html", course=course, people=people, search=search, role=role, problem=problem,
        uninvited=uninvited, changes=changes, form=request.form,
    )  # fmt: skip


@pages.post("/add")
def add(course_id: int) -> tuple[str, int] | BaseResponse:
    """Add one person; what is wrong is said above the list."""
    actor = auth.in_course("roster.change", course_id)
    table = roster_csv.single_person(
        *(request.form.get(name, "") for name in ("id", "name", "email", "role"))
    )
    with services().store.write() as session:
        done = roster.apply_import(session, course_id, table, actor)
        joined = users.find_user(session, "local", table.rows[0].id) if done.of("new", "add") else None
    if done.problems:
        return _listing(course_id, render_message(done.problems[0].said)), 422
    if joined is None:
        flash(_summary(done))
    else:
        flash_undo(_summary(done), "roster.remove", course_id=course_id, user_id=joined.id)
    return redirect(url_for("roster.listing", course_id=course_id, q=table.rows[0].id), 303)


@pages.get("/import")
def import_form(course_id: int) -> str:
    """The form for a table."""
    auth.in_course("roster.change", course_id)
    return _import_page(course_id)


@pages.post("/import")
@limited(UPLOADS, per_person)
def preview(course_id: int) -> str | tuple[str, int]:
    """What the table would do; nothing is changed yet."""
    actor = auth.in_course("roster.change", course_id)
    try:
        text = _uploaded_table()
        table = roster_csv.parse_roster(text)
    except GraderError as error:
        return _import_page(course_id, render_error(error)), error.status
    return _preview_page(course_id, text, table, actor)


@pages.post("/import/confirm")
@limited(UPLOADS, per_person)
def confirm(course_id: int) -> tuple[str, int] | BaseResponse:
    """Do what was shown; if that is no longer the same, show it again."""
    actor = auth.in_course("roster.change", course_id)
    text = request.form.get("table", "")
    try:
        table = roster_csv.parse_roster(text)
    except GraderError as error:
        return _import_page(course_id, render_error(error)), error.status
    try:
        with services().store.write() as session:
            done = roster.apply_import(session, course_id, table, actor, request.form.get("digest", ""))
    except Conflict as error:
        return _preview_page(course_id, text, table, actor, render_error(error)), error.status
    flash(_summary(done))
    return redirect(url_for("roster.listing", course_id=course_id), 303)


@pages.get("/invite")
def invite_form(course_id: int) -> str:
    """Who has no password, to choose whom to invite."""
    actor = auth.in_course("roster.change", course_id)
    with services().store.read_autocommit() as session:
        course = courses.load_course_title(session, course_id)
        uninvited = invitations.list_uninvited(session, actor, course_id)
    return render_template("courses/invite.html", course=course, uninvited=uninvited)


@pages.post("/invite")
def invite(course_id: int) -> Response | BaseResponse:
    """A table of links for the chosen people, sent once; links they have already stay valid."""
    actor = auth.in_course("roster.change", course_id)
    user_ids = [int(one) for one in request.form.getlist("user") if one.isdecimal() and len(one) < 10]
    with services().store.write() as session:
        wanted = invitations.list_invitable(session, actor, course_id, user_ids)
        auth.require_passwords(session, wanted)
        made = invitations.create_links(session, wanted, actor.name, actor.user_id, course_id, replace=False)
        rows = roster.load_named(session, wanted)
        course = courses.load_course(session, course_id)
    if not made:
        flash(
            _(
                "You cannot create links for any of the selected people. An administrator creates "
                "links for staff and for people who are also in courses that you do not teach."
            )
        )
        return redirect(url_for("roster.listing", course_id=course_id), 303)
    cells = [[one.sign_in_name, one.name, one.email, auth.password_link(made[one.user_id])] for one in rows]
    body = roster_csv.to_csv(("id", "name", "email", "link"), cells)
    name = f"{course.slug}-links.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(body, mimetype="text/csv", headers=headers)


@pages.get(PERSON)
def person(course_id: int, user_id: int) -> str:
    """Somebody in the course, and what may be done about them."""
    actor = auth.in_course("roster.see", course_id)
    with services().store.read_autocommit() as session:
        found = roster.load_membership(session, course_id, user_id)
        course = courses.load_course(session, course_id)
        one = roster.load_person(session, user_id, found.role)
        linkable = user_id in invitations.list_invitable(session, actor, course_id, [user_id])
    changes = may(actor, "roster.change", Subject(course_id))
    own = user_id == actor.user_id and not actor.administrator
    return render_template(
        "courses/person.html", course=course, person=one, linkable=linkable, changes=changes, own=own,
        roles=roster_csv.ROLES,
    )  # fmt: skip


@pages.post(f"{PERSON}/role")
def change_role(course_id: int, user_id: int) -> BaseResponse:
    """Give somebody another role."""
    actor = auth.in_course("roster.change", course_id)
    with services().store.write() as session:
        before = roster.load_membership(session, course_id, user_id).role
        roster.set_role(session, course_id, user_id, request.form.get("role", ""), actor)
    flash_undo(
        _("Role changed."), "roster.change_role", {"role": before}, course_id=course_id, user_id=user_id
    )
    return redirect(url_for("roster.person", course_id=course_id, user_id=user_id), 303)


@pages.post(f"{PERSON}/remove")
def remove(course_id: int, user_id: int) -> BaseResponse:
    """Take somebody out of the course."""
    actor = auth.in_course("roster.change", course_id)
    with services().store.write() as session:
        roster.remove_member(session, course_id, user_id, actor)
        undo = {"at": now(session).isoformat()}
    message = _("Removed from the course. Their submissions are kept.")
    flash_undo(message, "roster.restore", undo, course_id=course_id, user_id=user_id)
    return redirect(url_for("roster.listing", course_id=course_id), 303)


@pages.post(f"{PERSON}/restore")
def restore(course_id: int, user_id: int) -> BaseResponse:
    """Put somebody back who was taken out at a moment."""
    actor = auth.in_course("roster.change", course_id)
    try:
        with services().store.write() as session:
            roster.restore_member(session, course_id, user_id, parsing.form_moment("at"), actor)
        flash(_("Undone. The person is in the course again."))
    except CannotUndo as error:
        with services().store.read_autocommit() as session:
            roster.load_membership(session, course_id, user_id)  # who is not in the course is not found
        flash(render_error(error), "warning")
    return redirect(url_for("roster.listing", course_id=course_id), 303)


@pages.post(f"{PERSON}/link")
def link(course_id: int, user_id: int) -> str:
    """A link for one person, shown once."""
    actor = auth.in_course("roster.change", course_id)
    with services().store.write() as session:
        roster.load_membership(session, course_id, user_id)
        invitations.require_invitable(session, actor, course_id, [user_id])
        back = url_for("roster.person", course_id=course_id, user_id=user_id)
        return auth.show_password_link(session, user_id, actor, back, course_id)


def _uploaded_table() -> str:
    """The table that was uploaded or pasted."""
    file = request.files.get("file")
    data = file.stream.read(roster_csv.MAX_BYTES + 1) if file is not None else b""
    text = request.form.get("table", "")
    if not data and not text.strip():
        raise roster_csv.RosterUnreadable(_("Choose a file or paste a table first."))
    return roster_csv.decode_text(data or text.encode())


def _import_page(course_id: int, problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        course = courses.load_course(session, course_id)
    return render_template(
        "courses/roster_import.html", course=course, problem=problem, table=request.form.get("table", "")
    )


def _preview_page(course_id: int, text: str, table: Roster, actor: Actor, problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        course = courses.load_course(session, course_id)
        plan = roster.plan_import(session, course_id, table, actor)
    return render_template(
        "courses/roster_import_preview.html", course=course, plan=plan, table=text, problem=problem
    )


def _summary(plan: Plan) -> str:
    added, changed = len(plan.of("new", "add")), len(plan.of("change"))
    if not added and not changed:
        return _("No changes: everyone is already in the course.")
    first = ngettext("%(count)s person added", "%(count)s people added", added)
    message = first + ", " + ngettext("%(count)s changed.", "%(count)s changed.", changed)
    left = len(plan.problems)
    out = ngettext("%(count)s line was skipped.", "%(count)s lines were skipped.", left) if left else ""
    return f"{message} {out}".rstrip()
