"""Handing in: the form, what was received before it counts, and the receipt."""

from __future__ import annotations

from typing import Any

from flask import Response, flash, jsonify, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as BaseResponse

from app.submissions import intake
from app.submissions.views import pages
from app.web import assignment_pages, auth, upload_forms
from app.web.i18n import gettext as _
from app.web.rate_limits import UPLOADS, limited, per_person
from app.web.services import services
from grading.documents.files import safe_part
from grading.domain.errors import DocumentError, NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.store.courses import groups
from grading.store.submissions import receipts, uploads
from grading.store.submissions.intake import Shut, door
from grading.store.submissions.receipts import Receipt
from grading.store.views import assignment


@pages.get("/assignments/<int(max=2147483647):assignment_id>/hand-in")
def hand_in_form(assignment_id: int) -> str:
    """The upload form of an assignment."""
    return render_template("submissions/submit.html", **assignment_pages.about(auth.actor(), assignment_id))


@pages.post("/assignments/<int(max=2147483647):assignment_id>/hand-in")
@limited(UPLOADS, per_person)
def hand_in(assignment_id: int) -> tuple[str, int] | BaseResponse:
    """Take files, to be looked at first or at once; what is wrong with them is said on the form."""
    actor = auth.actor()
    course_id = _course(actor, assignment_id)
    try:
        files = upload_forms.uploaded(request.files.getlist("files"))
        key = upload_forms.form_key(request.form.get("key", ""))
        form = intake.Form(assignment_id, key, files, intake.read(files))
        if request.form.get("then") == "look":
            upload_id = intake.keep(actor, course_id, form)
            return redirect(url_for("submissions.upload", upload_id=upload_id), 303)
        submission_id = intake.at_once(actor, course_id, form)
    except (DocumentError, Shut) as error:
        return _refused(actor, assignment_id, error)
    return redirect(url_for("submissions.submission", submission_id=submission_id), 303)


@pages.get("/assignments/<int(max=2147483647):assignment_id>/hand-in/arrived.json")
def arrived(assignment_id: int) -> Response:
    """What became of a form whose answer got lost: the address to go to, or nothing."""
    actor, key = auth.actor(), upload_forms.form_key(request.args.get("key", ""))
    _course(actor, assignment_id)
    with services().store.read() as session:
        kind, found = (
            uploads.arrived(session, actor.user_id, actor.name, assignment_id, key) if key else ("", "")
        )
    to: dict[str, Any] = {f"{kind}_id": found}
    url = url_for(f"submissions.{kind}", **to) if kind else None
    return jsonify(url=url)


@pages.get("/uploads/<upload_id>")
def upload(upload_id: str) -> str | BaseResponse:
    """What was received, before it counts."""
    actor = auth.actor()
    with services().store.read() as session:
        done = uploads.handed_in(session, actor.name, upload_id)
        if done is not None:
            return redirect(url_for("submissions.submission", submission_id=done), 303)
        waiting = uploads.find(session, upload_id, actor.user_id)
        found = assignment_pages.seen(session, actor, waiting.assignment_id)
        people = groups.together(session, found, actor.user_id)
        stands = door(session, found, actor.user_id, people, waiting.counts_at)
        shown = assignment.overview(session, found, actor.user_id)
    staff = upload_forms.trusted(actor, shown.course_id)
    return render_template(
        "submissions/upload.html", waiting=waiting, assignment=shown, door=stands, staff=staff
    )


@pages.post("/uploads/<upload_id>")
def confirm(upload_id: str) -> tuple[str, int] | BaseResponse:
    """Hand in what was uploaded."""
    actor = auth.actor()
    with services().store.read() as session:
        if uploads.handed_in(session, actor.name, upload_id) is None:
            waiting = uploads.find(session, upload_id, actor.user_id)
            found = assignment_pages.seen(session, actor, waiting.assignment_id)
            auth.require(actor, "submit", Subject(found.course_id, actor.user_id))
    try:
        submission_id = intake.confirm(actor, upload_id)
    except Shut as error:
        return _refused(actor, waiting.assignment_id, error)
    return redirect(url_for("submissions.submission", submission_id=submission_id), 303)


@pages.post("/uploads/<upload_id>/discard")
def discard(upload_id: str) -> BaseResponse:
    """Throw away what was uploaded; nothing that was handed in is touched."""
    actor = auth.actor()
    with services().store.write() as session:
        waiting = uploads.find(session, upload_id, actor.user_id)
        uploads.drop(session, waiting.assignment_id, actor.user_id)
    flash(_("The uploaded files were thrown away. Nothing was handed in."))
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
    """The course of an assignment this person may hand in for."""
    with services().store.read() as session:
        course_id = assignment_pages.seen(session, actor, assignment_id).course_id
    auth.require(actor, "submit", Subject(course_id, actor.user_id))
    return course_id


def _refused(actor: Actor, assignment_id: int, error: DocumentError | Shut) -> tuple[str, int]:
    page = render_template(
        "submissions/submit.html", **assignment_pages.about(actor, assignment_id, error.message)
    )
    return page, error.status


def _receipt(actor: Actor, submission_id: str) -> Receipt:
    with services().store.look() as session:
        found = receipts.receipt(session, submission_id)
    if not may(actor, "submission.see", Subject(found.course_id, found.student_id, members=found.members)):
        raise NotFound("There is no such submission.")
    return found
