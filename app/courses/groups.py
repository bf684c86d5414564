"""Groups: students find together, staff put them together."""

from __future__ import annotations

import csv
import io
from datetime import datetime

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response as BaseResponse

from app.web import assignment_pages, auth, parsing
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import CannotUndo
from grading.domain.permissions import Actor, Subject
from grading.store import tables
from grading.store.courses import groups
from grading.store.courses.groups import Group
from grading.store.database import now
from grading.tabular.roster_csv import GroupProblem, read_groups

pages = Blueprint("groups", __name__)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/group")
def own(assignment_id: int) -> BaseResponse:
    """A student invites somebody, accepts an invitation, or leaves."""
    actor, wish = auth.actor(), request.form.get("wish", "")
    try:
        with services().store.write() as session:
            found = assignment_pages.load_visible(session, actor, assignment_id)
            auth.require(actor, "submit", Subject(found.course_id, actor.user_id))
            flash(_do(session, found, actor, wish))
    except GroupProblem as error:
        flash(render_error(error))
    return redirect(url_for("assignments.assignment", assignment_id=assignment_id, _anchor="group"), 303)


def _do(session: Session, found: tables.Assignment, actor: Actor, wish: str) -> str:
    if found.group_size < 2 or actor.roles.get(found.course_id) != "student":
        raise GroupProblem(_("This assignment has no groups, or you are not a student of the course."))
    if wish == "invite":
        invited = groups.invite(session, found, actor.user_id, request.form.get("name", "")[:200])
        return _("%(name)s was invited and must accept.", name=invited.name)
    if wish == "confirm":
        groups.confirm_invitation(session, found, actor.user_id)
        return _("You joined the group. A submission by one member counts for everyone.")
    if wish == "leave":
        groups.leave_group(session, found, actor.user_id)
        return _("You left the group.")
    raise GroupProblem(_("Choose an action for the group."))


@pages.get("/assignments/<int(max=2147483647):assignment_id>/groups")
def listing(assignment_id: int) -> str:
    """All students with their groups, to be changed by staff."""
    return _page(auth.actor(), assignment_id)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/groups")
def arrange(assignment_id: int) -> tuple[str, int] | BaseResponse:
    """Put every student into the group that was typed beside their name."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            found = _shared(session, actor, assignment_id)
            if request.form.get("state") != groups.groups_digest(session, assignment_id):
                raise GroupProblem(_("Someone changed the groups in the meantime. Check them and try again."))
            made = groups.arrange_groups(session, found, _typed(), actor.name)
            moment = now(session)
    except GroupProblem as error:
        return _page(actor, assignment_id, render_error(error)), error.status
    return _done(assignment_id, made, moment)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/groups/fill")
def fill(assignment_id: int) -> BaseResponse:
    """Put everybody who is in no group into one by chance."""
    actor = auth.actor()
    with services().store.write() as session:
        made = groups.arrange_at_random(session, _shared(session, actor, assignment_id), actor.name)
        moment = now(session)
    return _done(assignment_id, made, moment)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/groups/file")
def upload(assignment_id: int) -> tuple[str, int] | BaseResponse:
    """Take groups from a CSV file; nothing is changed when a line of it is wrong."""
    actor, uploaded = auth.actor(), request.files.get("file")
    try:
        with services().store.write() as session:
            found = _shared(session, actor, assignment_id)
            students = groups.list_students(session, found.course_id)
            names = {one.sign_in_name: one.user_id for one in students if one.sign_in_name}
            wanted = read_groups(uploaded.read() if uploaded else b"", names)
            made = groups.arrange_groups(session, found, wanted, actor.name)
            moment = now(session)
    except GroupProblem as error:
        return _page(actor, assignment_id, render_error(error)), error.status
    return _done(assignment_id, made, moment)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/groups/undo")
def undo(assignment_id: int) -> BaseResponse:
    """Put everybody back where they were before a moment."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            found = _shared(session, actor, assignment_id)
            count = groups.undo_arrangement(session, found, parsing.form_moment("at"), actor.name)
        flash(ngettext("Undone for %(count)s student.", "Undone for %(count)s students.", count))
    except (CannotUndo, GroupProblem) as error:
        flash(render_error(error), "warning")
    return redirect(url_for("groups.listing", assignment_id=assignment_id), 303)


@pages.get("/assignments/<int(max=2147483647):assignment_id>/groups.csv")
def download(assignment_id: int) -> Response:
    """The groups as CSV, to be changed and sent back."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = _assignment(session, actor, assignment_id)
        rows, labels = _rows(session, found)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("group", "student", "name"))
    for one in rows:
        writer.writerow([neutral(part) for part in (labels.get(one.user_id, ""), one.sign_in_name, one.name)])
    response = Response(text.getvalue(), mimetype="text/csv")
    response.headers.set("Content-Disposition", "attachment", filename=f"groups-{found.slug}.csv")
    return response


def neutral(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _done(assignment_id: int, made: tuple[int, int], moment: datetime) -> BaseResponse:
    there, changed = made
    message = ngettext("%(count)s student was moved.", "%(count)s students were moved.", changed)
    message += " " + ngettext("%(count)s group saved.", "%(count)s groups saved.", there)
    if changed:
        flash_undo(message, "groups.undo", {"at": moment.isoformat()}, assignment_id=assignment_id)
    else:
        flash(message)
    return redirect(url_for("groups.listing", assignment_id=assignment_id), 303)


def _page(actor: Actor, assignment_id: int, problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        found = _assignment(session, actor, assignment_id)
        shared, course = found.group_size > 1, found.course
        rows, labels = _rows(session, found) if shared else ([], {})
        waiting = groups.list_unconfirmed(session, assignment_id) if shared else frozenset()
        state = groups.groups_digest(session, assignment_id) if shared else ""
    typed = _typed() if problem else {}
    return render_template(
        "courses/groups.html",
        assignment=found,
        course=course,
        rows=rows,
        labels={**labels, **typed},
        waiting=waiting,
        state=state,
        problem=problem,
    )


def _rows(session: Session, found: tables.Assignment) -> tuple[list[groups.Person], dict[int, str]]:
    listed: list[Group] = groups.list_groups(session, found.id)
    labels = {one.user_id: str(n) for n, group in enumerate(listed, start=1) for one in group.people}
    return groups.list_students(session, found.course_id), labels


def _typed() -> dict[int, str]:
    """Student -> what was typed beside their name."""
    typed = ((name.removeprefix("group-"), text.strip()[:100]) for name, text in request.form.items())
    return {int(name): text for name, text in typed if name.isdecimal() and name.isascii() and len(name) < 10}


def _assignment(session: Session, actor: Actor, assignment_id: int) -> tables.Assignment:
    found = assignment_pages.load_visible(session, actor, assignment_id)
    auth.require(actor, "group.manage", Subject(found.course_id))
    return found


def _shared(session: Session, actor: Actor, assignment_id: int) -> tables.Assignment:
    """An assignment that is done in groups. Raises GroupProblem."""
    found = _assignment(session, actor, assignment_id)
    groups.require_groups(found)
    return found
