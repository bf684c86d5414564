"""The versions of an assignment: list, look, compare, restore, publish; and new assignments."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.assignments.editor import files as folders
from app.assignments.editor import forms
from app.web import assignment_pages, auth, authoring_steps, dates, markdown, parsing
from app.web import rubric_texts as words
from app.web.assignment_pages import ANY
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.assignments.editor.diff import differences
from grading.assignments.editor.folder import Content, Settings
from grading.assignments.editor.text_lists import slug
from grading.domain.errors import AssignmentError, CannotUndo, DocumentError
from grading.store.assignments import versions
from grading.store.assignments.versions import NothingChanged
from grading.store.courses import courses
from grading.store.database import now

pages = Blueprint("editor_versions", __name__)
COURSE = "/courses/<int(max=2147483647):course_id>/assignments"
NUMBER = "<int(max=2147483647):version_number>"


@pages.get(f"/assignments/{ANY}/versions")
def listing(assignment_id: int) -> str:
    """All versions, the newest first."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        top, rows = assignment_pages.head(session, found), versions.list_versions(session, found)
        tasked = not top.draft or bool(versions.load_newest(session, found).version.task.strip())
    return render_template("assignments/editor/versions.html", head=top, rows=rows, tasked=tasked)


@pages.get(f"/assignments/{ANY}/versions/{NUMBER}")
def version(assignment_id: int, version_number: int) -> str:
    """One version as students see it, and what it changed since another one."""
    number = version_number
    actor, other = auth.actor(), assignment_pages.whole("against")
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        top, rows = assignment_pages.head(session, found), versions.list_versions(session, found)
        new = versions.comparable(versions.version_by_number(session, assignment_id, number))
        line = next((one for one in rows if one.number == number), None)
        before = other or next((one.number for one in rows if one.number < number), None)
        old = (
            versions.comparable(versions.version_by_number(session, assignment_id, before))
            if before
            else None
        )
    changed = [(words.difference_words(one), one) for one in differences(old, new)] if old else []
    return render_template(
        "assignments/editor/version.html",
        head=top,
        number=number,
        line=line,
        rows=rows,
        before=before,
        changed=changed,
        side=new,
        task=markdown.markdown(new.task),
    )


@pages.post(f"/assignments/{ANY}/versions/{NUMBER}/restore")
def restore(assignment_id: int, version_number: int) -> Response:
    """A new draft that says what this version says."""
    number = version_number
    actor = auth.actor()
    with services().store.write() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        try:
            note = _("Version %(number)s restored", number=number)
            made = versions.restore_version(session, found, number, actor, note).number
            flash(_("Version %(old)s restored as draft %(new)s.", old=number, new=made))
        except NothingChanged:
            flash(_("No changes: identical to the latest version."))
    return redirect(url_for("editor_rubric.edit", assignment_id=assignment_id), 303)


@pages.post(f"/assignments/{ANY}/versions/{NUMBER}/publish")
def publish(assignment_id: int, version_number: int) -> Response:
    """Submissions are graded with it from now on; what is graded stays as it is."""
    number = version_number
    actor = auth.actor()
    with services().store.write() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        done = versions.publish_version(session, found, number, actor)
        made_visible = bool(request.form.get("show")) and not found.visible
        if made_visible:
            found.visible = True
        moment = now(session).isoformat()
    message = _("Version %(number)s is now in use. Existing grades do not change.", number=number)
    if made_visible:
        message += " " + _("The assignment is now visible to students.")
    if done:
        ids = {"assignment_id": assignment_id, "version_number": number}
        flash_undo(message, "editor_versions.undo", {"at": moment, "hide": made_visible}, **ids)
    else:
        flash(_("This version was published before. Restore it as a draft to use it again."))
    return redirect(url_for("editor_versions.listing", assignment_id=assignment_id), 303)


@pages.post(f"/assignments/{ANY}/versions/{NUMBER}/undo")
def undo(assignment_id: int, version_number: int) -> Response:
    """Make a version a draft again that was just published, as long as nothing was graded with it."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            found = assignment_pages.changeable(session, actor, assignment_id)
            versions.undo_publication(session, found, version_number, parsing.form_moment("at"), actor)
            if "hide" in request.form:
                found.visible = False
        flash(_("Undone. Version %(number)s is a draft again.", number=version_number))
    except CannotUndo as error:
        flash(render_error(error), "warning")
    return redirect(url_for("editor_versions.listing", assignment_id=assignment_id), 303)


# --- new assignments ------------------------------------------------------------------------------------


@pages.get(f"{COURSE}/new")
def new(course_id: int) -> str:
    """The form for a new assignment, or its zip."""
    auth.in_course("assignment.change", course_id)
    first = Settings.model_construct(
        title="", slug="", language="", release=services().config.server.release, visible=False
    )
    return _new_page(course_id, forms.settings_form(first))


@pages.post(f"{COURSE}/new")
def create(course_id: int) -> tuple[str, int] | Response:
    """Make it, with a first draft of a rubric that nobody is graded with yet."""
    actor = auth.in_course("assignment.change", course_id)
    try:
        settings = forms.read_settings()
        content = Content(rubric=forms.first_rubric(()))
        with services().store.write() as session:
            made = versions.create_assignment(session, course_id, settings, content, actor).id
    except (AssignmentError, dates.BadDate) as error:
        return _new_page(course_id, request.form.to_dict(), render_error(error)), 422
    flash(_("Assignment created. Write the task and the rubric, then publish it."))
    return redirect(url_for("editor_task.edit", assignment_id=made), 303)


@pages.post(f"{COURSE}/import")
def import_assignment(course_id: int) -> tuple[str, int] | Response:
    """Make an assignment from the zip of its folder, as a draft."""
    actor = auth.in_course("assignment.change", course_id)
    try:
        read, files = folders.read_zip(folders.one_zip())
        first = Settings.model_construct(
            title=read.title, slug=slug(read.slug) or read.slug, visible=False,
            release=services().config.server.release,
        )  # fmt: skip
        settings = folders.from_folder(first, read).model_copy(update={"slug": read.slug})
        with services().store.write() as session:
            content = folders.content_of(read, files)
            made = versions.create_assignment(session, course_id, settings, content, actor, read.notes).id
    except (DocumentError, AssignmentError) as error:
        return _new_page(course_id, _empty(), render_error(error)), error.status
    flash(_("Assignment created as a draft. Review it, then publish it."))
    forms.flash_report(read.notes)
    return redirect(url_for("editor_rubric.edit", assignment_id=made), 303)


def _empty() -> dict[str, Any]:
    return forms.settings_form(Settings.model_construct(title="", slug="", visible=False))


def _new_page(course_id: int, fields: dict[str, Any], problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        course = courses.load_course(session, course_id)
        title = course.title
    return render_template(
        "assignments/editor/new.html",
        course_id=course_id,
        course_title=title,
        fields=fields,
        zone_options=forms.zone_options,
        problem=problem,
        steps=authoring_steps.step_links(None),
        server=services().config.server,
        **forms.settings_choices(),
    )
