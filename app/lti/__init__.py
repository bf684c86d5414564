"""Learning platforms by LTI 1.3: launches, frames, deep linking, the pages of administrators and of a course.

The talk with platforms belongs to grading.integrations.lti, their rows to grading.store.integrations.lti.
"""

from __future__ import annotations

from app.lti import admin, course, deep_linking, frame_host, launch, registration

__all__ = ["blueprints", "frame_host"]  # which adds to the blueprint of `launch`

blueprints = (admin.pages, course.pages, deep_linking.pages, launch.pages, registration.pages)
