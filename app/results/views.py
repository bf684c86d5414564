"""The result of a hand-in: its part of the page, its pictures, its PDF, and the PDFs of a class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

from flask import Blueprint, Flask, Response, current_app, render_template, request, stream_with_context
from sqlalchemy.orm import Session

from app.reports import changes, images, points
from app.reports import parts as result_parts
from app.reports.images import Numbers, Picture
from app.results import pdf as printing
from app.results import typesetting
from app.web import auth, viewing, zip_stream
from app.web.i18n import gettext as _
from app.web.services import services
from app.web.zip_stream import file_name
from grading.checks.visibility import for_student
from grading.domain.errors import NotFound
from grading.domain.model import Document
from grading.domain.outcome import Report
from grading.domain.permissions import Actor, Subject, may
from grading.shared.cache import mark
from grading.store import tables
from grading.store.grades.change_history import MadeChange
from grading.store.review import regrade_requests as regrades
from grading.store.views import (
    grade_history,
    regrade_requests,
    submission,
    submission_contents,
    submission_lists,
)
from grading.store.views.grade_history import Terms
from grading.store.views.submission import SubmissionView
from grading.store.views.submission_contents import Whole
from grading.store.views.submission_lists import SubmissionLine

pages = Blueprint("results", __name__)
NO_RESULT = "There is no result to look at yet."


def result(
    session: Session, actor: Actor, whole: Whole, attempts: Sequence[SubmissionLine] | None = None
) -> str:
    """The part of a submission's page below the status, as this reader may see it.

    `attempts` are all hand-ins of the reader, or of the student; they are looked up unless given.
    """
    view, given, terms = whole.view, whole.handed_in, whole.terms
    report = auth.report_for(actor, view)
    staff = may(actor, "tests.see_all", Subject(view.course_id))
    if report is not None:
        viewing.viewed(actor, view.id)
    own = actor.user_id == view.student_id or actor.user_id in view.members
    if attempts is None:
        whose = actor.user_id if own else view.student_id
        attempts = submission_lists.attempts(session, whose, view.assignment_id)
    titles = {one.criterion: one.title for one in report.criteria} if report else {}
    found = _pictures(session, view.id, given.documents)
    written = {one.stage: one.written_at for one in view.stages if one.written_at} if report else {}
    sent = may(actor, "prompt.see", auth.subject_of(view))
    prompts = {s.stage: s.accepted_run for s in view.stages if s.accepted_run} if report and sent else {}
    parts = result_parts.parts(
        result_parts.Given(view, report, given, terms, written, prompts, found, staff=staff, own=own)
    )
    return render_template(
        "_result.html",
        view=view,
        report=report,
        parts=parts,
        actor=actor,
        staff=staff,
        own=own,
        sum=points.summed(view.grade, terms) if report and view.grade else None,
        counted=_counted(actor, view, terms, attempts),
        touched=touched(report),
        gradings=grade_history.gradings(session, view.id) if view.regraded else (),
        changes=changes.told(_changes(session, view), changes.titles(report))
        if staff and view.changed
        else (),
        **_regrades(session, actor, view, titles),
    )


def _changes(session: Session, view: SubmissionView) -> Sequence[MadeChange]:
    """What people changed in all its gradings, the newest first; those of an only one are known."""
    if view.regraded or view.grade is None:
        return grade_history.changes(session, view.id)
    return view.grade.made[: grade_history.MOST]


def touched(report: Report | None) -> bool:
    """Whether a person changed something of it."""
    return report is not None and bool(
        report.corrected
        or report.comments
        or any(one.corrected for one in report.criteria)
        or any(one.corrected for one in report.adjustments)
    )


def _counted(actor: Actor, view: SubmissionView, terms: Terms, attempts: Sequence[SubmissionLine]) -> str:
    """Which hand-in counts, where there are several; by the points that this reader may see."""
    if len(attempts) < 2:
        return ""
    known = {one.id: _points_seen(actor, one) for one in attempts}
    latest = max(attempts, key=lambda one: (one.created_at, one.number))
    best = max(attempts, key=lambda one: (known[one.id], one.created_at))
    counts = best if terms.counts == "best" else latest
    rule = _("the best one counts") if terms.counts == "best" else _("the latest one counts")
    said = {"count": len(attempts), "rule": rule, "number": counts.number}
    if counts.id == view.id:
        return _("Of %(count)s hand-ins %(rule)s: this one.", **said)
    return _("Of %(count)s hand-ins %(rule)s: hand-in %(number)s.", **said)


def _points_seen(actor: Actor, line: SubmissionLine) -> float:
    subject = Subject(line.course_id, line.student_id, line.released, line.members)
    return line.points if line.points is not None and may(actor, "score.see", subject) else -1.0


def _regrades(
    session: Session, actor: Actor, view: SubmissionView, titles: dict[str, str]
) -> dict[str, object]:
    """Requests for this hand-in, and what may still be asked."""
    requests = regrade_requests.of_submission(session, view.id) if view.asked else ()
    taken = {one.criterion for one in requests if one.open}
    may_ask = bool(titles) and may(actor, "regrade.ask", auth.subject_of(view))
    whole = [("", _("The whole grade"))]
    askable = [pair for pair in [*titles.items(), *whole] if pair[0] not in taken] if may_ask else []
    return {
        "requests": requests,
        "may_ask": bool(askable),
        "askable": askable,
        "titles": titles,
        "longest": regrades.LONGEST,
    }


# --- pictures -----------------------------------------------------------------------------------------


def remember(app: Flask) -> None:
    """Keep what is known of pictures with this app."""
    app.extensions["grader-pictures"] = Numbers()
    result_parts.remember(app)


def _pictures(
    session: Session, submission_id: str, documents: tuple[Document, ...]
) -> dict[tuple[str, int], list[int]]:
    """(document, cell) -> the numbers of its pictures that can be shown."""
    known = cast(Numbers, current_app.extensions["grader-pictures"])
    found: dict[tuple[str, int], list[int]] = {}
    for path, name in _notebooks(session, submission_id, documents):
        for cell, number in known.of(name, partial(grade_history.content, session, name)):
            found.setdefault((path, cell), []).append(number)
    return found


def _notebooks(
    session: Session, submission_id: str, documents: tuple[Document, ...]
) -> list[tuple[str, str]]:
    """(path, SHA-256) of the notebooks that have pictures."""
    some = [one.path for one in documents if any(o.image for c in one.cells for o in c.outputs)]
    names = grade_history.notebooks(session, submission_id) if some else {}
    return [(path, names[path]) for path in some if path in names]


@pages.get(
    "/submissions/<submission_id>/pictures/<int(max=999):document>/<int(max=9999):cell>/<int(max=999):number>"
)
def picture(submission_id: str, document: int, cell: int, number: int) -> Response:
    """One picture of the outputs that were handed in, without anything else of its file."""
    actor = auth.actor()
    with services().store.look() as session:
        view = submission.submission_view(session, submission_id)
        auth.require_seen(actor, view)
        name = _notebook(session, view.id, document)
        known = cast(Numbers, current_app.extensions["grader-pictures"])
        found = known.picture(name, cell, number, partial(grade_history.content, session, name))
    if found is None:
        raise NotFound("There is no such picture.")
    response = Response(found.data, mimetype=f"image/{found.kind}")
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    # browsers keep it, but ask each time: whoever uses this browser next may not see it
    response.headers["Cache-Control"] = "private, no-cache"
    response.set_etag(mark(name, cell, number))
    return cast(Response, response.make_conditional(request))


def _notebook(session: Session, submission_id: str, number: int) -> str:
    """The SHA-256 of the file. Raises NotFound."""
    documents = submission_contents.documents(session, submission_id)
    names = grade_history.notebooks(session, submission_id)
    if number >= len(documents) or documents[number].path not in names:
        raise NotFound("There is no such picture.")
    return names[documents[number].path]


# --- PDF ----------------------------------------------------------------------------------------------


@pages.get("/submissions/<submission_id>/result.pdf")
def pdf(submission_id: str) -> Response:
    """The result as a PDF, for everybody who may see it."""
    actor = auth.actor()
    with services().store.read() as session:
        view = submission.submission_view(session, submission_id)
        auth.require_seen(actor, view)
        report = auth.report_for(actor, view)
        if report is None:
            raise NotFound(NO_RESULT)
        given = _printed(session, view, report, may(actor, "tests.see_all", Subject(view.course_id)))
    viewing.viewed(actor, view.id, "pdf")
    made = typesetting.typeset(*printing.data(given))
    name = file_name(view.assignment, view.student, f"hand-in-{view.number}")
    return _download(made, "application/pdf", f"{name}.pdf")


@pages.get("/assignments/<int(max=2147483647):assignment_id>/results.zip")
def class_zip(assignment_id: int) -> Response:
    """The PDFs of a class, as the students may see them, one after the other."""
    actor = auth.actor()
    with services().store.read() as session:
        assignment = session.get(tables.Assignment, assignment_id)
        if assignment is None or not auth.knows_course(actor, assignment.course_id):
            raise NotFound("There is no such assignment.")
        auth.require(actor, "grades.export", Subject(assignment.course_id))
        hand_ins = grade_history.that_count(session, assignment)
        slug = assignment.slug
    viewing.viewed_all(actor, assignment_id, len(hand_ins))
    members = ((_name_in_zip(one), partial(_of_class, one.submission_id)) for one in hand_ins)
    packed = stream_with_context(zip_stream.stream(members))
    return _download(packed, "application/zip", f"{file_name(slug)}-results.zip")


def _name_in_zip(one: grade_history.HandIn) -> str:
    return f"{file_name(one.student, str(one.student_id), f'hand-in-{one.number}')}.pdf"


def _of_class(submission_id: str) -> bytes:
    """The PDF of one hand-in, as its student would get it. Raises GraderError."""
    with services().store.read() as session:
        view = submission.submission_view(session, submission_id)
        if view.grade is None:
            raise NotFound(NO_RESULT)
        given = _printed(session, view, for_student(view.grade.report), staff=False)
    return typesetting.typeset(*printing.data(given))


def _printed(session: Session, view: SubmissionView, report: Report, staff: bool) -> printing.Printed:
    documents = submission_contents.documents(session, view.id)
    found: dict[tuple[str, int], dict[int, Picture]] = {}
    for path, name in _notebooks(session, view.id, documents):
        for (cell, number), one in images.pictures(grade_history.content(session, name)).items():
            found.setdefault((path, cell), {})[number] = one
    terms = grade_history.terms(session, view.id, view.round_id)
    trial = submission_contents.trial(session, view.round_id)
    return printing.Printed(view, report, documents, terms, trial, found, staff)


def _download(body: bytes | Iterator[bytes], kind: str, name: str) -> Response:
    response = Response(body, mimetype=kind)
    response.headers.set("Content-Disposition", "attachment", filename=name)
    return response
