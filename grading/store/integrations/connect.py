"""Connecting the learning platforms with the grades they must be told of."""

from __future__ import annotations

from grading.store.grades.listeners import on_grade_changed
from grading.store.integrations.canvas import score_sync as canvas
from grading.store.integrations.lti import score_sync as lti


def connect_platforms() -> None:
    """For every process that changes grades, before it does; calling it again changes nothing."""
    for platform in (lti, canvas):
        on_grade_changed(platform.wake)
