"""Requests for a regrade: students ask and withdraw, staff list and answer."""

from __future__ import annotations

import math

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.web import auth, parsing
from app.web.i18n import gettext as _
from app.web.i18n import number as _plain
from app.web.i18n import render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import CannotUndo, Conflict, NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.domain.report import CriterionGrade
from grading.domain.shared_messages import NO_SUCH_REQUEST
from grading.store.database import now
from grading.store.review import regrade_requests as regrade_store
from grading.store.review.regrade_requests import Answer, Verdict
from grading.store.views import regrade_requests, submission
from grading.store.views.regrade_requests import Request
from grading.store.views.submission import SubmissionView

pages = Blueprint("regrade_requests", __name__)
SHORTEST = 10
"""Characters of a reason."""
VERDICTS: dict[str, Verdict] = {"declined": "declined", "points": "points", "again": "again"}


@pages.post("/submissions/<submission_id>/regrades")
def ask(submission_id: str) -> Response:
    """A student asks for a regrade, with a reason."""
    actor = auth.actor()
    reason, criterion = request.form.get("reason", "").strip(), request.form.get("criterion", "")[:80]
    with services().store.write() as session:
        view = submission.load_view(session, submission_id)
        auth.require_seen(actor, view)
        auth.require(actor, "regrade.ask", auth.subject_of(view))
        message, request_id = _ask(session, actor, view, criterion, reason)
    if request_id is None:
        flash(message)
    else:
        flash_undo(message, "regrade_requests.withdraw", request_id=request_id)
    return redirect(url_for("submissions.submission", submission_id=submission_id, _anchor="regrades"), 303)


def _ask(
    session: Session, actor: Actor, view: SubmissionView, criterion: str, reason: str
) -> tuple[str, int | None]:
    """What came of it, in a sentence, and the request's id."""
    if problem := reason_refused(reason):
        return problem, None
    try:
        request_id = regrade_store.create_request(session, actor, view.id, criterion, reason)
    except Conflict as refused:
        return render_error(refused), None
    return _("Your request was sent. The response will appear on this page."), request_id


def reason_refused(reason: str) -> str:
    """What is wrong with a reason, if anything."""
    if len(reason) < SHORTEST:
        return _("Not sent: explain in a sentence what is wrong, so that it can be reviewed.")
    if len(reason) > regrade_store.LONGEST:
        return _("Not sent: use at most %(count)s characters.", count=regrade_store.LONGEST)
    return ""


@pages.post("/regrades/<int(max=2147483647):request_id>/withdraw")
def withdraw(request_id: int) -> Response:
    """Take one's own request back."""
    actor = auth.actor()
    with services().store.write() as session:
        found = regrade_requests.load_request(session, request_id)
        try:
            regrade_store.withdraw_request(session, actor, request_id)
            undo_fields = {"at": now(session).isoformat()}
            message = _("Your request was withdrawn.")
            flash_undo(message, "regrade_requests.reopen", undo_fields, request_id=request_id)
        except Conflict as refused:
            flash(render_error(refused))
    return _to_requests(found)


@pages.post("/regrades/<int(max=2147483647):request_id>/reopen")
def reopen(request_id: int) -> Response:
    """Undo taking one's own request back."""
    actor = auth.actor()
    with services().store.write() as session:
        found = regrade_requests.load_request(session, request_id)
        if found.student_id != actor.user_id:
            raise NotFound(NO_SUCH_REQUEST)
        try:
            regrade_store.undo_withdrawal(session, actor, request_id, parsing.form_moment("at"))
            flash(_("Undone. The request is open again."))
        except CannotUndo as error:
            flash(render_error(error), "warning")
    return _to_requests(found)


def _to_requests(found: Request) -> Response:
    address = url_for("submissions.submission", submission_id=found.submission_id, _anchor="regrades")
    return redirect(address, 303)


@pages.get("/regrades")
def listing() -> str:
    """The requests of the courses one is staff of."""
    actor = auth.actor()
    if not actor.staff:
        auth.require(actor, "regrade.answer")
    course = _number("course")
    with services().store.read_autocommit() as session:
        found = regrade_requests.list_requests(session, actor.staff_courses, course, _number("page") or 1)
        courses = regrade_requests.list_courses(session, actor.staff_courses)
    return render_template("review/regrade_requests.html", found=found, courses=courses, course=course)


