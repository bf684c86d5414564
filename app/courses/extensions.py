"""Later due dates for single students."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from flask import Blueprint, flash, redirect, render_template, request, url_for
from markupsafe import Markup, escape
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.web import assignment_pages, auth, dates, markdown, parsing
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import CannotUndo
from grading.domain.permissions import Actor, Subject
from grading.store import tables
from grading.store.database import now
from grading.store.grades import extensions
from grading.store.grades.extensions import NotExtended, Student

pages = Blueprint("extensions", __name__)
GIVEN = 25
"""Extensions that are shown at a time."""


@pages.get("/assignments/<int(max=2147483647):assignment_id>/extensions")
def listing(assignment_id: int) -> str:
    """Every student with their own date, if they have one, and the form."""
    return _page(auth.actor(), assignment_id)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/extensions")
def give(assignment_id: int) -> tuple[str, int] | Response:
    """Give the chosen students until the date that was typed, in the zone that was named."""
    actor, form = auth.actor(), request.form
    zone = form.get("zone", "UTC")
    try:
        with services().store.write() as session:
            found = _assignment(session, actor, assignment_id)
            until = dates.typed(form.get("until", ""), zone)
            count = extensions.grant_extension(
                session, found, _chosen(), until, form.get("reason", ""), actor
            )
            moment = now(session)
    except (NotExtended, dates.BadDate) as error:
        return _page(actor, assignment_id, render_error(error)), error.status
    message = ngettext("%(count)s student has", "%(count)s students have", count)
    when = dates.spoken(until, zone)
    said = _("%(who)s until %(when)s. Existing grades were recalculated.", who=message, when=when)
    flash_undo(said, "extensions.undo", {"at": moment.isoformat()}, assignment_id=assignment_id)
    return redirect(url_for("extensions.listing", assignment_id=assignment_id), 303)


@pages.post(
    "/assignments/<int(max=2147483647):assignment_id>/extensions/<int(max=2147483647):student_id>/revoke"
)
def revoke(assignment_id: int, student_id: int) -> Response:
    """Take an extension back."""
    actor = auth.actor()
    with services().store.write() as session:
        found = _assignment(session, actor, assignment_id)
        done = extensions.revoke_extension(session, found, student_id, actor)
        moment = now(session)
    if done:
        message = _("Extension removed. Existing grades were recalculated.")
        flash_undo(message, "extensions.undo", {"at": moment.isoformat()}, assignment_id=assignment_id)
    else:
        flash(_("This extension no longer exists."))
    return redirect(url_for("extensions.listing", assignment_id=assignment_id), 303)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/extensions/undo")
def undo(assignment_id: int) -> Response:
    """Undo what was given or revoked at a moment."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            found = _assignment(session, actor, assignment_id)
            extensions.undo_extensions(session, found, parsing.form_moment("at"), actor)
        flash(_("Undone. Existing grades were recalculated."))
    except CannotUndo as error:
        flash(render_error(error), "warning")
    return redirect(url_for("extensions.listing", assignment_id=assignment_id), 303)


def _page(actor: Actor, assignment_id: int, problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        found = _assignment(session, actor, assignment_id)
        students = extensions.list_students(session, found)
        pages_ = max(1, -(-sum(one.extended for one in students) // GIVEN))
        page = min(parsing.whole_number(request.args.get("page", ""), 6) or 1, pages_)
        items = extensions.list_extensions(session, found, page, GIVEN)
        course = found.course
    return render_template(
        "courses/extensions.html",
        assignment=found,
        course=course,
        students=students,
        given={"items": items, "page": page, "pages": pages_},
        picks=_picks(students, frozenset(_chosen())),
        zone_options=_zone_options(),
        problem=problem,
        form=request.form,
    )


def _picks(students: Sequence[Student], chosen: frozenset[int]) -> Markup:
    """A box for each student to be ticked, by name; of hundreds, so they are written here."""
    has_one = Markup(' <span class="small text-body-secondary">({})</span>').format(_("has an extension"))
    made = []
    for number, name, extended in students:
        ticked, more = " checked" if number in chosen else "", has_one if extended else ""
        made.append(
            f'<div class="form-check"><input class="form-check-input" type="checkbox" id="s{number}" '
            f'name="student" value="{number}"{ticked}><label class="form-check-label" '
            f'for="s{number}">{escape(markdown.visible(name))}{more}</label></div>'
        )
    return Markup("".join(made))  # noqa: S704 - numbers, and names that are escaped


@cache
def _zone_options() -> Markup:
    return Markup("").join(Markup('<option value="{}">').format(zone) for zone in dates.zones())


def _assignment(session: Session, actor: Actor, assignment_id: int) -> tables.Assignment:
    found = assignment_pages.load_visible(session, actor, assignment_id)
    auth.require(actor, "extension.give", Subject(found.course_id))
    return found


def _chosen() -> list[int]:
    chosen = request.form.getlist("student")
    return [int(one) for one in chosen if one.isdecimal() and one.isascii() and len(one) < 10]
