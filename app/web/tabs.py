"""The tabs of a course and of an assignment: what somebody may go to from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import current_app, request

from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.template_helpers import address
from grading.domain.permissions import Subject, may


@dataclass(frozen=True)
class Tab:
    """A link; `here` where the reader is now; `page` is False where they are on a page below it."""

    title: str
    url: str
    here: bool
    page: bool = True


@dataclass(frozen=True)
class Way:
    """A link to a part of the site, marked on all pages of `parts`: blueprints, or single endpoints."""

    endpoint: str
    title: str
    action: str
    parts: frozenset[str] = frozenset()


COURSE: tuple[tuple[str, str, str], ...] = (
    # endpoint (its argument is `course_id`), title, action
    ("courses.course", N_("Assignments"), "assignment.see"),
    ("roster.listing", N_("People"), "roster.see"),
    ("gradebook.course", N_("Grades"), "class.see"),
    ("gradebook.mine", N_("My grades"), "grades.own"),
    ("courses.platforms", N_("Learning platform"), "roster.see"),
    ("courses.settings", N_("Settings"), "course.change"),
    ("audit.course", N_("Audit"), "course.audit"),
)
ASSIGNMENT: tuple[tuple[str, str, str], ...] = (
    # endpoint (its argument is `assignment_id`), title, action
    ("assignments.assignment", N_("Overview"), "assignment.see"),
    ("review.listing", N_("Review"), "score.see"),
    ("statistics.assignment", N_("Statistics"), "class.see"),
    ("editor_rubric.edit", N_("Rubric"), "assignment.change"),
    ("examples.listing", N_("Teaching"), "example.change"),
    ("extensions.listing", N_("Extensions"), "extension.give"),
    ("groups.listing", N_("Groups"), "group.manage"),
)
BELOW: dict[str, frozenset[str]] = {
    "courses.course": frozenset({"editor_versions"}),
    "review.listing": frozenset({"review", "class_actions", "second_marking"}),
    "statistics.assignment": frozenset({"statistics"}),
    "editor_rubric.edit": frozenset(
        {
            "editor_rubric",
            "assignments.settings",
            "assignments.save_settings",
            "editor_task",
            "editor_files",
            "editor_versions",
            "editor_proposals",
            "dry_runs",
        }
    ),
    "examples.listing": frozenset({"examples"}),
    "extensions.listing": frozenset({"extensions"}),
    "groups.listing": frozenset({"groups"}),
    "roster.listing": frozenset({"roster"}),
    "gradebook.course": frozenset({"gradebook"}),
}
"""Tab -> blueprints and single endpoints whose pages lie below it, where it is marked, too."""
_OWN = frozenset(endpoint for endpoint, _title, _action in (*COURSE, *ASSIGNMENT))
"""Pages with a tab of their own."""


def course_tabs(course_id: int) -> list[Tab]:
    """Those of a course, for the reader."""
    return _tabs(COURSE, course_id, {"course_id": course_id})


def assignment_tabs(course_id: int, assignment_id: int) -> list[Tab]:
    """Those of an assignment, for the reader."""
    return _tabs(ASSIGNMENT, course_id, {"assignment_id": assignment_id})


def _tabs(table: tuple[tuple[str, str, str], ...], course_id: int, ids: dict[str, Any]) -> list[Tab]:
    reader, subject = auth.actor(), Subject(course_id)
    return [
        Tab(_(title), address(endpoint, **ids), _here(endpoint), request.endpoint == endpoint)
        for endpoint, title, action in table
        if endpoint in current_app.view_functions and may(reader, action, subject)
    ]


def _here(endpoint: str) -> bool:
    below = BELOW.get(endpoint, frozenset())
    return request.endpoint == endpoint or (
        (request.blueprint in below or request.endpoint in below) and request.endpoint not in _OWN
    )
