"""Pages of an assignment: what students read of it, its settings, and its editor.

Submitting belongs to app.submissions, extensions and groups to app.courses.
"""

from __future__ import annotations

from app.assignments import views
from app.assignments.editor import files, proposals, rubric, task, versions

blueprints = (views.pages, rubric.pages, files.pages, proposals.pages, task.pages, versions.pages)
