"""The first page, and the list of all hand-ins."""

from __future__ import annotations

from flask import render_template, request
from sqlalchemy.orm import Session

from app import who
from app.pages import pages
from app.services import services
from grading.may import Actor
from grading.model import RoundState
from grading.store import home as first
from grading.store import lists
from grading.store.database import now
from grading.store.lists import Filters


@pages.get("/")
def home() -> str:
    """Students see their assignments, staff what waits for them; who is both sees both."""
    actor = who.actor()
    studied = studies(actor)
    with services().store.read() as session:
        cards = first.cards(session, actor.user_id, studied) if studied else []
        waits = first.waiting(session, actor.staff_courses) if actor.staff else []
        moment = now(session)
        own = _own(session, actor) if studied or not actor.staff else None
    return render_template(
        "home.html", cards=cards, waits=waits, now=moment, actor=actor, own=own, studies=bool(studied)
    )


@pages.get("/hand-ins")
def hand_ins() -> str:
    """All hand-ins this reader may see, the newest first, with filters."""
    actor = who.actor()
    state = request.args.get("state")
    chosen = Filters(
        course_ids=actor.staff_courses,
        # an "or" costs the order of an index: only for who may have hand-ins elsewhere
        own=None if actor.staff and not studies(actor) else actor.user_id,
        assignment_id=_number("assignment"),
        state=state if state in {s.value for s in RoundState} else None,
    )
    with services().store.read() as session:
        listed = lists.list_submissions(session, chosen, _number("page") or 1)
        courses = None if actor.administrator else frozenset(actor.roles)
        known = lists.assignments(session, courses, actor.staff_courses)
    return render_template(
        "hand_ins.html", listed=listed, assignments=known, chosen=chosen, states=list(RoundState), actor=actor
    )


def studies(actor: Actor) -> list[int]:
    """The courses somebody is a student of."""
    return [course for course, role in actor.roles.items() if role == "student"]


def _own(session: Session, actor: Actor) -> lists.Page:
    """The newest hand-ins of a student."""
    return lists.list_submissions(session, Filters(student_id=actor.user_id))


def _number(name: str) -> int | None:
    text = request.args.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None
