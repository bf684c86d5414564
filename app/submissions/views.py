"""The pages of a submission: submit, receipt, live status that becomes the result, failures, release."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, flash, jsonify, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response as BaseResponse

from app.reports import provenance
from app.reports.counting import superseded
from app.reports.result import rendered
from app.submissions import intake
from app.submissions.status_texts import live, progress, seen_by
from app.web import assignment_pages, auth, parsing
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error
from app.web.rate_limits import UPLOADS, limited, per_person
from app.web.services import services
from app.web.toasts import flash_undo
from grading.config.mail import valid_address
from grading.documents.files import safe_part
from grading.domain.base_value import Value
from grading.domain.errors import DocumentError, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor, Subject, may
from grading.domain.shared_messages import NO_SUCH_SUBMISSION
from grading.store.courses import groups
from grading.store.database import now
from grading.store.grades import release as grade_release
from grading.store.rounds import prompts, retry
from grading.store.rounds.retry import DeadRound
from grading.store.submissions import mail_notifications, pending_uploads, receipts
from grading.store.submissions.intake import SubmissionRefused, submission_policy
from grading.store.submissions.receipts import Receipt
from grading.store.views import assignment, submission_lists
from grading.store.views import submission as submission_view
from grading.store.views.submission import SubmissionView, WholeSubmission

SUBMISSION_NOT_YOURS = define_message("views.submission_not_yours", "This submission is not yours.")

pages = Blueprint("submissions", __name__)


@pages.get("/submissions/<submission_id>")
def submission(submission_id: str) -> str:
    """Live status that turns into the result."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        whole = _visible(session, actor, submission_id)
        view = whole.view
        sees = may(actor, "score.see", auth.subject_of(view))
        now = live(view, seen_by(actor, view, progress(session, view)), sees_score=sees)
        mine = actor.user_id == view.student_id or actor.user_id in view.members
        attempts = submission_lists.list_attempts(
            session, actor.user_id if mine else view.student_id, view.assignment_id
        )
        released = submission_lists.last_released(attempts) if mine and not view.released else None
        result = rendered(session, actor, whole, attempts)
        instead = superseded(session, actor, [submission_id]) if len(attempts) > 1 else {}
        mail = _mail_offer(session, actor, view)
    return render_template(
        "submissions/submission.html",
        view=view,
        live=now,
        attempts=attempts,
        released=released,
        result=result,
        instead=instead.get(submission_id),
        actor=actor,
        mail=mail,
    )


@pages.get("/submissions/<submission_id>/result")
def result(submission_id: str) -> str:
    """The part of the page below the status."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        return rendered(session, actor, _visible(session, actor, submission_id))


@pages.get("/submissions/<submission_id>/runs/<run_id>/prompt")
def prompt(submission_id: str, run_id: str) -> str:
    """The exact messages a run's model was sent, for staff."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        view = submission_view.load_view(session, submission_id)
        auth.require_seen(actor, view)
        auth.require(actor, "prompt.see", auth.subject_of(view))
        run = prompts.load_run_prompt(session, submission_id, run_id)
    return render_template(
        "submissions/prompt.html",
        view=view,
        run=run,
        not_kept=provenance.NOT_KEPT[run.missing] if run.missing else "",
        rows=provenance.rows([run.provenance]) if run.provenance else [],
    )


@pages.post("/submissions/<submission_id>/release")
def release(submission_id: str) -> BaseResponse:
    """Let the student see this grade. One that is held is released on its review, which says why."""
    actor = auth.actor()
    with services().store.write() as session:
        view = submission_view.load_view(session, submission_id)
        auth.require_seen(actor, view)
        auth.require(actor, "grade.release", auth.subject_of(view))
        if view.grade is not None and view.grade.held and "sure" not in request.form:
            flash(_("This grade is held for review. Read why, then release it here."), "warning")
            return redirect(url_for("review.one", submission_id=submission_id), 303)
        grade_release.release_grade(session, view.round_id, actor)
        undo = {"released": now(session).isoformat()}
    flash_undo(_("The student can now see this grade."), "review.undo", undo, submission_id=submission_id)
    return _to_submission(submission_id)


def _to_submission(submission_id: str) -> BaseResponse:
    return redirect(url_for("submissions.submission", submission_id=submission_id), 303)


def _visible(session: Session, actor: Actor, submission_id: str) -> WholeSubmission:
    whole = submission_view.load_whole(session, submission_id)
    auth.require_seen(actor, whole.view)
    return whole


