"""Deep linking: an instructor chooses course and assignments, a signed form returns them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from flask import Blueprint, Response, g, redirect, render_template, request, session, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response as BaseResponse

from app.platforms.lti.launch import launch_url
from app.web import auth, frames
from app.web.services import services
from grading.domain.errors import Forbidden, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.domain.ssrf import read
from grading.integrations.lti.keys import signed
from grading.integrations.lti.messages import chosen
from grading.integrations.lti.values import Platform
from grading.store.courses import courses
from grading.store.database import now
from grading.store.integrations.lti import launch, registrations
from grading.store.integrations.lti.tables import LtiContext, LtiLaunch

NO_ASSIGNMENT_CHOSEN = define_message("lti_choice.no_assignment_chosen", "Choose an assignment.")
ONLY_INSTRUCTORS_CHOOSE = define_message(
    "lti_choice.only_instructors_choose", "Only an instructor of the course can choose the assignment."
)
NO_COURSE_CHOSEN = define_message("lti_choice.no_course_chosen", "Choose the course first.")
NO_COURSE_NAMED = define_message(
    "lti_choice.no_course_named", "Choose one of your courses, create a course, or enter a course code."
)

pages = Blueprint("lti_deep_linking", __name__, url_prefix="/lti")
LAUNCH = "/choose/<launch_id>"


@pages.get("/not-ready")
def not_ready() -> tuple[str, int]:
    """For students, while the link leads nowhere."""
    auth.actor()
    return render_template("lti/not_ready.html"), 404


@pages.get(LAUNCH)
def choose(launch_id: str) -> str:
    """The course first, then the assignment."""
    actor = auth.actor()
    with services().store.read_autocommit() as store:
        waiting, context = _waiting(store, launch_id, actor)
        if context.course_id is None:
            mine = courses.list_courses(store, _teaches(store, actor))
            return render_template("lti/choose_course.html", launch=waiting, context=context, courses=mine)
        listed = courses.list_assignments(store, context.course_id, actor.user_id, {})
        course = courses.load_course(store, context.course_id)
        return render_template(
            "lti/choose_assignment.html",
            launch=waiting, course=course, assignments=listed, deep=not waiting.link,
            several=bool(waiting.payload.get("deep", {}).get("accept_multiple")),
        )  # fmt: skip


@pages.post(f"{LAUNCH}/course")
def choose_course(launch_id: str) -> BaseResponse:
    """Say which course here is the one there: a new one, one of the reader's, or one by its code."""
    actor = auth.actor()
    chosen, code = request.form.get("course", ""), request.form.get("code", "").strip()[:200]
    with services().store.write() as store:
        _, context = _waiting(store, launch_id, actor)
        if code:
            ticket = registrations.use_ticket(store, code, course=True)
            launch.link_course(store, context.id, ticket.course_id or 0, actor.name)
        elif chosen == "new":
            launch.create_course(store, context.id, actor.name)
        elif chosen.isdecimal() and len(chosen) < 10 and int(chosen) in _teaches(store, actor):
            launch.link_course(store, context.id, int(chosen), actor.name)
        else:
            raise NotFound(NO_COURSE_NAMED)
    return redirect(url_for("lti_deep_linking.choose", launch_id=launch_id), 303)


@pages.post(LAUNCH)
def answer(launch_id: str) -> BaseResponse | Response:
    """Let the link lead to an assignment, or give the platform what was chosen."""
    actor = auth.actor()
    assignment_ids = [
        one for one in request.form.getlist("assignment")[:50] if one.isdecimal() and len(one) < 10
    ]
    if not assignment_ids:
        raise NotFound(NO_ASSIGNMENT_CHOSEN)
    with services().store.write() as store:
        waiting, context = _waiting(store, launch_id, actor)
        if context.course_id is None:
            raise NotFound(NO_COURSE_CHOSEN)
        if waiting.link:
            launch.set_link_target(store, waiting, int(assignment_ids[0]), actor.name)
            return redirect(url_for("assignments.assignment", assignment_id=int(assignment_ids[0])), 303)
        items = launch.content_items(store, waiting, [int(one) for one in assignment_ids], launch_url())
        platform = registrations.load_platform(store, context.platform_id)
        deployment, settings = context.deployment, dict(waiting.payload.get("deep", {}))
        store.delete(waiting)
    return answer_page(platform, deployment, settings, items)


def _waiting(store: Session, launch_id: str, actor: Actor) -> tuple[LtiLaunch, LtiContext]:
    """What waits for the reader. Raises NotFound, and Forbidden for who is no instructor there."""
    waiting = launch.load_pending_launch(store, launch_id[:32], actor.user_id)
    context = store.get_one(LtiContext, waiting.context_id)
    if context.platform_id != session.get("lti_platform") or not launch.teaches(
        store, context.id, actor.user_id
    ):
        raise Forbidden(ONLY_INSTRUCTORS_CHOOSE)
    return waiting, context


def _teaches(store: Session, actor: Actor) -> frozenset[int]:
    """Courses in which the reader is an instructor, in frames of other platforms, too."""
    return launch.courses_taught(store, actor.user_id)


def answer_page(
    platform: Platform, deployment: str, settings: Mapping[str, Any], items: Sequence[Mapping[str, Any]]
) -> Response:
    """A page that sends itself to where the platform said. Raises Refused for an address that is none."""
    url = str(settings.get("deep_link_return_url"))
    target = read(url)
    store = services().store
    with store.read() as session:
        moment = now(session)
    message = chosen(platform, deployment, settings, items, moment, secrets.token_urlsafe(24))
    token = signed(registrations.signing_key(store), message)
    answer = Response(render_template("lti/return.html", url=url, token=token))
    origin = f"{'https' if target.secure else 'http'}://{target.header}"
    answer.headers["Content-Security-Policy"] = (
        f"default-src 'none'; script-src 'nonce-{g.nonce}'; style-src 'self'; form-action {origin}; "
        f"base-uri 'none'; frame-ancestors {frames.ancestors()}"
    )
    return answer
