"""Marking a random sample blind, one criterion across its submissions at a time; grades do not change.

Which sample, and what it proves, belongs to grading.store.trust.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.review import criterion_page, views, worklist
from app.review.criterion_page import CriterionPage, Switches
from app.web import auth
from app.web.assignment_pages import ANY
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor
from grading.domain.rubric import Criterion
from grading.domain.shared_messages import NO_SUCH_SUBMISSION
from grading.store.review import level_views, second_marking
from grading.store.review.edits import NO_SUCH_CRITERION
from grading.store.review.second_marking import MarkRefused
from grading.store.trust import release_samples
from grading.store.trust.release_samples import NO_SAMPLE, LoadedSample
from grading.store.views import submission_lists

pages = Blueprint("sample_marking", __name__)
ROOT = f"/assignments/{ANY}/review/sample/<criterion>"
ONE = f"{ROOT}/submissions/<submission_id>"
BLIND = Switches(anonymous=True, blind=True)
Answer = Response | str | tuple[str, int]


@dataclass(frozen=True)
class ToMark:
    """The submissions of the sample by one criterion, in their random order."""

    assignment: submission_lists.AssignmentLine
    criteria: tuple[Criterion, ...]
    criterion: Criterion
    sample: LoadedSample
    seen: frozenset[str]
    """Submissions whose levels the reader has seen."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Of all that are to be marked."""
        drawn = self.sample.drawn_by(self.criterion.id)
        return tuple(key for key in drawn if self.sample.members[key].current)

    @property
    def left(self) -> tuple[str, ...]:
        """Of those that nobody has marked, and those that only the reader may still mark blind."""
        return self.sample.to_mark(self.criterion.id, self.seen)

    def left_after(self, submission_id: str) -> list[str]:
        """The same, those after this one first."""
        place = {one: number for number, one in enumerate(self.ids)}
        here = place.get(submission_id, -1)
        left = (one for one in self.left if one != submission_id)
        return sorted(left, key=lambda one: (place[one] < here, place[one]))

    def values(self, submission_id: str = "") -> dict[str, Any]:
        """Of the address of this criterion, or of one of its submissions."""
        here = {"assignment_id": self.assignment.id, "criterion": self.criterion.id}
        return {**here, "submission_id": submission_id} if submission_id else here


@pages.get(f"{ROOT}/next")
def following(assignment_id: int, criterion: str) -> Response:
    """Lead to the next submission of the sample that nobody has marked by this criterion, nor marks now."""
    actor = auth.actor()
    with services().store.read() as session:
        found = _to_mark(session, actor, assignment_id, criterion)
    return _lead_on(actor, found, "")


@pages.get(ONE)
def one(assignment_id: int, criterion: str, submission_id: str) -> str:
    """One submission of the sample by this criterion, without names, levels and what checks found."""
    return _page(auth.actor(), assignment_id, criterion, submission_id)


@pages.post(ONE)
def save(assignment_id: int, criterion: str, submission_id: str) -> Answer:
    """Save a level, and lead on to the next one."""
    actor, level = auth.actor(), worklist.number(request.form.get("level", ""))
    try:
        with services().store.write() as session:
            found = _to_mark(session, actor, assignment_id, criterion)
            _require_member(found, submission_id)
            blind = second_marking.save_mark(
                session, submission_id, found.criterion, -1 if level is None else level, actor
            )
            found = _to_mark(session, actor, assignment_id, criterion)
    except MarkRefused as error:
        return _page(actor, assignment_id, criterion, submission_id, render_error(error)), error.status
    if not blind:
        flash(
            _(
                "Saved as not blind: you had seen the model's levels, or which marks differ from them. "
                "It proves nothing."
            ),
            "warning",
        )
    return _lead_on(actor, found, submission_id)


def _page(actor: Actor, assignment_id: int, criterion: str, submission_id: str, problem: str = "") -> str:
    with services().store.read() as session:
        found = _to_mark(session, actor, assignment_id, criterion)
        _require_member(found, submission_id)
        whole = views.load_whole_view(session, actor, submission_id, "mark.give")
        page = _hidden(criterion_page.load_page(session, whole.view, criterion, BLIND, actor))
        work = criterion_page.rendered_work(session, whole, page, BLIND)
        form = second_marking.load_marking_form(session, submission_id, whole.view.round_id, actor)
    claim = services().dispatch.claim_criterion
    taken = claim(assignment_id, criterion, actor.user_id, [submission_id]) is None
    at = found.ids.index(submission_id)
    return render_template(
        "review/sample_marking.html",
        found=found,
        page=page,
        work=work,
        position=at + 1,
        before=found.ids[at - 1] if at else None,
        after=found.ids[at + 1] if at + 1 < len(found.ids) else None,
        given=form.given.get(criterion),
        known=form.known,
        compared=form.compared and criterion in form.given,
        taken=taken,
        problem=problem,
    )


def _hidden(page: CriterionPage) -> CriterionPage:
    """Without all that the model or the checks said, whoever looks."""
    now = page.now.model_copy(update={"evidence": (), "quotes": (), "level": None, "points": None})
    return replace(page, hidden=True, model=None, checks=None, now=now)


def _lead_on(actor: Actor, found: ToMark, submission_id: str) -> Response:
    """To the next one of this criterion, else to the first criterion with some left, else to the result."""
    claim = services().dispatch.claim_criterion
    left = found.left_after(submission_id)
    following = claim(found.assignment.id, found.criterion.id, actor.user_id, left) if left else None
    if following is not None:
        return redirect(url_for("sample_marking.one", **found.values(following)), 303)
    if left:
        flash(_("Other people are marking the remaining submissions now."))
        return _to_result(found)
    for one in found.criteria:
        other = replace(found, criterion=one)
        if one.id != found.criterion.id and other.left:
            flash(_("Everything is marked by “%(title)s”.", title=found.criterion.title))
            return redirect(url_for("sample_marking.following", **other.values()), 303)
    if any(found.sample.unblind(*one) for one in found.sample.levels):
        flash(_("Someone who has not seen the levels must mark the submissions that are left."), "warning")
    return _to_result(found)


def _to_result(found: ToMark) -> Response:
    return redirect(url_for("guarantee.show", assignment_id=found.assignment.id), 303)


def _to_mark(session: Session, actor: Actor, assignment_id: int, criterion: str) -> ToMark:
    """The sample by a criterion. Raises NotFound, Forbidden."""
    assignment = views.of_class(session, actor, assignment_id, "mark.give")
    sample = release_samples.find_open(session, assignment_id)
    if sample is None:
        raise NotFound(NO_SAMPLE)
    # that of the sample: what was published since may have other levels, or not this criterion
    rubric = {one.id: one for one in release_samples.rubric_of(session, sample).criteria}
    if criterion not in rubric:
        raise NotFound(NO_SUCH_CRITERION)
    line = submission_lists.assignment_line(assignment, assignment.course)
    loaded = release_samples.load_drawn(session, sample)
    seen = frozenset(level_views.list_seen(session, assignment_id, actor))
    return ToMark(line, tuple(rubric.values()), rubric[criterion], loaded, seen)


def _require_member(found: ToMark, submission_id: str) -> None:
    if submission_id not in found.ids:
        raise NotFound(NO_SUCH_SUBMISSION)
