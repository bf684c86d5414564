"""Submitting for one student: staff find the student by name and upload the files."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.submissions import intake
from app.web import assignment_pages, auth, parsing
from app.web.assignment_pages import ANY
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.rate_limits import UPLOADS, limited, per_person
from app.web.services import services
from grading.domain.errors import DocumentError, GraderError
from grading.domain.messages import define_message
from grading.domain.permissions import Actor, Subject
from grading.store import tables
from grading.store.courses import roster
from grading.store.submissions.intake import SubmissionRefused

pages = Blueprint("for_student", __name__)
PLACE = f"/assignments/{ANY}/submit-for"


class NoStudentChosen(GraderError):
    """Choose the student for whom you submit."""

    code = "no_student_chosen"
    status = 422
    default_message = define_message("error.no_student_chosen", "Choose the student for whom you submit.")


@pages.get(PLACE)
def form(assignment_id: int) -> str:
    """Find a student, and choose the files."""
    return _page(auth.actor(), assignment_id)


@pages.post(PLACE)
@limited(UPLOADS, per_person)
def submit(assignment_id: int) -> tuple[str, int] | Response:
    """Submit at once; what is wrong is said on the form."""
    actor = auth.actor()
    try:
        with services().store.read_autocommit() as session:
            course_id = _assignment(session, actor, assignment_id).course_id
            student = _student(session, course_id)
        files = parsing.uploaded(request.files.getlist("files"))
        key = parsing.form_key(request.form.get("key", ""))
        sent = intake.Form(assignment_id, key, files, intake.read(files))
        submission_id = intake.for_student(actor, course_id, student.user_id, sent)
    except (DocumentError, SubmissionRefused, NoStudentChosen) as error:
        return _page(actor, assignment_id, render_error(error)), error.status
    flash(_("Submitted for %(name)s.", name=student.name), "success")
    return redirect(url_for("submissions.submission", submission_id=submission_id), 303)


def _page(actor: Actor, assignment_id: int, problem: str = "") -> str:
    search, chosen = request.args.get("q", "")[:200], assignment_pages.whole("student")
    with services().store.read_autocommit() as session:
        assignment = _assignment(session, actor, assignment_id)
        course = assignment.course
        found = roster.list_members(session, course.id, search, "student")
        people = [one for one in found.items if not one.disabled]
        if chosen is not None and all(one.user_id != chosen for one in people):
            known = roster.find_student(session, course.id, chosen)
            people = [known, *people] if known is not None else people
    return render_template(
        "submissions/for_student.html", assignment=assignment, course=course, people=people,
        total=found.total, chosen=chosen, search=search, problem=problem, form_key=parsing.new_key(),
        server=services().config.server,
    )  # fmt: skip


def _student(session: Session, course_id: int) -> roster.Person:
    chosen = assignment_pages.whole("student")
    found = roster.find_student(session, course_id, chosen) if chosen is not None else None
    if found is None:
        raise NoStudentChosen
    return found


def _assignment(session: Session, actor: Actor, assignment_id: int) -> tables.Assignment:
    found = assignment_pages.load_visible(session, actor, assignment_id)
    auth.require(actor, "submit.for_others", Subject(found.course_id))
    return found
