"""The page of a course on learning platforms: what each kind shows, and sending scores again."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.web import auth
from app.web.i18n import gettext as _
from app.web.platform_pages import CourseSection, platform_pages
from app.web.services import services
from grading.domain.errors import NotFound
from grading.store.courses import courses

pages = Blueprint(
    "course_platforms", __name__, url_prefix="/courses/<int(max=2147483647):course_id>/platform"
)
MOST = 1000
"""So many scores are sent again by one form."""


@pages.get("")
def course(course_id: int) -> str:
    """Links, scores that did not arrive, differences, and the last attempts."""
    return show_course(course_id)


@pages.post("/again")
def again(course_id: int) -> Response:
    """Send the scores that the form chose, or all that failed or differ."""
    auth.in_course("grade.release", course_id)
    with services().store.write() as store:
        sent = sum(
            one.send_again(store, course_id, [_pair(text) for text in request.form.getlist(name)[:MOST]])
            for name, one in _sections()
        )
    if not sent:
        raise NotFound(_("There is nothing of this kind to send again."))
    flash(_("It is sent again in a moment."))
    return redirect(url_for("course_platforms.course", course_id=course_id), 303)


def show_course(course_id: int, secret: str = "") -> str:
    """The page, with a code that was made for this request."""
    auth.in_course("roster.see", course_id)
    with services().store.read_autocommit() as store:
        found = courses.load_course(store, course_id)
        seen = [(name, one.template, one.read(store, course_id)) for name, one in _sections()]
    return render_template("courses/platforms.html", course=found, sections=seen, secret=secret)


def _sections() -> list[tuple[str, CourseSection]]:
    found = ((name, one.course_section) for name, one in platform_pages().items())
    return [(name, section) for name, section in found if section is not None]


def _pair(text: str) -> tuple[int, int]:
    """Link and student, as the form has them."""
    link, _mark, user = text.partition(":")
    good = link.isdecimal() and user.isdecimal() and len(link) < 10 and len(user) < 10
    return (int(link), int(user)) if good else (0, 0)
