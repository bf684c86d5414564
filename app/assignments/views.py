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
from app.web.i18n import render_error, render_message
from app.web.services import services
from app.web.toasts import flash_undo
from grading.assignments.editor.steps import Step
from grading.checks.kind import CheckKind
from grading.domain.check import Check
from grading.domain.errors import AssignmentError
from grading.domain.permissions import Subject, may
from grading.domain.rubric import Rubric
from grading.store.assignments import settings as assignment_settings
from grading.store.assignments import versions
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


@pages.get("/assignments/<int(max=2147483647):assignment_id>/rubric/view")
def rubric(assignment_id: int) -> str:
    """The rubric in use with its levels and checks, for all staff to read."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = load_visible(session, actor, assignment_id)
        auth.require(actor, "rubric.see", Subject(found.course_id))
        version, course = versions.find_published(session, found), found.course
    read = Rubric.model_validate(version.rubric) if version is not None else None
    criteria = read.criteria if read is not None else ()
    checks = {one.id: [_check_words(check) for check in one.checks] for one in criteria}
    return render_template(
        "assignments/rubric.html", assignment=found, course=course, version=version, rubric=read,
        checks=checks, changes=may(actor, "assignment.change", Subject(found.course_id)),
    )  # fmt: skip


def _check_words(check: Check) -> str:
    assert isinstance(check, CheckKind)  # as all kinds are
    return check.label or render_message(check.default_label())


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
            before = assignment_settings.settings_of(found)
            settings = forms.read_settings(before)
            moved = extensions.apply_settings(session, found, settings, actor)
    except (AssignmentError, dates.BadDate) as error:
        with services().store.read_autocommit() as session:
            top = assignment_pages.head(session, assignment_pages.changeable(session, actor, assignment_id))
        return _settings_page(top, request.form.to_dict(), render_error(error)), 422
    undo = forms.settings_form(before, seconds=True)
    flash_undo(_("Settings saved."), "assignments.save_settings", undo, assignment_id=assignment_id)
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
