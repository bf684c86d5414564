"""Learning platforms by LTI 1.3: launches, frames, deep linking, the pages of administrators and of a course.

The talk with platforms belongs to grading.integrations.lti, their rows to grading.store.integrations.lti.
"""

from __future__ import annotations

from app.lti import frame_host
from app.lti.platform import PAGES

__all__ = ["PAGES", "frame_host"]  # which adds to the blueprint of `launch`
