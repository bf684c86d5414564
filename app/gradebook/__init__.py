"""Pages of a course's grades: all students for staff, one's own for students, as files, changed by a file.

The result of one submission belongs to app.results.
"""

from __future__ import annotations

from app.gradebook import views
from app.web.i18n import later as N_
from app.web.menus import Menu, NavigationEntry

blueprints = (views.pages,)
navigation = (
    NavigationEntry(Menu.COURSE, 30, "gradebook.course", N_("Grades"), "class.see", below=("gradebook",)),
    NavigationEntry(Menu.COURSE, 40, "gradebook.mine", N_("My grades"), "grades.own"),
)
