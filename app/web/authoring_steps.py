"""The steps of writing an assignment, as all pages of its editor show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flask import request, url_for

from app.web.i18n import gettext as _
from grading.assignments.editor.steps import STEP_OF, Lacking, Step

ENDPOINTS = {
    Step.DETAILS: "assignments.settings",
    Step.TASK: "editor_task.edit",
    Step.RUBRIC: "editor_rubric.edit",
    Step.TESTS: "editor_files.listing",
    Step.TRY: "dry_runs.listing",
    Step.PUBLISH: "editor_versions.listing",
}
"""The page of each step."""
_BELOW = {"editor_proposals": Step.RUBRIC, **{one.partition(".")[0]: step for step, one in ENDPOINTS.items()}}
"""Blueprints whose pages belong to a step."""
_PLACES = {
    Lacking.DUE: "due",
    Lacking.VISIBILITY: "visible",
    Lacking.TASK: "task",
    Lacking.OWN_RUBRIC: "criteria",
    Lacking.CHECKS: "criteria",
    Lacking.SOLUTION: "u-solution",
    Lacking.TEST_RUN: "test",
    Lacking.PUBLICATION: "publish",
}
"""Where on its page something is added."""


@dataclass(frozen=True)
class Missing:
    """Something that is missing, in words, and where it is added."""

    words: str
    url: str


@dataclass(frozen=True)
class StepLink:
    """A step as a link; `url` is empty before there is an assignment."""

    title: str
    url: str
    here: bool
    page: bool
    """The reader is on its own page rather than on one below it."""
    missing: int


def step_links(assignment_id: int | None, lacking: Iterable[Lacking] = ()) -> list[StepLink]:
    """All steps; without an assignment, which is just being made, all but the first lead nowhere."""
    here = _BELOW[request.blueprint or ""] if assignment_id else Step.DETAILS
    at = [STEP_OF[one] for one in lacking]
    return [
        StepLink(
            title=title,
            url=step_url(step, assignment_id) if assignment_id else "",
            here=step is here,
            page=step is here and request.endpoint == ENDPOINTS[step],
            missing=at.count(step),
        )
        for step, title in step_titles().items()
    ]


def step_titles() -> dict[Step, str]:
    """What steps are called."""
    return {
        Step.DETAILS: _("Details"),
        Step.TASK: _("Task"),
        Step.RUBRIC: _("Rubric"),
        Step.TESTS: _("Tests"),
        Step.TRY: _("Try"),
        Step.PUBLISH: _("Publish"),
    }


def step_url(step: Step, assignment_id: int, place: str | None = None) -> str:
    """The address of a step, or of a place on its page."""
    return url_for(ENDPOINTS[step], assignment_id=assignment_id, _anchor=place)


def missing(assignment_id: int, lacking: Iterable[Lacking]) -> list[Missing]:
    """What is missing, each with a link to where it is added."""
    words = {
        Lacking.DUE: _("due date"),
        Lacking.VISIBILITY: _("visibility to students"),
        Lacking.TASK: _("task text"),
        Lacking.OWN_RUBRIC: _("criteria of your own (the rubric is still the template)"),
        Lacking.CHECKS: _("checks"),
        Lacking.SOLUTION: _("solution"),
        Lacking.TEST_RUN: _("test run"),
        Lacking.PUBLICATION: _("publication"),
    }
    return [Missing(words[one], step_url(STEP_OF[one], assignment_id, _PLACES[one])) for one in lacking]
