"""Mail when a result is ready: what somebody wants for one hand-in, said on its page."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.web import auth
from app.web.i18n import gettext as _
from app.web.services import services
from grading.config.mail import valid_address
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor
from grading.domain.value import Value
from grading.store.submissions import mail_notifications
from grading.store.views import submission
from grading.store.views.submission import SubmissionView

pages = Blueprint("mailing", __name__)


class Offer(Value):
    """What the page of a hand-in offers."""

    wanted: bool
    address: str


def offered(session: Session, actor: Actor, view: SubmissionView) -> Offer | None:
    """Nothing where no mail is sent, for those whose hand-in it is not, and without an address."""
    if not services().config.mail.on or not _theirs(actor, view) or view.released:
        return None
    wanted, address = mail_notifications.wanted(session, view.id, actor.user_id)
    return Offer(wanted=wanted, address=address) if valid_address(address) else None


@pages.post("/submissions/<submission_id>/mail")
def wish(submission_id: str) -> Response:
    """Say whether a mail is wanted for this hand-in."""
    actor = auth.actor()
    wanted = request.form.get("wanted") == "yes"
    with services().store.write() as session:
        view = submission.submission_view(session, submission_id)
        auth.require_seen(actor, view)
        if not _theirs(actor, view):
            raise NotFound("This hand-in is not yours.")
        mail_notifications.wish(session, submission_id, actor.user_id, wanted=wanted)
    told = _("You will get an e-mail when you can see the result.")
    flash(told if wanted else _("You will get no e-mail about this hand-in."))
    return redirect(url_for("submissions.submission", submission_id=submission_id), 303)


def _theirs(actor: Actor, view: SubmissionView) -> bool:
    return actor.user_id == view.student_id or actor.user_id in view.members
