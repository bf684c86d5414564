"""Pages of an assignment: what students read of it, its settings, and its editor.

Submitting belongs to app.submissions, extensions and groups to app.courses.
"""

from __future__ import annotations

from app.assignments import views
from app.assignments.editor import files, proposals, rubric, task, versions
from app.web.i18n import later as N_
from app.web.menus import Menu, NavigationEntry, PagesBelow

blueprints = (views.pages, rubric.pages, files.pages, proposals.pages, task.pages, versions.pages)
navigation = (
    NavigationEntry(Menu.ASSIGNMENT, 10, "assignments.assignment", N_("Overview"), "assignment.see"),
    NavigationEntry(Menu.ASSIGNMENT, 35, "assignments.rubric", N_("Rubric"), "rubric.see"),
    NavigationEntry(
        Menu.ASSIGNMENT, 40, "editor_rubric.edit", N_("Edit"), "assignment.change",
        below=(
            "editor_rubric", "editor_task", "editor_files", "editor_versions", "editor_proposals",
            "assignments.settings", "assignments.save_settings",
        ),
    ),
    PagesBelow(Menu.COURSE, "courses.course", ("editor_versions",)),
    PagesBelow(Menu.SITE, "courses.listing", ("assignments",)),
)  # fmt: skip
