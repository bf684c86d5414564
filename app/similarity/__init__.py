"""Pages of similar submissions, for staff: pairs and clusters of an assignment or a course, and one pair."""

from __future__ import annotations

from app.similarity import views
from app.web.i18n import later as N_
from app.web.menus import Menu, NavigationEntry

blueprints = (views.pages,)
navigation = (
    NavigationEntry(
        Menu.ASSIGNMENT, 35, "similarity.assignment", N_("Similarity"), "similarity.see",
        below=("similarity.pair",),
    ),
    NavigationEntry(Menu.COURSE, 45, "similarity.course", N_("Similarity"), "similarity.see"),
)  # fmt: skip
