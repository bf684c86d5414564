"""Submitting for a whole class: upload a zip, see who is who, confirm."""

from __future__ import annotations

import re
from dataclasses import replace

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.submissions import intake
from app.web import auth, parsing
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error
from app.web.rate_limits import UPLOADS, limited, per_person
from app.web.services import services
from grading.documents import Limits
from grading.documents.class_zip import StudentFiles, open_class
from grading.documents.files import UploadedFile, upload_name
from grading.domain.errors import DocumentError, NotFound
from grading.domain.permissions import Actor, Subject
from grading.store import tables
from grading.store.submissions import class_uploads
from grading.store.submissions.class_uploads import Choice

pages = Blueprint("class_upload", __name__)
MAX_STUDENTS_FILES = 2000


@pages.get("/assignments/<int(max=2147483647):assignment_id>/class")
def form(assignment_id: int) -> str:
    """The form for the zip."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        assignment = _assignment(session, actor, assignment_id)
    return render_template(
        "submissions/class_upload.html", assignment=assignment, server=services().config.server
    )


@pages.post("/assignments/<int(max=2147483647):assignment_id>/class")
@limited(UPLOADS, per_person)
def upload(assignment_id: int) -> tuple[str, int] | Response:
    """Keep the zip and show whom its files belong to."""
    actor, app_services = auth.actor(), services()
    with app_services.store.read_autocommit() as session:
        assignment = _assignment(session, actor, assignment_id)
    try:
        (file, *_) = parsing.uploaded(request.files.getlist("zip"))
        open_class(file, _limits())
    except DocumentError as error:
        page = render_template(
            "submissions/class_upload.html",
            assignment=assignment,
            server=app_services.config.server,
            problem=render_error(error),
        )
        return page, error.status
    with app_services.store.write() as session:
        batch_id = class_uploads.create_class_upload(
            session, assignment_id, actor, upload_name(file.name), file.data
        )
    return redirect(url_for("class_upload.preview", batch_id=batch_id), 303)


@pages.get("/classes/<batch_id>")
def preview(batch_id: str) -> str:
    """Each student's files, and who that is in the course."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        batch, assignment = _batch(session, actor, batch_id)
        students = class_uploads.list_students(session, assignment.course_id)
        matches = class_uploads.match_students(_entries(session, batch), students)
    return render_template(
        "submissions/class_preview.html",
        batch=batch,
        assignment=assignment,
        matches=matches,
        members=students,
    )


@pages.post("/classes/<batch_id>")
def confirm(batch_id: str) -> Response:
    """Submit for everybody who was not left out."""
    actor, app_services = auth.actor(), services()
    with app_services.store.read_autocommit() as session:
        batch, assignment = _batch(session, actor, batch_id)
        entries = _entries(session, batch)
    choices, problems = _choices(entries)
    if not choices:
        for sentence in (_("Nothing was submitted. Choose a student for at least one row."), *problems):
            flash(sentence, "warning")
        return redirect(url_for("class_upload.preview", batch_id=batch_id), 303)
    with app_services.store.write() as session:
        accepted = class_uploads.confirm_class_upload(
            session, class_uploads.lock_class_upload(session, batch_id), assignment.course_id, choices, actor
        )
    for one in accepted:
        app_services.dispatch.announce(one.round_id)
    message = ngettext("Submitted for %(count)s student.", "Submitted for %(count)s students.", len(accepted))
    flash(message, "success")
    for problem in problems:
        flash(problem, "warning")
    return redirect(url_for("home.submissions", assignment=assignment.id), 303)


def _choices(entries: tuple[StudentFiles, ...]) -> tuple[list[Choice], list[str]]:
    """What the form says for each entry; entries that cannot be read become sentences."""
    choices, problems = [], []
    for number, entry in enumerate(entries):
        chosen = request.form.get(f"student-{number}", "leave")
        if chosen != "create" and not re.fullmatch(r"\d{1,9}", chosen):
            continue
        try:
            content = intake.read(entry.files)
        except DocumentError as error:
            problems.append(_("%(name)s was skipped: %(why)s", name=entry.label, why=render_error(error)))
            continue
        choices.append(Choice(entry, content, None if chosen == "create" else int(chosen)))
    return choices, problems


def _limits() -> Limits:
    """A class may hold many times the files of one submission, in the same upload size."""
    one = parsing.limits(services().config.server)
    most = max(MAX_STUDENTS_FILES, one.max_files)
    return replace(
        one, max_files=most, max_entries=4 * most, max_upload_bytes=4 * one.max_upload_bytes, max_data_bytes=0
    )


def _entries(session: Session, batch: tables.ClassUpload) -> tuple[StudentFiles, ...]:
    return open_class(UploadedFile(batch.filename, class_uploads.load_zip(session, batch)), _limits())


def _batch(session: Session, actor: Actor, batch_id: str) -> tuple[tables.ClassUpload, tables.Assignment]:
    batch = class_uploads.load_class_upload(session, batch_id)
    return batch, _assignment(session, actor, batch.assignment_id)


def _assignment(session: Session, actor: Actor, assignment_id: int) -> tables.Assignment:
    found = session.get(tables.Assignment, assignment_id)
    if found is None or not auth.knows_course(actor, found.course_id):
        raise NotFound(_("This assignment does not exist."))
    auth.require(actor, "submit.class", Subject(found.course_id))
    return found
