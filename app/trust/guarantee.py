"""The page that answers how many grades of an assignment may be released unread, and why not more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.trust.staff import for_staff
from app.web import auth, charts, page_cache, parsing
from app.web.assignment_pages import ANY
from app.web.charts import Mark, Plot, Series
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import CannotUndo, GraderError
from grading.domain.permissions import Actor, Subject, may
from grading.statistics.release_guarantee import Gain
from grading.store import tables
from grading.store.database import now
from grading.store.grades import release as grade_release
from grading.store.trust import guarantees, release_samples, sentences
from grading.store.trust.guarantees import Proof
from grading.store.trust.release_samples import (
    CONFIDENCES,
    MOST,
    MOST_LEVELS,
    SHARES,
    TOLERANCES,
    TargetRefused,
    Wanted,
)
from grading.store.views import submission_lists

pages = Blueprint("guarantee", __name__)
ROOT = f"/assignments/{ANY}/trust"
LEVELS, SUBMISSIONS = 160, 40
"""To mark, as the form proposes it."""
LISTED = 50
"""Submissions that need a person and are listed."""
SOURCES = (
    ("Learn then Test, arXiv 2110.01052", "https://arxiv.org/abs/2110.01052"),
    ("Conformal Risk Control, arXiv 2208.02814", "https://arxiv.org/abs/2208.02814"),
)
Answer = Response | str | tuple[str, int]


@pages.get(ROOT)
def show(assignment_id: int) -> str:
    """How many grades may be released unread, why not more, and what changed."""
    return _page(auth.actor(), assignment_id)


@pages.post(f"{ROOT}/sample")
def draw(assignment_id: int) -> Answer:
    """Draw a random sample to be marked blind."""
    actor, shown = auth.actor(), request.form.get("shown", "")[:32]

    def work(session: Session, assignment: tables.Assignment) -> str:
        wanted = _wanted()
        count = _count("levels" if wanted.together else "submissions")
        release_samples.draw(session, assignment, wanted, count, actor, shown)
        return _("The sample is drawn. Mark it without seeing the levels.")

    # a further try spends a part of the allowed risk: who may release decides on it
    action = "grade.release" if shown else "mark.give"
    return _done(actor, assignment_id, action, work)


@pages.post(f"{ROOT}/sample/more")
def draw_more(assignment_id: int) -> Answer:
    """Draw more submissions of the same sample."""
    actor = auth.actor()

    def work(session: Session, assignment: tables.Assignment) -> str:
        release_samples.draw_more(session, assignment, _count("count"), actor)
        return _("The sample is larger now. Mark what was added.")

    return _done(actor, assignment_id, "grade.release", work)


@pages.post(f"{ROOT}/release")
def release(assignment_id: int) -> Answer:
    """Release what is proven."""
    actor, seen = auth.actor(), request.form.get("seen", "")[:32]
    try:
        with services().store.write() as session:
            assignment = for_staff(session, actor, assignment_id, "grade.release")
            count = guarantees.release_proven(session, assignment, seen, actor)
            moment = now(session)
    except GraderError as error:
        return _refused(actor, assignment_id, error)
    said = ngettext("%(count)s grade released as proven.", "%(count)s grades released as proven.", count)
    flash_undo(said, "guarantee.undo", {"released": moment.isoformat()}, assignment_id=assignment_id)
    return _to_page(assignment_id)


@pages.post(f"{ROOT}/release/undo")
def undo(assignment_id: int) -> Response:
    """Take back a release of what was proven."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            assignment = for_staff(session, actor, assignment_id, "grade.release")
            moment = parsing.form_moment("released")
            count = grade_release.undo_release(session, assignment.id, moment, actor)
        flash(ngettext("Undone for %(count)s grade.", "Undone for %(count)s grades.", count))
    except CannotUndo as error:
        flash(render_error(error), "warning")
    return _to_page(assignment_id)


