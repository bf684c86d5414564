"""Second marking: levels by a person who does not see the model's, for submissions chosen or drawn."""

from __future__ import annotations

import secrets
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.review import detail, views, worklist
from app.web import auth, parsing
from app.web.human_ceiling import load_ceiling
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.services import services
from grading.domain.permissions import Actor
from grading.store import tables
from grading.store.review import second_marking
from grading.store.review.second_marking import MOST, MarkRefused, ToMark
from grading.store.views import review_worklist, submission_lists

pages = Blueprint("second_marking", __name__)


@pages.get("/assignments/<int(max=2147483647):assignment_id>/second-marking")
def listing(assignment_id: int) -> str:
    """What was chosen or drawn, and how far it is marked; or a form to draw some."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        assignment = views.of_class(session, actor, assignment_id, "mark.give")
        line = submission_lists.assignment_line(assignment, assignment.course)
        found = _drawn(session, assignment, actor)
        people = load_ceiling(session, assignment.course_id, assignment.id)
    following = next((one.id for one in found if not one.marked), None)
    return render_template(
        "review/second_marking_list.html",
        assignment=line,
        found=found,
        people=people,
        following=following,
        draw=_draw(),
        seed=secrets.token_hex(4),
        most=MOST,
        actor=actor,
    )


@pages.get("/submissions/<submission_id>/second-marking")
def submission(submission_id: str) -> str:
    """One submission without its grade, and the rubric's levels to choose from."""
    return _page(auth.actor(), submission_id)


@pages.post("/submissions/<submission_id>/second-marking")
def save(submission_id: str) -> Response | tuple[str, int]:
    """Keep the levels and go on to the next one of the draw."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            view = views.load_view(session, actor, submission_id, "mark.give")
            blind = second_marking.save_marks(session, submission_id, _levels(), actor)
            assignment = review_worklist.find_assignment(session, view.assignment_id)
            found = _drawn(session, assignment, actor)
    except MarkRefused as error:
        return _page(actor, submission_id, render_error(error)), error.status
    unblind = _("Saved as not blind: you had seen the model's levels, or which marks differ from them.")
    flash(_("Saved.") if blind else unblind)
    following = next((one.id for one in found if not one.marked and one.id != submission_id), None)
    if following is None:
        return redirect(url_for("second_marking.listing", assignment_id=view.assignment_id, **_draw()), 303)
    return redirect(url_for("second_marking.submission", submission_id=following, **_draw()), 303)


def _page(actor: Actor, submission_id: str, problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        whole = views.load_whole_view(session, actor, submission_id, "mark.give")
        before = second_marking.load_marking_form(session, submission_id, whole.view.round_id, actor)
    return render_template(
        "review/second_marking.html",
        view=whole.view,
        documents=detail.documents(whole.view, whole.submitted),
        draw=_draw(),
        problem=problem,
        actor=actor,
        criteria=before.rubric.criteria,
        given={**before.given, **_levels()},
        known=before.known,
        compared=before.compared,
    )


def _drawn(session: Session, assignment: tables.Assignment, actor: Actor) -> tuple[ToMark, ...]:
    draw = _draw()
    if "ids" in draw:
        ids = str(draw["ids"]).split(",")
    elif "count" in draw:
        ids = second_marking.draw_sample(session, assignment, int(draw["count"]), str(draw["seed"]))
    else:
        ids = []
    return second_marking.load_sample(session, assignment.id, ids, actor)


def _draw() -> dict[str, Any]:
    """The draw of the address: the ids that were chosen, or how many were drawn with what seed."""
    ids = [one for one in request.args.get("ids", "").split(",") if one.isalnum() and len(one) <= 32]
    if ids:
        return {"ids": ",".join(ids[:MOST])}
    count = parsing.whole_number(request.args.get("count", ""), 4)
    return {"count": count, "seed": request.args.get("seed", "")[:40]} if count else {}


def _levels() -> dict[str, float]:
    found = {
        name.removeprefix("level-"): worklist.number(text)
        for name, text in request.form.items()
        if name.startswith("level-")
    }
    return {name: value for name, value in found.items() if value is not None}