@pages.get("/assignments/<int(max=2147483647):assignment_id>/submit")
def submit_form(assignment_id: int) -> str:
    """The upload form of an assignment."""
    return render_template("submissions/submit.html", **assignment_pages.about(auth.actor(), assignment_id))


@pages.post("/assignments/<int(max=2147483647):assignment_id>/submit")
@limited(UPLOADS, per_person)
def submit(assignment_id: int) -> tuple[str, int] | BaseResponse:
    """Take files, to be looked at first or at once; what is wrong with them is said on the form."""
    actor = auth.actor()
    course_id = _course(actor, assignment_id)
    try:
        files = parsing.uploaded(request.files.getlist("files"))
        key = parsing.form_key(request.form.get("key", ""))
        form = intake.Form(assignment_id, key, files, intake.read(files))
        if request.form.get("then") == "look":
            upload_id = intake.keep(actor, course_id, form)
            return redirect(url_for("submissions.upload", upload_id=upload_id), 303)
        submission_id = intake.at_once(actor, course_id, form)
    except (DocumentError, SubmissionRefused) as error:
        return _refused(actor, assignment_id, error)
    return _to_submission(submission_id)


@pages.get("/assignments/<int(max=2147483647):assignment_id>/submit/arrived.json")
def arrived(assignment_id: int) -> Response:
    """What became of a form whose answer got lost: the address to go to, or nothing."""
    actor, key = auth.actor(), parsing.form_key(request.args.get("key", ""))
    _course(actor, assignment_id)
    with services().store.read() as session:
        kind, found = (
            pending_uploads.find_form_outcome(session, actor.user_id, actor.name, assignment_id, key)
            if key
            else ("", "")
        )
    to: dict[str, Any] = {f"{kind}_id": found}
    url = url_for(f"submissions.{kind}", **to) if kind else None
    return jsonify(url=url)


@pages.get("/uploads/<upload_id>")
def upload(upload_id: str) -> str | BaseResponse:
    """What was received, before it counts."""
    actor = auth.actor()
    with services().store.read() as session:
        try:
            waiting = pending_uploads.load_unsubmitted(session, upload_id, actor.user_id, actor.name)
        except pending_uploads.AlreadySubmitted as before:
            return _to_submission(before.submission_id)
        found = assignment_pages.load_visible(session, actor, waiting.assignment_id)
        people = groups.group_members(session, found, actor.user_id)
        stands = submission_policy(session, found, actor.user_id, people, waiting.counts_at)
        view = assignment.load_overview(session, found, actor.user_id)
    staff = parsing.trusted(actor, view.course_id)
    return render_template(
        "submissions/upload.html", waiting=waiting, assignment=view, policy=stands, staff=staff
    )


@pages.post("/uploads/<upload_id>")
def confirm_upload(upload_id: str) -> tuple[str, int] | BaseResponse:
    """Submit what was uploaded."""
    actor = auth.actor()
    try:
        with services().store.read() as session:
            waiting = pending_uploads.load_unsubmitted(session, upload_id, actor.user_id, actor.name)
            found = assignment_pages.load_visible(session, actor, waiting.assignment_id)
            auth.require(actor, "submit", Subject(found.course_id, actor.user_id))
        return _to_submission(intake.confirm(actor, upload_id))
    except pending_uploads.AlreadySubmitted as before:
        return _to_submission(before.submission_id)
    except SubmissionRefused as error:
        return _refused(actor, waiting.assignment_id, error)


@pages.post("/uploads/<upload_id>/discard")
def discard_upload(upload_id: str) -> BaseResponse:
    """Throw away what was uploaded; nothing that was submitted is touched."""
    actor = auth.actor()
    with services().store.write() as session:
        waiting = pending_uploads.load_upload(session, upload_id, actor.user_id)
        pending_uploads.discard_upload(session, waiting.assignment_id, actor.user_id)
    flash(_("The uploaded files were discarded. Nothing was submitted."))
    return redirect(url_for("assignments.assignment", assignment_id=waiting.assignment_id), 303)


@pages.get("/submissions/<submission_id>/receipt")
def receipt(submission_id: str) -> str:
    """The receipt, to read and to print."""
    return render_template("submissions/receipt.html", receipt=_receipt(auth.actor(), submission_id))


