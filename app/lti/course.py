"""A course of a learning platform: bringing its roster up to date, and the course's code."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, url_for
from werkzeug.wrappers import Response

from app.courses.views import show_platforms
from app.web import auth
from app.web.i18n import gettext as _
from app.web.services import services
from grading.store.courses import courses
from grading.store.integrations.lti import course_page, launch, platforms

pages = Blueprint("lti_course", __name__, url_prefix="/courses")
COURSE = "/<int(max=2147483647):course_id>/platform"


@pages.post(f"{COURSE}/code")
def code(course_id: int) -> str:
    """A code by which an instructor of the platform's course links it with this one."""
    actor = auth.in_course("course.change", course_id)
    with services().store.write() as store:
        courses.load_course(store, course_id)
        secret = platforms.make_ticket(store, actor.name, course_id)
    return show_platforms(course_id, secret)


@pages.post(f"{COURSE}/roster")
def update(course_id: int) -> Response:
    """Bring the roster up to date soon."""
    actor = auth.in_course("roster.change", course_id)
    with services().store.write() as store:
        courses.load_course(store, course_id)
        for one in course_page.list_contexts(store, course_id):
            launch.request_roster(store, one.id, actor.name)
    flash(_("The roster is brought up to date in a moment. Load this page again to see it."))
    return redirect(url_for("courses.platforms", course_id=course_id), 303)
