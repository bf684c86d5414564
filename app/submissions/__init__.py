"""Submitting work and its status until it is graded.

The result belongs to app.results.
"""

from __future__ import annotations

from app.submissions import class_upload, mail_preferences, status_poll, submit, views

__all__ = ["blueprints", "submit"]  # its views are in the blueprint of `views`

blueprints = (class_upload.pages, mail_preferences.pages, status_poll.pages, views.pages)