@pages.get("/submissions/<submission_id>/receipt.txt")
def receipt_text(submission_id: str) -> Response:
    """The receipt as text to keep, from which the fingerprint can be worked out again."""
    found = _receipt(auth.actor(), submission_id)
    response = Response(render_template("submissions/receipt.txt", receipt=found), mimetype="text/plain")
    name = f"receipt-{safe_part(found.assignment_title)[:60]}-{found.number}.txt"
    response.headers.set("Content-Disposition", "attachment", filename=name)
    return response


def _course(actor: Actor, assignment_id: int) -> int:
    """The course of an assignment this person may submit for."""
    with services().store.read() as session:
        course_id = assignment_pages.load_visible(session, actor, assignment_id).course_id
    auth.require(actor, "submit", Subject(course_id, actor.user_id))
    return course_id


def _refused(actor: Actor, assignment_id: int, error: DocumentError | SubmissionRefused) -> tuple[str, int]:
    field = "files" if isinstance(error, DocumentError) else ""
    about = assignment_pages.about(actor, assignment_id, render_error(error), field)
    return render_template("submissions/submit.html", **about), error.status


def _receipt(actor: Actor, submission_id: str) -> Receipt:
    with services().store.read_autocommit() as session:
        found = receipts.load_receipt(session, submission_id)
    if not may(actor, "submission.see", Subject(found.course_id, found.student_id, members=found.members)):
        raise NotFound(NO_SUCH_SUBMISSION)
    return found


class Offer(Value):
    """What the page of a submission offers."""

    wanted: bool
    address: str


def _mail_offer(session: Session, actor: Actor, view: SubmissionView) -> Offer | None:
    """Nothing where no mail is sent, for those whose submission it is not, and without an address."""
    if not services().config.mail.on or not _theirs(actor, view) or view.released:
        return None
    wanted, address = mail_notifications.load_mail_preference(session, view.id, actor.user_id)
    return Offer(wanted=wanted, address=address) if valid_address(address) else None


@pages.post("/submissions/<submission_id>/mail")
def set_mail(submission_id: str) -> BaseResponse:
    """Say whether a mail is wanted for this submission."""
    actor = auth.actor()
    wanted = request.form.get("wanted") == "yes"
    with services().store.write() as session:
        view = submission_view.load_view(session, submission_id)
        auth.require_seen(actor, view)
        if not _theirs(actor, view):
            raise NotFound(SUBMISSION_NOT_YOURS)
        mail_notifications.set_mail_preference(session, submission_id, actor.user_id, wanted=wanted)
    message = _("You will get an email when the result is available.")
    message = message if wanted else _("You will not get an email about this submission.")
    undo = {"wanted": "no" if wanted else "yes"}
    flash_undo(message, "submissions.set_mail", undo, submission_id=submission_id)
    return _to_submission(submission_id)


def _theirs(actor: Actor, view: SubmissionView) -> bool:
    return actor.user_id == view.student_id or actor.user_id in view.members


@pages.get("/failed")
def failed() -> str:
    """What failed in the reader's courses, the latest first."""
    actor = auth.actor()
    auth.require(actor, "failed_submissions.see")
    return render_template("submissions/failed.html", rounds=_dead_rounds(actor))


@pages.post("/failed")
def retry_failed() -> BaseResponse:
    """Set the chosen rounds going again, or all of the list."""
    actor = auth.actor()
    auth.require(actor, "failed_submissions.see")
    listed = {one.round_id: one for one in _dead_rounds(actor)}
    chosen = list(listed) if "all" in request.form else request.form.getlist("round")
    if not chosen:
        flash(_("Choose at least one submission first."), "warning")
    for round_id in chosen:
        if round_id in listed and not may(actor, "replay", Subject(listed[round_id].course_id)):
            raise NotFound
    done = sum(_replay(round_id, actor) for round_id in chosen if round_id in listed)
    if chosen:
        message = ngettext("Retrying %(count)s submission.", "Retrying %(count)s submissions.", done)
        flash(message if done else _("No changes made."), "success" if done else "info")
    return redirect(url_for("submissions.failed"), 303)


def _dead_rounds(actor: Actor) -> list[DeadRound]:
    with services().store.read_autocommit() as session:
        return retry.list_dead_rounds(session, actor.staff_courses)


def _replay(round_id: str, actor: Actor) -> bool:
    app_services = services()
    with app_services.store.write() as session:
        done = retry.retry_round(session, round_id, actor.name)
    if done:
        app_services.dispatch.announce(round_id)  # for those not prepared yet; the sweeper sends the others
    return done
