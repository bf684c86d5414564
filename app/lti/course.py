"""A course and its learning platform: what was told, failed or differs, the roster, the course's code."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.web import auth
from app.web.i18n import gettext as _
from app.web.services import services
from grading.domain.errors import NotFound
from grading.store.courses import courses
from grading.store.integrations.canvas import course_page as canvas
from grading.store.integrations.canvas import scores as canvas_scores
from grading.store.integrations.lti import course_page, platforms, roster, scores

pages = Blueprint("lti_course", __name__, url_prefix="/courses")
COURSE = "/<int(max=2147483647):course_id>/platform"


@pages.get(COURSE)
def course(course_id: int) -> str:
    """Links, scores that did not arrive, differences, and the last tries."""
    return _page(course_id)


@pages.post(f"{COURSE}/code")
def code(course_id: int) -> str:
    """A code by which an instructor of the platform's course links it with this one."""
    actor = auth.in_course("course.change", course_id)
    with services().store.write() as store:
        courses.find(store, course_id)
        secret = platforms.make_ticket(store, actor.name, course_id)
    return _page(course_id, secret)


@pages.post(f"{COURSE}/roster")
def update(course_id: int) -> Response:
    """Bring the roster up to date soon."""
    actor = auth.in_course("roster.change", course_id)
    with services().store.write() as store:
        courses.find(store, course_id)
        for one in course_page.contexts(store, course_id):
            roster.wish(store, one.id, actor.name)
    flash(_("The roster is brought up to date in a moment. Load this page again to see it."))
    return redirect(url_for("lti_course.course", course_id=course_id), 303)


@pages.post(f"{COURSE}/again")
def again(course_id: int) -> Response:
    """Tell the platform what counts, for one student or for all that failed or differ."""
    auth.in_course("grade.release", course_id)
    with services().store.write() as store:
        wanted = [_pair(one) for one in request.form.getlist("score")[:1000]]
        chosen = course_page.of_course(store, course_id, wanted)
        for link_id, user_id in chosen:
            scores.again(store, link_id, user_id)
        bridged = [_pair(one) for one in request.form.getlist("canvas")[:1000]]
        bridged = canvas.of_course(store, course_id, bridged)
        for link_id, user_id in bridged:
            canvas_scores.again(store, link_id, user_id)
    if not chosen and not bridged:
        raise NotFound(_("There is nothing of this kind to send again."))
    flash(_("It is sent again in a moment."))
    return redirect(url_for("lti_course.course", course_id=course_id), 303)


def _pair(text: str) -> tuple[int, int]:
    """Link and student, as the form has them."""
    link, _mark, user = text.partition(":")
    good = link.isdecimal() and user.isdecimal() and len(link) < 10 and len(user) < 10
    return (int(link), int(user)) if good else (0, 0)


def _page(course_id: int, secret: str = "") -> str:
    auth.in_course("roster.see", course_id)
    with services().store.look() as store:
        found = courses.find(store, course_id)
        seen, bridged = course_page.course(store, course_id), canvas.course(store, course_id)
    return render_template("lti/of_course.html", course=found, seen=seen, canvas=bridged, secret=secret)
