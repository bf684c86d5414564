"""Writing one script in the browser: check it against the visible tests, then submit it as any other file."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import Any

from flask import Blueprint, Response, redirect, render_template, request, send_from_directory, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response as BaseResponse

from app.submissions import intake
from app.web import assignment_pages, auth, parsing
from app.web.i18n import render_error
from app.web.rate_limits import UPLOADS, limited, per_person
from app.web.services import services
from grading.assignments.code_editor import EditableScript, editable_script
from grading.checks.precheck import has_hidden_tests
from grading.documents.files import UploadedFile
from grading.domain.document import Document
from grading.domain.errors import DocumentError, GraderError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor, Subject
from grading.domain.rubric import Rubric
from grading.store import tables
from grading.store.assignments import versions
from grading.store.submissions import prechecks
from grading.store.submissions.intake import SubmissionRefused
from grading.store.submissions.prechecks import FoundPrecheck, PrecheckRunning

NO_CODE_EDITOR = define_message(
    "code_editor.not_offered", "This assignment is not written in the browser. Upload your files instead."
)

pages = Blueprint("code_editor", __name__)
CODE = f"/assignments/{assignment_pages.ANY}/code"
CHECKS = "6 per minute"
"""Prechecks of one person."""
ACE = ("ace.js", "mode-python.js", "mode-r.js", "css/ace.css")
"""Files of the editor that pages use."""


@dataclass(frozen=True)
class Task:
    """What is written, and what is known of the tests."""

    script: EditableScript
    hidden_tests: bool


@pages.get(CODE)
def write(assignment_id: int) -> str:
    """The editor, with what was checked last, or with the starter."""
    return _page(auth.actor(), assignment_id)


@pages.post(CODE)
@limited(UPLOADS, per_person)
def submit(assignment_id: int) -> tuple[str, int] | BaseResponse:
    """Submit the code, with a receipt as for uploaded files."""
    actor = auth.actor()
    course_id, task = _task(actor, assignment_id)
    file = _file(task.script)
    try:
        key = parsing.form_key(request.form.get("key", ""))
        form = intake.Form(assignment_id, key, (file,), intake.read((file,)))
        submission_id = intake.at_once(actor, course_id, form)
    except (DocumentError, SubmissionRefused) as error:
        return _page(actor, assignment_id, error), error.status
    return redirect(url_for("submissions.submission", submission_id=submission_id), 303)


@pages.post(f"{CODE}/check")
@limited(CHECKS, per_person)
def check(assignment_id: int) -> tuple[str, int] | BaseResponse:
    """Have the code run against the visible tests by a sandbox worker."""
    actor, app_services = auth.actor(), services()
    _course_id, task = _task(actor, assignment_id)
    file = _file(task.script)
    try:
        content = intake.read((file,))
        with app_services.store.write() as session:
            found = versions.load_assignment(session, assignment_id)
            made = prechecks.create_precheck(session, found, actor.user_id, file.data.decode(), content)
    except (DocumentError, PrecheckRunning) as error:
        return _page(actor, assignment_id, error), error.status
    app_services.dispatch.announce_precheck(made)
    return redirect(url_for("code_editor.write", assignment_id=assignment_id, _anchor="outcome"), 303)


@pages.get(f"{CODE}/outcome")
def outcome(assignment_id: int) -> str:
    """The part of the page that tells what the last check showed."""
    actor = auth.actor()
    _course_id, task = _task(actor, assignment_id)
    with services().store.read() as session:
        found = prechecks.find_precheck(session, assignment_id, actor.user_id)
    return render_template("submissions/_code_outcome.html", precheck=found, task=task)


@pages.get("/ace/<path:filename>")
def ace(filename: str) -> Response:
    """A file of the editor, from its installed package."""
    if filename not in ACE:
        raise NotFound
    return send_from_directory(_ace_folder(), filename)


@cache
def _ace_folder() -> str:
    """Where the package django-ace lies; it is not imported, for it would import Django."""
    spec = importlib.util.find_spec("django_ace")
    assert spec is not None and spec.submodule_search_locations  # noqa: PT018 - a dependency
    return f"{spec.submodule_search_locations[0]}/static/django_ace/ace"


def _task(actor: Actor, assignment_id: int) -> tuple[int, Task]:
    """The course and what is written. Raises NotFound where the editor is not offered."""
    with services().store.read() as session:
        assignment = assignment_pages.load_visible(session, actor, assignment_id)
        auth.require(actor, "submit", Subject(assignment.course_id, actor.user_id))
        task = task_of(session, assignment)
    if task is None:
        raise NotFound(NO_CODE_EDITOR)
    return assignment.course_id, task


def task_of(session: Session, assignment: tables.Assignment) -> Task | None:
    """What is written in the browser for an assignment; None where nothing is."""
    version = versions.find_published(session, assignment) if assignment.code_editor else None
    if version is None:
        return None
    starter = [Document.model_validate(one) for one in version.starter]
    script = editable_script(starter, assignment.language)
    rubric = Rubric.model_validate(version.rubric)
    return None if script is None else Task(script, has_hidden_tests(rubric))


def _file(script: EditableScript) -> UploadedFile:
    """What was typed as the file that it is."""
    text = request.form.get("code", "").replace("\r\n", "\n")
    return UploadedFile(script.path, text.encode())


def _page(actor: Actor, assignment_id: int, error: GraderError | None = None) -> str:
    _course_id, task = _task(actor, assignment_id)
    with services().store.read() as session:
        found = prechecks.find_precheck(session, assignment_id, actor.user_id)
    problem = render_error(error) if error is not None else ""
    field = "code" if isinstance(error, DocumentError) else ""
    shown: dict[str, Any] = assignment_pages.about(actor, assignment_id, problem, field)
    return render_template(
        "submissions/code.html",
        task=task,
        precheck=found,
        text=_text(task.script, found),
        runs=services().config.sandbox.backend != "none",
        **shown,
    )


def _text(script: EditableScript, found: FoundPrecheck | None) -> str:
    """What the editor opens with: what was just sent, what was checked last, or the starter."""
    if request.method == "POST":
        return request.form.get("code", "")
    if found is None or request.args.get("from") == "starter":
        return script.text
    return found.source
