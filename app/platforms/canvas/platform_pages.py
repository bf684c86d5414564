"""What pages show of Canvas: its section of a course, its words in deliveries and the audit log."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.orm import Session

from app.web.i18n import later as N_
from app.web.platform_pages import PlatformLink, PlatformPages
from grading.store.integrations.canvas import course_page, scores
from grading.store.integrations.canvas import links as canvas_links
from grading.store.integrations.canvas.course_page import CoursePage


class CanvasSection:
    """Linked assignments, scores that did not arrive or differ, and attempts without a submission."""

    template = "canvas/course_section.html"

    def read(self, store: Session, course_id: int) -> CoursePage:
        """All of it."""
        return course_page.load_course_page(store, course_id)

    def links(self, store: Session, course_id: int) -> list[PlatformLink]:
        """Those of its assignments."""
        return [
            PlatformLink(
                one.link.id,
                one.link.assignment_id,
                one.link.title,
                one.sent,
                one.failed,
                one.compared_at,
                " ".join(one.errors),
            )
            for one in canvas_links.list_links(store, course_id)
        ]

    def send_again(self, store: Session, course_id: int, chosen: Iterable[tuple[int, int]]) -> int:
        """Those of the course."""
        found = course_page.filter_of_course(store, course_id, chosen)
        for link_id, user_id in found:
            scores.resend_scores(store, link_id, user_id)
        return len(found)


PAGES = PlatformPages(
    course_section=CanvasSection(),
    deliveries={"canvas": N_("Scores for Canvas")},
    audit_sentences={
        "canvas.link": N_("%(who)s linked %(what)s with an assignment in Canvas."),
        "canvas.unlink": N_("%(who)s unlinked %(what)s from its assignment in Canvas."),
    },
)
