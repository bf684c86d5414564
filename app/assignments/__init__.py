"""Pages of an assignment.

What is submitted for it belongs to app.submissions.
"""

from __future__ import annotations

from app.assignments import views
from app.assignments.editor import files, proposals, rubric, task, versions

blueprints = (views.pages, rubric.pages, files.pages, proposals.pages, task.pages, versions.pages)
