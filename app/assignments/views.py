"""The page of an assignment, its files for students, and its settings."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flask import Blueprint, Response, current_app, flash, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from app.assignments.editor import forms
from app.web import assignment_pages, auth, dates
from app.web.assignment_pages import ANY, about, load_visible
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.services import services
from grading.assignments.editor.steps import Step
from grading.domain.errors import AssignmentError
from grading.store.assignments import settings as assignment_settings
from grading.store.grades import extensions
from grading.store.views import assignment as assignment_view

pages = Blueprint("assignments", __name__)


@pages.get("/assignments/<int(max=2147483647):assignment_id>")
def assignment(assignment_id: int) -> str:
    """All of it."""
    return render_template("assignments/assignment.html", **about(auth.actor(), assignment_id))


@pages.get("/assignments/<int(max=2147483647):assignment_id>/files/<path:path>")
def file(assignment_id: int, path: str) -> Response:
    """One of the files that students may have."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        data = assignment_view.load_offered_file(session, load_visible(session, actor, assignment_id), path)
    response = Response(data, mimetype="application/octet-stream")
    response.headers.set("Content-Disposition", "attachment", filename=path.rpartition("/")[2])
    return response


@pages.app_template_global()
def endpoints() -> Collection[str]:
    """What pages there are, for templates that link to those of others."""
    return current_app.view_functions.keys()


@pages.get(f"/assignments/{ANY}/settings")
def settings(assignment_id: int) -> str:
    """Dates, late rule, release, groups; they hold at once, whichever version counts."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        top = assignment_pages.head(session, found)
        fields = forms.settings_form(assignment_settings.settings_of(found))
    return _settings_page(top, fields)


@pages.post(f"/assignments/{ANY}/settings")
def save_settings(assignment_id: int) -> tuple[str, int] | BaseResponse:
    """Keep them, and work out anew the points of what is late otherwise now."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            found = assignment_pages.changeable(session, actor, assignment_id)
            settings = forms.read_settings(assignment_settings.settings_of(found))
            moved = extensions.apply_settings(session, found, settings, actor)
    except (AssignmentError, dates.BadDate) as error:
        with services().store.read_autocommit() as session:
            top = assignment_pages.head(session, assignment_pages.changeable(session, actor, assignment_id))
        return _settings_page(top, request.form.to_dict(), render_error(error)), 422
    flash(_("Settings saved."))
    if moved:
        flash(_("The points of %(count)s grades changed because of the late policy.", count=moved))
    return forms.after_saving(Step.DETAILS, assignment_id)


def _settings_page(top: assignment_pages.Head, fields: dict[str, Any], problem: str = "") -> str:
    return render_template(
        "assignments/editor/settings.html",
        head=top,
        fields=fields,
        zone_options=forms.zone_options,
        problem=problem,
        **forms.settings_choices(),
    )
