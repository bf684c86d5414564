"""LTI as a learning platform of the pages."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.orm import Session

from app.lti import admin, course, deep_linking, launch, registration
from app.web.i18n import later as N_
from app.web.platform_pages import PlatformPages
from app.web.tabs import Way
from grading.store.integrations.lti import course_page, scores
from grading.store.integrations.lti.course_page import CoursePage


class LtiSection:
    """Courses of platforms, their rosters, links, and scores that did not arrive or differ."""

    template = "lti/of_course.html"

    def read(self, store: Session, course_id: int) -> CoursePage:
        """All of it."""
        return course_page.load_course_page(store, course_id)

    def send_again(self, store: Session, course_id: int, chosen: Iterable[tuple[int, int]]) -> int:
        """Those of the course."""
        found = course_page.filter_of_course(store, course_id, chosen)
        for link_id, user_id in found:
            scores.resend_score(store, link_id, user_id)
        return len(found)


PAGES = PlatformPages(
    blueprints=(admin.pages, course.pages, deep_linking.pages, launch.pages, registration.pages),
    course_section=LtiSection(),
    operations=(
        Way(
            "lti_platforms.listing",
            N_("Learning platforms"),
            "administer",
            frozenset({"lti_platforms", "lms_secrets"}),
        ),
    ),
    deliveries={
        "lti": N_("Scores for learning platforms"),
        "lti-roster": N_("Rosters of learning platforms"),
    },
    audit_sentences={
        "lti.launch": N_("%(who)s came by a learning platform: %(what)s."),
        "lti.link": N_("%(who)s let a link in a learning platform lead to %(what)s."),
        "lti.course": N_("%(who)s joined %(what)s with a course of a learning platform."),
        "lti.roster": N_("%(who)s brought the people of %(what)s up to date from a learning platform."),
        "lti.platform": N_("%(who)s registered the learning platform %(what)s."),
        "lti.platform.change": N_("%(who)s changed what is registered of the learning platform %(what)s."),
        "lti.platform.remove": N_("%(who)s removed the learning platform %(what)s; grades stayed."),
        "lti.platform.enabled": N_("%(who)s turned the learning platform %(what)s on or off."),
        "lti.deployment": N_("%(who)s accepted an installation in the learning platform %(what)s."),
        "lti.ticket": N_("%(who)s made a link or code for a learning platform: %(what)s."),
        "lti.key": N_("%(who)s made the key %(what)s for learning platforms."),
    },
    audit_actors={"lti": N_("A launch from a learning platform")},
)
