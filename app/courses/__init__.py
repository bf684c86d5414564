"""Pages of a course: assignments, settings, roster, groups, extensions, links to learning platforms.

What a page shows of one kind of platform belongs to that platform's package, grades belong to app.gradebook.
"""

from __future__ import annotations

from app.courses import extensions, groups, roster, views
from app.web.i18n import later as N_
from app.web.menus import Menu, NavigationEntry

blueprints = (extensions.pages, groups.pages, roster.pages, views.pages)
navigation = (
    NavigationEntry(
        Menu.SITE, 20, "courses.listing", N_("Courses"), "tokens.own",
        below=("courses",), leads_to=(Menu.COURSE, Menu.ASSIGNMENT), framed=True,
    ),
    NavigationEntry(Menu.COURSE, 10, "courses.course", N_("Assignments"), "assignment.see"),
    NavigationEntry(
        Menu.COURSE, 20, "roster.listing", N_("People"), "roster.see", below=("roster",)
    ),
    NavigationEntry(Menu.COURSE, 50, "courses.platforms", N_("Learning platform"), "roster.see"),
    NavigationEntry(Menu.COURSE, 60, "courses.settings", N_("Settings"), "course.change"),
    NavigationEntry(
        Menu.ASSIGNMENT, 60, "extensions.listing", N_("Extensions"), "extension.give",
        below=("extensions",),
    ),
    NavigationEntry(
        Menu.ASSIGNMENT, 70, "groups.listing", N_("Groups"), "group.manage", below=("groups",)
    ),
)  # fmt: skip
