"""What pages show of LTI: its section of a course, its entries in menus and the audit log."""

from __future__ import annotations

from collections.abc import Iterable

from flask import Blueprint, flash, redirect, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.courses.views import show_platforms
from app.platforms.lti import admin, deep_linking, launch, registration
from app.web import auth
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.menus import Menu, NavigationEntry
from app.web.platform_pages import PlatformLink, PlatformPages
from app.web.services import services
from grading.store.courses import courses
from grading.store.integrations.lti import course_page, registrations, scores
from grading.store.integrations.lti import launch as lti_launch
from grading.store.integrations.lti.course_page import CoursePage

pages = Blueprint("lti_course", __name__, url_prefix="/courses")
COURSE = "/<int(max=2147483647):course_id>/platform"


@pages.post(f"{COURSE}/code")
def code(course_id: int) -> str:
    """A code by which an instructor of the platform's course links it with this one."""
    actor = auth.in_course("course.change", course_id)
    with services().store.write() as store:
        courses.load_course(store, course_id)
        secret = registrations.make_ticket(store, actor.name, course_id)
    return show_platforms(course_id, secret)


@pages.post(f"{COURSE}/roster")
def update(course_id: int) -> Response:
    """Bring the roster up to date soon."""
    actor = auth.in_course("roster.change", course_id)
    with services().store.write() as store:
        courses.load_course(store, course_id)
        for one in course_page.list_contexts(store, course_id):
            lti_launch.request_roster(store, one.id, actor.name)
    flash(_("Updating the roster. Reload this page in a few seconds."))
    return redirect(url_for("courses.platforms", course_id=course_id), 303)


class LtiSection:
    """Courses of platforms, their rosters, links, and scores that did not arrive or differ."""

    template = "lti/course_section.html"

    def read(self, store: Session, course_id: int) -> CoursePage:
        """All of it."""
        return course_page.load_course_page(store, course_id)

    def links(self, store: Session, course_id: int) -> list[PlatformLink]:
        """Those of its assignments."""
        return [
            PlatformLink(
                one.id, one.assignment_id, one.title, one.sent, one.failed, one.compared_at, one.compare_error
            )
            for one in course_page.list_links(store, course_id)
        ]

    def send_again(self, store: Session, course_id: int, chosen: Iterable[tuple[int, int]]) -> int:
        """Those of the course."""
        found = course_page.filter_of_course(store, course_id, chosen)
        for link_id, user_id in found:
            scores.resend_score(store, link_id, user_id)
        return len(found)


PAGES = PlatformPages(
    blueprints=(admin.pages, pages, deep_linking.pages, launch.pages, registration.pages),
    course_section=LtiSection(),
    navigation=(
        NavigationEntry(
            Menu.OPERATIONS,
            70,
            "lti_platforms.listing",
            N_("Learning platforms"),
            "administer",
            below=("lti_platforms", "webhook_secrets"),
        ),
    ),
    deliveries={
        "lti": N_("Scores for learning platforms"),
        "lti-roster": N_("Rosters of learning platforms"),
    },
    audit_sentences={
        "lti.launch": N_("%(who)s signed in from a learning platform: %(what)s."),
        "lti.link": N_("%(who)s linked %(what)s in a learning platform."),
        "lti.course": N_("%(who)s linked %(what)s with a course in a learning platform."),
        "lti.roster": N_("%(who)s updated the roster of %(what)s from a learning platform."),
        "lti.platform": N_("%(who)s registered the learning platform %(what)s."),
        "lti.platform.change": N_("%(who)s changed the settings of the learning platform %(what)s."),
        "lti.platform.remove": N_("%(who)s removed the learning platform %(what)s. Grades were kept."),
        "lti.platform.enabled": N_("%(who)s turned the learning platform %(what)s on or off."),
        "lti.deployment": N_("%(who)s accepted a deployment of the learning platform %(what)s."),
        "lti.ticket": N_(
            "%(who)s created a registration link or course code for a learning platform: %(what)s."
        ),
        "lti.key": N_("%(who)s created the signing key %(what)s for learning platforms."),
    },
    audit_actors={"lti": N_("A launch from a learning platform")},
)
