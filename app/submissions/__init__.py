"""Pages on which work is submitted and its status is shown until it is graded.

The result belongs to app.results, the list of all submissions to app.home.
"""

from __future__ import annotations

from app.submissions import class_upload, status_poll, views

blueprints = (class_upload.pages, status_poll.pages, views.pages)