@pages.get("/regrades/<int(max=2147483647):request_id>")
def show(request_id: int) -> str:
    """A request with the grade it is about, and the form for the answer."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found, view = _answerable(session, actor, request_id)
    return _page(actor, found, view)


@pages.post("/regrades/<int(max=2147483647):request_id>")
def answer(request_id: int) -> tuple[str, int] | Response:
    """Decline, give other points, or have it graded again."""
    actor, app_services = auth.actor(), services()
    with app_services.store.write() as session:
        found, view = _answerable(session, actor, request_id)
        message, problem = _answer(found, view)
        if message is None:
            return _page(actor, found, view, problem), 422
        if message.verdict == "again":
            auth.require(actor, "rerun", auth.subject_of(view))
        new = regrade_store.answer_request(session, actor, request_id, message)
        moment = now(session).isoformat()
    sent = _("Response sent. The student sees your message on the result page.")
    if new is not None:
        app_services.dispatch.announce(new)
        flash(sent)
    else:
        flash_undo(sent, "regrade_requests.undo", {"at": moment}, request_id=request_id)
    return redirect(url_for("regrade_requests.listing"), 303)


@pages.post("/regrades/<int(max=2147483647):request_id>/undo")
def undo(request_id: int) -> Response:
    """Take one's own answer back: the request is open again, and the points are as before."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            _answerable(session, actor, request_id)
            regrade_store.undo_answer(session, actor, request_id, parsing.form_moment("at"))
        flash(_("Undone. The request is open again."))
    except CannotUndo as error:
        flash(render_error(error), "warning")
    return redirect(url_for("regrade_requests.show", request_id=request_id), 303)


def _answer(found: Request, view: SubmissionView) -> tuple[Answer | None, str]:
    """What the form says, or what is wrong with it."""
    verdict, words = VERDICTS.get(request.form.get("verdict", "")), request.form.get("words", "").strip()
    if verdict is None:
        return None, _("Choose a decision.")
    return checked(found, view, verdict, words, _points(request.form.get("points", "")))


def checked(
    found: Request, view: SubmissionView, verdict: Verdict, words: str, points: float | None
) -> tuple[Answer | None, str]:
    """An answer that fits its request, or what is wrong with it."""
    if not words or len(words) > regrade_store.LONGEST:
        return None, _(
            "Write a message to the student, up to %(count)s characters.", count=regrade_store.LONGEST
        )
    if verdict != "points":
        return Answer(verdict=verdict, words=words), ""
    most = view.max_points
    least = -most
    if found.criterion:
        least, most = (
            0.0,
            next((c.max_points for c in _criteria(view) if c.criterion == found.criterion), 0.0),
        )
    if points is None or not least <= points <= most:
        low, high = _plain(least), _plain(most)
        return None, _("Enter points from %(low)s to %(high)s.", low=low, high=high)
    return Answer(verdict=verdict, words=words, points=points), ""


def _page(actor: Actor, found: Request, view: SubmissionView, problem: str = "") -> str:
    criterion = next((c for c in _criteria(view) if c.criterion == found.criterion), None)
    return render_template(
        "review/regrade_request.html",
        found=found,
        view=view,
        criterion=criterion,
        problem=problem,
        may_rerun=may(actor, "rerun", auth.subject_of(view)),
        longest=regrade_store.LONGEST,
    )


def _criteria(view: SubmissionView) -> tuple[CriterionGrade, ...]:
    return view.grade.report.criteria if view.grade is not None else ()


def _answerable(session: Session, actor: Actor, request_id: int) -> tuple[Request, SubmissionView]:
    """The request, where the actor is staff. Raises NotFound for those of others."""
    found = regrade_requests.load_request(session, request_id)
    if not may(actor, "regrade.answer", Subject(found.course_id)):
        raise NotFound(NO_SUCH_REQUEST)
    return found, submission.load_view(session, found.submission_id)


def _points(text: str) -> float | None:
    """A number as people write it, with a comma or a point."""
    try:
        value = float(text.strip().replace(",", "."))
    except ValueError:
        return None
    return round(value, 2) if math.isfinite(value) else None


def _number(name: str) -> int | None:
    text = request.args.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


@pages.app_template_global()
def open_requests() -> int:
    """How many requests wait for the reader, for the badge in the menu."""
    return auth.user().open_requests
