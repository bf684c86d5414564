"""Pages of class statistics, with their plots.

The numbers belong to grading.statistics, the drawing of plots that other pages share to app.web.
"""

from __future__ import annotations

from app.statistics import views
from app.web.i18n import later as N_
from app.web.menus import Menu, NavigationEntry

blueprints = (views.pages,)
navigation = (
    NavigationEntry(Menu.COURSE, 35, "statistics.course", N_("Statistics"), "class.see"),
    NavigationEntry(
        Menu.ASSIGNMENT, 30, "statistics.assignment", N_("Statistics"), "class.see",
        below=("statistics",),
    ),
)  # fmt: skip
