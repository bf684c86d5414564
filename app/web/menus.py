"""Menus of pages: entries that packages of the app declare, and the tabs that are shown of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from flask import current_app, request

from app.web import auth
from app.web.i18n import gettext as _
from app.web.template_helpers import address
from grading.domain.permissions import Actor, Subject, may


class Menu(Enum):
    """Where an entry stands."""

    SITE = "site"
    """At the top of every page."""
    OPERATIONS = "operations"
    """Pages of operators and administrators."""
    COURSE = "course"
    """Pages of one course; their argument is `course_id`."""
    ASSIGNMENT = "assignment"
    """Pages of one assignment; their argument is `assignment_id`."""
    TRUST = "trust"
    """Pages below the tab "Trust" of an assignment; their argument is `assignment_id`."""


@dataclass(frozen=True)
class NavigationEntry:
    """A link of a menu, for readers who have the permission for its page."""

    menu: Menu
    order: int
    """The lowest stands first."""
    endpoint: str
    title: str
    """The source of a translation."""
    action: str
    """As in grading.domain.permissions; of the course, in menus of courses and assignments."""
    below: tuple[str, ...] = ()
    """Blueprints and single endpoints whose pages lie below it, where it is marked, too."""
    leads_to: tuple[Menu, ...] = ()
    """Menus whose pages lie below it."""
    framed: bool = False
    """Whether it stands also in frames of learning platforms."""


@dataclass(frozen=True)
class PagesBelow:
    """Blueprints and single endpoints whose pages lie below an entry of another package."""

    menu: Menu
    endpoint: str
    """Of the entry."""
    below: tuple[str, ...]


@dataclass(frozen=True)
class Tab:
    """A link; `here` where the reader is now; `page` is False where they are on a page below it."""

    title: str
    url: str
    here: bool
    page: bool


ANYWHERE = Subject()
"""No course."""


class Navigation:
    """The menus of an app, made of what its packages declare."""

    def __init__(self, declared: Iterable[NavigationEntry | PagesBelow]) -> None:
        declared = tuple(declared)
        entries = sorted(
            (one for one in declared if isinstance(one, NavigationEntry)), key=lambda entry: entry.order
        )
        self._menus = {menu: [entry for entry in entries if entry.menu is menu] for menu in Menu}
        self._below: defaultdict[tuple[Menu, str], set[str]] = defaultdict(set)
        for one in declared:
            self._below[one.menu, one.endpoint].update(one.below)
        for entry in entries:
            for menu in entry.leads_to:
                self._below[entry.menu, entry.endpoint] |= self._pages(menu)

    def _pages(self, menu: Menu) -> set[str]:
        own = {entry.endpoint for entry in self._menus[menu]}
        return own.union(*(self._below[menu, endpoint] for endpoint in own))

    def tabs(
        self, menu: Menu, reader: Actor, course: Subject = ANYWHERE, *, framed: bool = False, **ids: int
    ) -> list[Tab]:
        """The entries of a menu that the reader may see; `ids` are the arguments of their endpoints."""
        own = {entry.endpoint for entry in self._menus[menu]}
        return [
            Tab(
                _(entry.title),
                address(entry.endpoint, **ids),
                self._here(entry, own),
                request.endpoint == entry.endpoint,
            )
            for entry in self._menus[menu]
            if (entry.framed or not framed) and may(reader, entry.action, course)
        ]

    def _here(self, entry: NavigationEntry, own: set[str]) -> bool:
        """On its page, and below it unless the page has an entry of its own."""
        if request.endpoint == entry.endpoint:
            return True
        return request.endpoint not in own and not self._below[entry.menu, entry.endpoint].isdisjoint(
            (request.blueprint, request.endpoint)
        )


def current_navigation() -> Navigation:
    """That of the app that answers."""
    found: Navigation = current_app.extensions["grader-navigation"]
    return found


def course_tabs(course_id: int) -> list[Tab]:
    """Those of a course, for the reader."""
    return current_navigation().tabs(Menu.COURSE, auth.actor(), Subject(course_id), course_id=course_id)


def assignment_tabs(course_id: int, assignment_id: int) -> list[Tab]:
    """Those of an assignment, for the reader."""
    course = Subject(course_id)
    return current_navigation().tabs(Menu.ASSIGNMENT, auth.actor(), course, assignment_id=assignment_id)


def trust_tabs(course_id: int, assignment_id: int) -> list[Tab]:
    """Those below the tab "Trust" of an assignment, for the reader."""
    course = Subject(course_id)
    return current_navigation().tabs(Menu.TRUST, auth.actor(), course, assignment_id=assignment_id)
