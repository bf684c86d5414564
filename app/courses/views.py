"""The pages of courses: list, assignments, settings, learning platforms."""

from __future__ import annotations

from flask import Blueprint, current_app, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from app.web import auth, page_cache
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.platform_pages import CourseSection, platform_pages
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import GraderError, NotFound
from grading.domain.permissions import Subject, may
from grading.store.courses import courses
from grading.store.courses.courses import Settings
from grading.store.views import submission_lists

pages = Blueprint("courses", __name__)
NEW = "editor_versions.new"
COURSE = "/courses/<int(max=2147483647):course_id>"
MOST_SCORES = 1000
"""So many scores are sent again by one form."""


@pages.get("/courses")
def listing() -> str:
    """The reader's courses; all for administrators."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        listed = courses.list_courses(session, None if actor.administrator else frozenset(actor.roles))
    return render_template("courses/listing.html", courses=listed, actor=actor)


@pages.get("/courses/new")
def new_form() -> str:
    """The form for a new course."""
    auth.require(auth.actor(), "course.create")
    return render_template("courses/new.html", form={})


@pages.post("/courses/new")
def create() -> tuple[str, int] | Response:
    """Make a course."""
    actor = auth.actor()
    auth.require(actor, "course.create")
    fields = {name: request.form.get(name, "") for name in ("slug", "title", "instructor")}
    try:
        with services().store.write() as session:
            course_id = courses.create_course(session, **fields, actor=actor)
    except GraderError as error:
        return render_template("courses/new.html", form=fields, problem=render_error(error)), error.status
    flash(_("Course created. Add people next."))
    return redirect(url_for("roster.listing", course_id=course_id), 303)


@pages.get(COURSE)
def course(course_id: int) -> str:
    """The assignments of a course."""
    actor = auth.in_course("assignment.see", course_id)
    staff = actor.staff_in(course_id)
    with services().store.read_autocommit() as session:
        found = courses.load_course(session, course_id)
        counts = (
            page_cache.of_course("handed-in", session, course_id, courses.count_submitters) if staff else None
        )
        listed = courses.list_assignments(session, course_id, actor.user_id, counts)
        waiting = [one.id for one in listed if one.newest is not None and not one.newest.released]
        released = submission_lists.list_last_released(session, actor.user_id, waiting)
    there = "assignments.assignment" in current_app.view_functions
    changes = may(actor, "assignment.change", Subject(course_id))
    return render_template(
        "courses/course.html", course=found, assignments=listed, released=released, staff=staff,
        changes=changes,
        endpoint="assignments.assignment" if there else "submissions.submit_form",
        create=NEW if NEW in current_app.view_functions else "",
    )  # fmt: skip


@pages.get(f"{COURSE}/settings")
def settings(course_id: int) -> str:
    """What can be set."""
    return _settings_page(course_id)


@pages.post(f"{COURSE}/settings")
def change(course_id: int) -> tuple[str, int] | Response:
    """Set it."""
    actor = auth.in_course("course.change", course_id)
    number = request.form.get("drop_lowest", "")
    lowest = int(number) if number.isdecimal() and len(number) < 4 else -1
    wanted = Settings(request.form.get("title", ""), "archived" in request.form, lowest)
    try:
        with services().store.write() as session:
            before = courses.settings_of(courses.load_course(session, course_id))
            courses.change_settings(session, course_id, wanted, actor)
    except GraderError as error:
        return _settings_page(course_id, wanted, render_error(error)), error.status
    undo = {"title": before.title, "archived": before.archived, "drop_lowest": before.drop_lowest}
    flash_undo(_("Settings saved."), "courses.change", undo, course_id=course_id)
    return redirect(url_for("courses.settings", course_id=course_id), 303)


def _settings_page(course_id: int, wanted: Settings | None = None, problem: str = "") -> str:
    auth.in_course("course.change", course_id)
    with services().store.read_autocommit() as session:
        found = courses.load_course(session, course_id)
    return render_template(
        "courses/settings.html", course=found, wanted=wanted or courses.settings_of(found), problem=problem
    )


@pages.get("/courses/<int(max=2147483647):course_id>/platform")
def platforms(course_id: int) -> str:
    """Links, scores that did not arrive, differences, and the last attempts."""
    return show_platforms(course_id)


@pages.post("/courses/<int(max=2147483647):course_id>/platform/again")
def send_scores_again(course_id: int) -> Response:
    """Send the scores that the form chose, or all that failed or differ."""
    auth.in_course("grade.release", course_id)
    with services().store.write() as store:
        sent = sum(
            one.send_again(
                store, course_id, [_pair(text) for text in request.form.getlist(name)[:MOST_SCORES]]
            )
            for name, one in _sections()
        )
    if not sent:
        raise NotFound(_("Nothing to resend."))
    flash(_("Resending the scores."))
    return redirect(url_for("courses.platforms", course_id=course_id), 303)


def show_platforms(course_id: int, secret: str = "") -> str:
    """The page, with a code that was made for this request."""
    auth.in_course("roster.see", course_id)
    with services().store.read_autocommit() as store:
        found = courses.load_course(store, course_id)
        sections = [(name, one.template, one.read(store, course_id)) for name, one in _sections()]
    return render_template("courses/platforms.html", course=found, sections=sections, secret=secret)


def _sections() -> list[tuple[str, CourseSection]]:
    found = ((name, one.course_section) for name, one in platform_pages().items())
    return [(name, section) for name, section in found if section is not None]


def _pair(text: str) -> tuple[int, int]:
    """Link and student, as the form has them."""
    link, _mark, user = text.partition(":")
    good = link.isdecimal() and user.isdecimal() and len(link) < 10 and len(user) < 10
    return (int(link), int(user)) if good else (0, 0)
