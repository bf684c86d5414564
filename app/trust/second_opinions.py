"""The page of second opinions: which submissions get one, how far they agree, and what waits for staff."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from pydantic import ValidationError
from werkzeug.wrappers import Response

from app.trust.staff import for_staff
from app.web import auth
from app.web.assignment_pages import ANY
from app.web.human_ceiling import load_ceiling
from app.web.i18n import gettext as _
from app.web.services import services
from grading.config.settings import Config
from grading.domain.second_opinions import SecondOpinionPolicy
from grading.domain.stages import SECOND_OPINION
from grading.statistics.second_opinions import agreement_by_criterion
from grading.store.trust import second_opinions
from grading.store.views import submission_lists

SOURCE = ("Cohen 1968, Weighted kappa, Psychological Bulletin 70", "https://doi.org/10.1037/h0026256")
pages = Blueprint("second_opinions", __name__)


@pages.get(f"/assignments/{ANY}/trust/second-opinions")
def show(assignment_id: int) -> str:
    """Policy, progress and agreement."""
    return _page(assignment_id)


@pages.post(f"/assignments/{ANY}/trust/second-opinions")
def save(assignment_id: int) -> Response | tuple[str, int]:
    """Change which submissions get a second opinion."""
    actor = auth.actor()
    with services().store.write() as session:
        found = for_staff(session, actor, assignment_id, "assignment.change")
        policy = _policy()
        if policy is not None:
            second_opinions.set_policy(session, found, policy, actor)
    if policy is None:
        problem = _("Enter percentages between 0 and 100, and up to 12 thresholds.")
        return _page(assignment_id, problem), 422
    flash(_("Saved."), "success")
    return redirect(url_for("second_opinions.show", assignment_id=assignment_id), 303)


def _page(assignment_id: int, problem: str = "") -> str:
    actor = auth.actor()
    with services().store.read() as session:
        found = for_staff(session, actor, assignment_id)
        line = submission_lists.assignment_line(found, found.course)
        policy = second_opinions.policy_of(found)
        states = second_opinions.count_states(session, assignment_id)
        rows = agreement_by_criterion(second_opinions.list_opinions(session, assignment_id))
        held = second_opinions.count_differing(session, assignment_id, released=False)
        released = second_opinions.count_differing(session, assignment_id, released=True)
        people = load_ceiling(session, found.course_id, assignment_id) if rows else ()
    return render_template(
        "trust/second_opinions.html",
        assignment=line,
        actor=actor,
        problem=problem,
        form=request.form if problem else _fields(policy),
        policy=policy,
        states=states,
        rows=rows,
        people=people,
        held=held,
        released=released,
        families=families(services().config),
        source=SOURCE,
    )


def families(config: Config) -> tuple[str, ...]:
    """The families of models that give second opinions here."""
    places = (one.stages[SECOND_OPINION] for one in config.machines if SECOND_OPINION in one.stages)
    return tuple(sorted({config.family_of(place.model) for place in places}))


def _fields(policy: SecondOpinionPolicy) -> dict[str, str]:
    return {
        "which": policy.which,
        "share": f"{100 * policy.share:g}",
        "thresholds": " ".join(f"{100 * one:g}" for one in policy.thresholds),
        "within": f"{100 * policy.within:g}",
    }


def _policy() -> SecondOpinionPolicy | None:
    """The policy of the form; None where it makes no sense."""
    try:
        given: dict[str, Any] = {
            "which": request.form.get("which", ""),
            "share": _percent(request.form.get("share", "")),
            "within": _percent(request.form.get("within", "")),
            "thresholds": [_percent(one) for one in request.form.get("thresholds", "").split()],
        }
        return SecondOpinionPolicy.model_validate(given)
    except (ValueError, ValidationError):
        return None


def _percent(text: str) -> float:
    return round(float(text.replace(",", ".").strip(" %")) / 100, 6)
