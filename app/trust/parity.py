"""The page of golden submissions: what every machine grades each night, and what the last night showed."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.trust.staff import for_staff
from app.web import auth
from app.web.assignment_pages import ANY
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error
from app.web.services import services
from grading.domain.errors import Conflict
from grading.statistics.parity import REPEATS
from grading.store.trust import parity
from grading.store.trust.shadow_runs import gradable
from grading.store.views import submission_lists

pages = Blueprint("parity", __name__)
MOST_SHOWN = 60


@pages.get(f"/assignments/{ANY}/trust/machines")
def show(assignment_id: int) -> str:
    """Whether the machines grade alike, and which submissions tell."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = for_staff(session, actor, assignment_id)
        line = submission_lists.assignment_line(found, found.course)
        candidates = parity.list_candidates(session, assignment_id)
        nights = parity.list_nights(session, assignment_id)
        golden = parity.golden_ids(session, assignment_id)
        able = len(gradable(session, golden))
        alarms = [one for one in parity.list_alarms(session) if one.assignment_id == assignment_id]
    proposed = set(golden or parity.propose(candidates))
    step = max(1, -(-len(candidates) // MOST_SHOWN))
    shown = [one for at, one in enumerate(candidates) if at % step == 0 or one.submission_id in proposed]
    return render_template(
        "trust/parity.html",
        assignment=line,
        actor=actor,
        candidates=shown,
        golden=golden,
        able=able,
        fewest=parity.FEWEST,
        proposed=proposed,
        nights=nights,
        alarms=alarms,
        most=parity.GOLDEN,
        repeats=REPEATS,
        reasons=parity.reasons,
    )


@pages.post(f"/assignments/{ANY}/trust/machines")
def choose(assignment_id: int) -> Response:
    """Make the chosen submissions golden, or none."""
    actor = auth.actor()
    chosen = [one for one in request.form.getlist("submission") if one.isalnum()][:500]
    try:
        with services().store.write() as session:
            for_staff(session, actor, assignment_id, "assignment.change")
            count = parity.choose_golden(session, assignment_id, chosen, actor)
    except Conflict as error:
        flash(render_error(error), "warning")
    else:
        words = ngettext(
            "%(count)s golden submission. Machines grade it when they are idle.",
            "%(count)s golden submissions. Machines grade them when they are idle.",
            count,
        )
        flash(words if count else _("There are no golden submissions any more."), "success")
    return redirect(url_for("parity.show", assignment_id=assignment_id), 303)
