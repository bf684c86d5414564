"""The first page, and the list of all submissions."""

from __future__ import annotations

from typing import cast as typed

from flask import Blueprint, current_app, render_template, request
from flask.blueprints import BlueprintSetupState

from app.reports.counting import superseded
from app.web import auth
from app.web.services import services
from grading.domain.permissions import Actor
from grading.domain.round_states import RoundState
from grading.store.database import now
from grading.store.views import staff_home, student_home, submission_lists
from grading.store.views.staff_home import WorkCountCache
from grading.store.views.submission_lists import Filters

pages = Blueprint("home", __name__)
MOST_QUIET = 5
"""Assignments of a course without open work that are listed: those that are due last."""


@pages.get("/")
def home() -> str:
    """Students see their assignments, staff what waits for them; who is both sees both."""
    actor = auth.actor()
    studied = studies(actor)
    with services().store.read_autocommit() as session:
        waits = staff_home.load_work(session, actor.staff_courses, _tallies()) if actor.staff else []
        mine = student_home.load_home(session, actor.user_id, studied) if studied or not actor.staff else None
        moment = now(session)
    return render_template(
        "home/home.html", mine=mine, waits=waits, now=moment, actor=actor, studies=bool(studied),
        most_quiet=MOST_QUIET,
    )  # fmt: skip


@pages.get("/submissions")
def submissions() -> str:
    """All submissions this reader may see, the newest first, with filters."""
    actor = auth.actor()
    state = request.args.get("state")
    both = actor.staff and bool(studies(actor))
    chosen = Filters(
        course_ids=actor.staff_courses if actor.staff else None,
        own=actor.user_id if both else None,
        student_id=None if actor.staff else actor.user_id,
        assignment_id=_number("assignment"),
        state=state if state in {s.value for s in RoundState} else None,
    )
    with services().store.read_autocommit() as session:
        listed = submission_lists.list_submissions(session, chosen, _number("page") or 1)
        courses = None if actor.administrator else frozenset(actor.roles)
        assignments = submission_lists.list_assignments(session, courses, actor.staff_courses)
        instead = superseded(session, actor, [one.id for one in listed.items])
    titles = {one.course_id: one.course_title for one in assignments}
    return render_template(
        "home/submissions.html", listed=listed, assignments=assignments, chosen=chosen,
        states=list(RoundState), actor=actor, course_titles=titles, superseded=instead,
    )  # fmt: skip


def studies(actor: Actor) -> list[int]:
    """The courses somebody is a student of."""
    return [course for course, role in actor.roles.items() if role == "student"]


@pages.record
def _remember(state: BlueprintSetupState) -> None:
    """Keep with this app what waits for staff."""
    state.app.extensions["grader-tallies"] = WorkCountCache()


def _tallies() -> WorkCountCache:
    return typed(WorkCountCache, current_app.extensions["grader-tallies"])


def _number(name: str) -> int | None:
    text = request.args.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None
