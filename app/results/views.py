"""The result of a submission: its part of the page, its pictures, its PDF, and the PDFs of a class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import cast

from flask import Blueprint, Response, current_app, request, stream_with_context
from flask.blueprints import BlueprintSetupState
from sqlalchemy.orm import Session

from app.reports import images, result
from app.reports.counting import superseded
from app.reports.images import Numbers, Picture
from app.reports.result import notebooks_with_images
from app.results import pdf_data as printing
from app.results import typesetting
from app.web import auth, grade_view_audit, zip_stream
from app.web.rate_limits import limited, per_person
from app.web.services import services
from app.web.zip_stream import file_name
from grading.checks.visibility import for_student
from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Subject, may
from grading.domain.report import Report
from grading.domain.shared_messages import NO_SUCH_ASSIGNMENT
from grading.shared.cache import mark
from grading.store import tables
from grading.store.views import grade_history, submission
from grading.store.views.submission import SubmissionView

NO_SUCH_IMAGE = define_message("results.no_such_image", "This image does not exist.")

PRINTS = "20 per minute"
"""PDFs for one person: each takes a turn, and whoever waits for theirs holds a thread."""
pages = Blueprint("results", __name__)


@pages.record
def _remember(state: BlueprintSetupState) -> None:
    """Keep what is known of pictures and parts with this app."""
    result.remember(state.app)


NO_RESULT = "There is no result to look at yet."


# --- pictures -----------------------------------------------------------------------------------------


@pages.get(
    "/submissions/<submission_id>/pictures/<int(max=999):document>/<int(max=9999):cell>/<int(max=999):number>"
)
def picture(submission_id: str, document: int, cell: int, number: int) -> Response:
    """One picture of the outputs that were submitted, without anything else of its file."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        view = submission.load_view(session, submission_id)
        auth.require_seen(actor, view)
        name = _notebook(session, view.id, document)
        numbers = cast(Numbers, current_app.extensions["grader-pictures"])
        found = numbers.picture(name, cell, number, partial(grade_history.load_content, session, name))
    if found is None:
        raise NotFound(NO_SUCH_IMAGE)
    response = Response(found.data, mimetype=f"image/{found.kind}")
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    # browsers keep it, but ask each time: whoever uses this browser next may not see it
    response.headers["Cache-Control"] = "private, no-cache"
    response.set_etag(mark(name, cell, number))
    return cast(Response, response.make_conditional(request))


def _notebook(session: Session, submission_id: str, number: int) -> str:
    """The SHA-256 of the file. Raises NotFound."""
    documents = submission.load_documents(session, submission_id)
    names = grade_history.list_notebooks(session, submission_id)
    if number >= len(documents) or documents[number].path not in names:
        raise NotFound(NO_SUCH_IMAGE)
    return names[documents[number].path]


# --- PDF ----------------------------------------------------------------------------------------------


@pages.get("/submissions/<submission_id>/result.pdf")
@limited(PRINTS, per_person)
def pdf(submission_id: str) -> Response:
    """The result as a PDF, for everybody who may see it."""
    actor = auth.actor()
    with services().store.read() as session:
        view = submission.load_view(session, submission_id)
        auth.require_seen(actor, view)
        report = auth.report_for(actor, view)
        if report is None:
            raise NotFound(NO_RESULT)
        printed = _printed(session, view, report, may(actor, "tests.see_all", Subject(view.course_id)))
        instead = superseded(session, actor, [view.id]).get(view.id)
        printed = replace(printed, instead=instead.number if instead else None)
    grade_view_audit.viewed(actor, view.id, "pdf")
    made = typesetting.typeset(*printing.data(printed))
    name = file_name(view.assignment, view.student, f"submission-{view.number}")
    return _download(made, "application/pdf", f"{name}.pdf")


@pages.get("/assignments/<int(max=2147483647):assignment_id>/results.zip")
def class_zip(assignment_id: int) -> Response:
    """The PDFs of a class, as the students may see them, one after the other."""
    actor = auth.actor()
    with services().store.read() as session:
        assignment = session.get(tables.Assignment, assignment_id)
        if assignment is None or not auth.knows_course(actor, assignment.course_id):
            raise NotFound(NO_SUCH_ASSIGNMENT)
        auth.require(actor, "grades.export", Subject(assignment.course_id))
        counting = grade_history.list_counting(session, assignment)
        slug = assignment.slug
    grade_view_audit.viewed_all(actor, assignment_id, len(counting))
    members = ((_name_in_zip(one), partial(_of_class, one.submission_id)) for one in counting)
    packed = stream_with_context(zip_stream.stream(members))
    return _download(packed, "application/zip", f"{file_name(slug)}-results.zip")


def _name_in_zip(one: grade_history.GradedSubmission) -> str:
    return f"{file_name(one.student, str(one.student_id), f'submission-{one.number}')}.pdf"


def _of_class(submission_id: str) -> bytes:
    """The PDF of one submission, as its student would get it. Raises GraderError."""
    with services().store.read() as session:
        view = submission.load_view(session, submission_id)
        if view.grade is None:
            raise NotFound(NO_RESULT)
        printed = _printed(session, view, for_student(view.grade.report), staff=False)
    return typesetting.typeset(*printing.data(printed))


def _printed(session: Session, view: SubmissionView, report: Report, staff: bool) -> printing.Printed:
    documents = submission.load_documents(session, view.id)
    found: dict[tuple[str, int], dict[int, Picture]] = {}
    for path, name in notebooks_with_images(session, view.id, documents):
        for (cell, number), one in images.pictures(grade_history.load_content(session, name)).items():
            found.setdefault((path, cell), {})[number] = one
    terms = grade_history.load_terms(session, view.id, view.round_id)
    execution = submission.load_execution(session, view.round_id)
    return printing.Printed(view, report, documents, terms, execution, found, staff)


def _download(body: bytes | Iterator[bytes], kind: str, name: str) -> Response:
    response = Response(body, mimetype=kind)
    response.headers.set("Content-Disposition", "attachment", filename=name)
    return response
