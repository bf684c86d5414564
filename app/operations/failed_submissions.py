"""Hand-ins without a full result: why, and the button that tries again."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import ngettext
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.store.rounds import retry
from grading.store.rounds.retry import DeadRound

pages = Blueprint("failed_submissions", __name__)


@pages.get("/failed")
def listing() -> str:
    """What was given up in the reader's courses, the latest first."""
    actor = auth.actor()
    auth.require(actor, "failed_submissions.see")
    return render_template("operations/failed_submissions.html", rounds=_given_up(actor))


@pages.post("/failed")
def again() -> Response:
    """Set the chosen rounds going again, or all of the list."""
    actor = auth.actor()
    auth.require(actor, "failed_submissions.see")
    listed = {one.round_id: one for one in _given_up(actor)}
    chosen = list(listed) if "all" in request.form else request.form.getlist("round")
    if not chosen:
        flash(_("Choose at least one hand-in first."), "warning")
    for round_id in chosen:
        if round_id in listed and not may(actor, "replay", Subject(listed[round_id].course_id)):
            raise NotFound
    done = sum(_replay(round_id, actor) for round_id in chosen if round_id in listed)
    if chosen:
        told = ngettext(
            "%(count)s hand-in will be graded again.", "%(count)s hand-ins will be graded again.", done
        )
        flash(told if done else _("Nothing to do."), "success" if done else "info")
    return redirect(url_for("failed_submissions.listing"), 303)


def _given_up(actor: Actor) -> list[DeadRound]:
    with services().store.read_autocommit() as session:
        return retry.list_dead_rounds(session, actor.staff_courses)


def _replay(round_id: str, actor: Actor) -> bool:
    given = services()
    with given.store.write() as session:
        done = retry.retry_round(session, round_id, actor.name)
    if done:
        given.dispatch.announce(round_id)  # for those not prepared yet; the sweeper sends the others
    return done
