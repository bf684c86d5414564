"""The tabs of a course and of an assignment: what somebody may go to from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import current_app, request, url_for

from app import who
from app.language import gettext as _
from grading.may import Subject, may


@dataclass(frozen=True)
class Tab:
    """A link; `here` where the reader is now."""

    title: str
    url: str
    here: bool


COURSE: tuple[tuple[str, str, str], ...] = (
    # endpoint (its argument is `course_id`), title, action
    ("courses.course", "Assignments", "assignment.see"),
    ("people.roster", "People", "roster.see"),
    ("gradebook.course", "Grades", "class.see"),
    ("courses.settings", "Settings", "course.change"),
    ("audit.course", "Audit", "course.audit"),
)
ASSIGNMENT: tuple[tuple[str, str, str], ...] = (
    # endpoint (its argument is `assignment_id`), title, action
    ("assignments.assignment", "Overview", "assignment.see"),
    ("review.listing", "Review", "score.see"),
    ("statistics.assignment", "Class", "class.see"),
    ("authoring.edit", "Rubric", "assignment.change"),
    ("examples.listing", "Teaching", "example.change"),
    ("extensions.listing", "Extensions", "extension.give"),
    ("groups.listing", "Groups", "group.manage"),
)


def course_tabs(course_id: int) -> list[Tab]:
    """Those of a course, for the reader."""
    return _tabs(COURSE, course_id, {"course_id": course_id})


def assignment_tabs(course_id: int, assignment_id: int) -> list[Tab]:
    """Those of an assignment, for the reader."""
    return _tabs(ASSIGNMENT, course_id, {"assignment_id": assignment_id})


def _tabs(table: tuple[tuple[str, str, str], ...], course_id: int, ids: dict[str, Any]) -> list[Tab]:
    reader, subject = who.actor(), Subject(course_id)
    return [
        Tab(_(title), url_for(endpoint, **ids), request.endpoint == endpoint)
        for endpoint, title, action in table
        if endpoint in current_app.view_functions and may(reader, action, subject)
    ]
