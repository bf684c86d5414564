"""Home, hand-in and submission pages."""

from __future__ import annotations

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response as BaseResponse

from app import handin, provenance, render, who
from app.api import tagged
from app.live import Live, live
from app.progress import progress
from app.services import services
from grading.documents import ALLOWED, HandIn
from grading.documents.files import KINDS
from grading.errors import DocumentError, NotFound
from grading.may import Actor, Subject, may
from grading.model import RoundState
from grading.store import grades, lists, prompts, tables, views
from grading.store.lists import AssignmentLine, Filters
from grading.store.submissions import Incoming
from grading.store.views import SubmissionView

pages = Blueprint("pages", __name__)


@pages.get("/")
def home() -> str:
    """Staff see all hand-ins of their courses, students their own."""
    actor = who.actor()
    page = _number("page") or 1
    state = request.args.get("state")
    chosen = Filters(
        course_ids=actor.staff_courses,
        own=actor.user_id,
        assignment_id=_number("assignment"),
        state=state if state in {s.value for s in RoundState} else None,
    )
    with services().store.read() as session:
        listed = lists.list_submissions(session, chosen, page)
        courses = None if actor.administrator else frozenset(actor.roles)
        known = lists.assignments(session, courses)
    return render_template(
        "home.html", listed=listed, assignments=known, chosen=chosen, states=list(RoundState), actor=actor
    )


@pages.get("/assignments/<int(max=2147483647):assignment_id>/hand-in")
def hand_in_form(assignment_id: int) -> str:
    """The upload form of an assignment."""
    return _hand_in_page(who.actor(), assignment_id)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/hand-in")
def hand_in(assignment_id: int) -> tuple[str, int] | BaseResponse:
    """Take files; what is wrong with them is said on the form."""
    actor = who.actor()
    line = _assignment(actor, assignment_id)
    who.require(actor, "submit", Subject(line.course_id, actor.user_id))
    try:
        content = handin.read(handin.uploaded(request.files.getlist("files")))
    except DocumentError as error:
        return _hand_in_page(actor, assignment_id, error.message), error.status
    accepted = handin.accept(lambda _: _incoming(actor, assignment_id, content))
    return redirect(url_for("pages.submission", submission_id=accepted.submission_id), 303)


@pages.get("/submissions/<submission_id>")
def submission(submission_id: str) -> str:
    """Live status that turns into the result."""
    actor = who.actor()
    with services().store.read() as session:
        view, now = _seen(session, actor, submission_id)
        attempts = lists.attempts(session, view.student_id, view.assignment_id)
        result = _result(session, actor, view)
    return render_template(
        "submission.html", view=view, live=now, attempts=attempts, result=result, actor=actor
    )


@pages.get("/submissions/<submission_id>/status.json")
def status(submission_id: str) -> Response:
    """What the page polls; has an ETag."""
    actor = who.actor()
    with services().store.read() as session:
        _, now = _seen(session, actor, submission_id)
    return tagged(now.model_dump(mode="json"))


@pages.get("/submissions/<submission_id>/result")
def result(submission_id: str) -> str:
    """The part of the page below the status."""
    actor = who.actor()
    with services().store.read() as session:
        view, _ = _seen(session, actor, submission_id)
        return _result(session, actor, view)


@pages.get("/submissions/<submission_id>/runs/<run_id>/prompt")
def prompt(submission_id: str, run_id: str) -> str:
    """The exact messages a run's model was sent, for staff."""
    actor = who.actor()
    with services().store.read() as session:
        view = views.submission_view(session, submission_id)
        who.require_seen(actor, view)
        who.require(actor, "prompt.see", who.subject_of(view))
        run = prompts.run_prompt(session, submission_id, run_id)
    return render_template(
        "prompt.html",
        view=view,
        run=run,
        not_kept=provenance.NOT_KEPT[run.missing] if run.missing else "",
        rows=provenance.rows([run.provenance]) if run.provenance else [],
    )


@pages.post("/submissions/<submission_id>/release")
def release(submission_id: str) -> BaseResponse:
    """Let the student see this grade, also a held one: a person decided."""
    actor = who.actor()
    with services().store.write() as session:
        view, _ = _seen(session, actor, submission_id)
        who.require(actor, "grade.release", who.subject_of(view))
        grades.release(session, view.round_id, actor)
    flash("The student can see this grade now.")
    return redirect(url_for("pages.submission", submission_id=submission_id), 303)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/release")
def release_all(assignment_id: int) -> BaseResponse:
    """Release all grades of an assignment that no flag holds."""
    actor = who.actor()
    line = _assignment(actor, assignment_id)
    who.require(actor, "grade.release", Subject(line.course_id))
    with services().store.write() as session:
        count = grades.release_all(session, assignment_id, actor)
    flash(f"{count} grade{'' if count == 1 else 's'} released. Held ones still wait for you.")
    return redirect(url_for("pages.home", assignment=assignment_id), 303)


def _number(name: str) -> int | None:
    text = request.args.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _assignment(actor: Actor, assignment_id: int) -> AssignmentLine:
    with services().store.read() as session:
        found = session.get(tables.Assignment, assignment_id)
        if found is None or not may(actor, "assignment.see", Subject(found.course_id)):
            raise NotFound("There is no such assignment.")
        return lists.assignment_line(found, found.course)


def _hand_in_page(actor: Actor, assignment_id: int, problem: str | None = None) -> str:
    line = _assignment(actor, assignment_id)
    with services().store.read() as session:
        mine = lists.attempts(session, actor.user_id, assignment_id)
    server = services().config.server
    return render_template(
        "hand_in.html",
        assignment=line,
        attempts=mine,
        server=server,
        allowed=ALLOWED,
        endings=[*KINDS, ".zip"],
        problem=problem,
    )


def _incoming(actor: Actor, assignment_id: int, content: HandIn) -> Incoming:
    return Incoming(
        assignment_id=assignment_id,
        student_id=actor.user_id,
        source="form",
        handin=content,
        submitted_by=actor.user_id,
    )


def _seen(session: Session, actor: Actor, submission_id: str) -> tuple[SubmissionView, Live]:
    view = views.submission_view(session, submission_id)
    who.require_seen(actor, view)
    sees = may(actor, "score.see", who.subject_of(view))
    return view, live(view, progress(session, view), sees_score=sees)


def _result(session: Session, actor: Actor, view: SubmissionView) -> str:
    report = who.report_for(actor, view)
    staff = may(actor, "tests.see_all", Subject(view.course_id))
    trial = views.trial(session, view.round_id)
    shown = render.documents(views.documents(session, view.id), report, trial, staff)
    remarks = views.notes(session, view.id)
    sent = may(actor, "prompt.see", who.subject_of(view))
    return render_template(
        "_result.html",
        view=view,
        report=report,
        documents=shown,
        notes=remarks,
        actor=actor,
        staff=staff,
        prompts={s.stage: s.accepted_run for s in view.stages if s.accepted_run} if sent else {},
    )
