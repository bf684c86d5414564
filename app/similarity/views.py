"""Pages of similar submissions: what a comparison found, asking for one, and two submissions side by side."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.similarity.graph import drawn
from app.similarity.side_by_side import columns
from app.web import auth
from app.web.assignment_pages import ANY
from app.web.i18n import gettext as _
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.domain.shared_messages import NO_SUCH_ASSIGNMENT, NO_SUCH_COURSE
from grading.store import tables
from grading.store.courses import courses
from grading.store.similarity import comparisons
from grading.store.views import review_worklist, similar_pairs, submission_lists

pages = Blueprint("similarity", __name__)
SEE = "similarity.see"


@pages.get(f"/assignments/{ANY}/similarity")
def assignment(assignment_id: int) -> str:
    """Pairs and clusters of similar submissions of an assignment."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        line = _assignment(session, actor, assignment_id)
        found = similar_pairs.load_found(session, line, actor)
        view = submission_lists.assignment_line(line, line.course)
    graph = drawn(found.pairs, found.clusters)
    return render_template("similarity/assignment.html", assignment=view, found=found, graph=graph)


@pages.post(f"/assignments/{ANY}/similarity/compare")
def compare(assignment_id: int) -> Response:
    """Ask for a comparison; the sweeper makes it."""
    actor = auth.actor()
    with services().store.write() as session:
        _assignment(session, actor, assignment_id)
        comparisons.request_comparison(session, assignment_id, actor)
    flash(_("The submissions are being compared. This takes a few seconds."))
    return redirect(url_for("similarity.assignment", assignment_id=assignment_id), 303)


@pages.get("/courses/<int(max=2147483647):course_id>/similarity")
def course(course_id: int) -> str:
    """Students of a course with similar submissions, those of several assignments first."""
    actor, subject = auth.actor(), Subject(course_id)
    if not may(actor, "course.see", subject):
        raise NotFound(NO_SUCH_COURSE)
    auth.require(actor, SEE, subject)
    with services().store.read_autocommit() as session:
        title = courses.load_course(session, course_id).title
        found = similar_pairs.load_course(session, course_id, actor)
    return render_template("similarity/course.html", course_id=course_id, title=title, found=found)


@pages.get("/submissions/<submission_id>/similarity/<other_id>")
def pair(submission_id: str, other_id: str) -> str:
    """Two submissions side by side, what they share marked."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        view = similar_pairs.load_pair(session, submission_id, other_id, actor)
    return render_template("similarity/pair.html", view=view, columns=columns(view))


def _assignment(session: Session, actor: Actor, assignment_id: int) -> tables.Assignment:
    """The assignment, for its staff. Raises NotFound for who is not in the course, and Forbidden."""
    found = review_worklist.find_assignment(session, assignment_id)
    if not may(actor, "assignment.see", Subject(found.course_id)):
        raise NotFound(NO_SUCH_ASSIGNMENT)
    auth.require(actor, SEE, Subject(found.course_id))
    return found
