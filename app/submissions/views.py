"""The pages of a submission. Home is in `app/home/views.py`, handing in in `app/submissions/submit.py`."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response as BaseResponse

from app.reports import provenance
from app.reports.result import rendered
from app.submissions import mail_preferences
from app.submissions.progress import progress
from app.submissions.status import live
from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import ngettext
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.store import tables
from grading.store.grades import release as grades
from grading.store.rounds import prompts
from grading.store.views import submission as views
from grading.store.views import submission_lists
from grading.store.views.submission import Whole
from grading.store.views.submission_lists import AssignmentLine

pages = Blueprint("submissions", __name__)


@pages.get("/submissions/<submission_id>")
def submission(submission_id: str) -> str:
    """Live status that turns into the result."""
    actor = auth.actor()
    with services().store.look() as session:
        whole = _seen(session, actor, submission_id)
        view = whole.view
        sees = may(actor, "score.see", auth.subject_of(view))
        now = live(view, progress(session, view), sees_score=sees)
        mine = actor.user_id == view.student_id or actor.user_id in view.members
        attempts = submission_lists.attempts(
            session, actor.user_id if mine else view.student_id, view.assignment_id
        )
        result = rendered(session, actor, whole, attempts)
        mail = mail_preferences.offered(session, actor, view)
    return render_template(
        "submissions/submission.html",
        view=view,
        live=now,
        attempts=attempts,
        result=result,
        actor=actor,
        mail=mail,
    )


@pages.get("/submissions/<submission_id>/result")
def result(submission_id: str) -> str:
    """The part of the page below the status."""
    actor = auth.actor()
    with services().store.look() as session:
        return rendered(session, actor, _seen(session, actor, submission_id))


@pages.get("/submissions/<submission_id>/runs/<run_id>/prompt")
def prompt(submission_id: str, run_id: str) -> str:
    """The exact messages a run's model was sent, for staff."""
    actor = auth.actor()
    with services().store.look() as session:
        view = views.submission_view(session, submission_id)
        auth.require_seen(actor, view)
        auth.require(actor, "prompt.see", auth.subject_of(view))
        run = prompts.run_prompt(session, submission_id, run_id)
    return render_template(
        "submissions/prompt.html",
        view=view,
        run=run,
        not_kept=provenance.NOT_KEPT[run.missing] if run.missing else "",
        rows=provenance.rows([run.provenance]) if run.provenance else [],
    )


@pages.post("/submissions/<submission_id>/release")
def release(submission_id: str) -> BaseResponse:
    """Let the student see this grade, also a held one: a person decided."""
    actor = auth.actor()
    with services().store.write() as session:
        view = views.submission_view(session, submission_id)
        auth.require_seen(actor, view)
        auth.require(actor, "grade.release", auth.subject_of(view))
        grades.release(session, view.round_id, actor)
    flash(_("The student can see this grade now."))
    return redirect(url_for("submissions.submission", submission_id=submission_id), 303)


@pages.post("/assignments/<int(max=2147483647):assignment_id>/release")
def release_all(assignment_id: int) -> BaseResponse:
    """Release all grades of an assignment that no flag holds."""
    actor = auth.actor()
    line = _assignment(actor, assignment_id)
    auth.require(actor, "grade.release", Subject(line.course_id))
    with services().store.write() as session:
        count = grades.release_all(session, assignment_id, actor)
    done = ngettext("%(count)s grade released.", "%(count)s grades released.", count)
    flash(f"{done} {_('Held ones still wait for you.')}")
    return redirect(url_for("assignments.assignment", assignment_id=assignment_id), 303)


def _assignment(actor: Actor, assignment_id: int) -> AssignmentLine:
    with services().store.read() as session:
        found = session.get(tables.Assignment, assignment_id)
        if found is None or not may(actor, "assignment.see", Subject(found.course_id)):
            raise NotFound("There is no such assignment.")
        return submission_lists.assignment_line(found, found.course)


def _seen(session: Session, actor: Actor, submission_id: str) -> Whole:
    whole = views.whole(session, submission_id)
    auth.require_seen(actor, whole.view)
    return whole