def _done(actor: Actor, assignment_id: int, action: str, work: Any) -> Answer:
    try:
        with services().store.write() as session:
            said = work(session, for_staff(session, actor, assignment_id, action))
    except GraderError as error:
        return _refused(actor, assignment_id, error)
    flash(said)
    return _to_page(assignment_id)


def _refused(actor: Actor, assignment_id: int, error: GraderError) -> Answer:
    """The page with what was wrong; other errors have pages of their own."""
    if error.status not in (409, 422):
        raise error
    return _page(actor, assignment_id, render_error(error)), error.status


def _to_page(assignment_id: int) -> Response:
    return redirect(url_for("guarantee.show", assignment_id=assignment_id), 303)


def load_proof(session: Session, assignment: tables.Assignment) -> Proof:
    """What is proven now, kept as long as nothing changes."""

    def made(session: Session, assignment_id: int) -> Proof:
        return guarantees.load_proof(session, session.get_one(tables.Assignment, assignment_id))

    return page_cache.of_assignment("proof", session, assignment.course_id, assignment.id, made)


def _page(actor: Actor, assignment_id: int, problem: str = "") -> str:
    with services().store.read() as session:
        assignment = for_staff(session, actor, assignment_id)
        line = submission_lists.assignment_line(assignment, assignment.course)
        proof = load_proof(session, assignment)
    course = Subject(line.course_id)
    return render_template(
        "trust/guarantee.html",
        assignment=line,
        proof=proof,
        wanted=proof.sample.wanted if proof.sample else Wanted(),
        bound=sentences.bound,
        grounds=sentences.grounds,
        offered=_offered(proof),
        listed=LISTED,
        sources=SOURCES,
        gains_plot=gains_plot,
        **charts.DRAWING,
        may_mark=may(actor, "mark.give", course),
        may_release=may(actor, "grade.release", course),
        problem=problem,
    )


def _offered(proof: Proof) -> dict[str, Any]:
    """The choices of the form, and how many marks it proposes."""
    most = max(1, min(LEVELS, proof.levels // 2))
    # of the numbers whose gain is known, the largest
    gain = (
        None
        if proof.sample
        else max((one for one in proof.gains if one.marks <= most), key=lambda one: one.marks, default=None)
    )
    return {
        "gain": gain,
        "shares": SHARES,
        "confidences": CONFIDENCES,
        "tolerances": TOLERANCES,
        "levels": gain.marks if gain else most,
        "most_levels": MOST_LEVELS,
        "submissions": max(1, min(SUBMISSIONS, proof.drawable)),
        "most_submissions": MOST,
    }


def gains_plot(gains: Sequence[Gain], together: bool) -> Plot:
    """How many may be released after so many more marks; where whole submissions are marked, without them."""
    what = _("Released, about") if together else _("Released unread, about")
    marks = []
    for one in gains:
        tip = _(
            "%(marks)s more marks: about %(expected)s, at most %(most)s",
            marks=one.marks,
            expected=round(one.expected),
            most=one.most,
        )
        marks.append(Mark(f"+{one.marks}", tip, round(one.expected)))
    return Plot(
        name="gains",
        title=_("What more marks would bring"),
        description=_("One column for each number of further marks: submissions that may be released."),
        head=(_("More marks"), what, _("At most")),
        rows=tuple((one.marks, round(one.expected), one.most) for one in gains),
        series=(Series("", tuple(marks)),),
        lying=False,
        axis=_("More marks"),
    )


def _wanted() -> Wanted:
    """The target of the form. Raises TargetRefused."""
    form = request.form
    try:
        together = {"together": True, "each": False}[form["scope"]]
        return Wanted(float(form["share"]), float(form["confidence"]), int(form["tolerance"]), together)
    except (KeyError, ValueError):
        raise TargetRefused from None


def _count(name: str) -> int:
    """A number of the form. Raises TargetRefused."""
    count = parsing.whole_number(request.form.get(name, ""), 4)
    if not count:
        raise TargetRefused
    return count
