"""Pages of dry runs, in which changes of a rubric are tried, and of examples from corrections.

The rubric itself belongs to app.assignments.
"""

from __future__ import annotations

from app.experiments import dry_runs, examples
from app.web.i18n import later as N_
from app.web.menus import Menu, NavigationEntry, PagesBelow

blueprints = (dry_runs.pages, examples.pages)
navigation = (
    NavigationEntry(
        Menu.ASSIGNMENT, 50, "examples.listing", N_("Examples for grading"), "example.change",
        below=("examples",),
    ),
    PagesBelow(Menu.ASSIGNMENT, "editor_rubric.edit", ("dry_runs",)),
)  # fmt: skip
