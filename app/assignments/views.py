"""The page of an assignment: task, files, rubric, late rule, and how its reader stands."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from flask import Blueprint, Response, current_app, render_template, request
from sqlalchemy.orm import Session

from app.submissions import intake
from app.web import auth
from app.web.services import services
from grading.documents import ALLOWED_FILES
from grading.documents.files import DATA, KINDS
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.store import tables
from grading.store.assignments import versions
from grading.store.submissions import uploads
from grading.store.views import assignment as overview
from grading.store.views.assignment import Overview

pages = Blueprint("assignments", __name__)


@pages.get("/assignments/<int(max=2147483647):assignment_id>")
def assignment(assignment_id: int) -> str:
    """All of it."""
    return render_template("assignment.html", **about(auth.actor(), assignment_id))


@pages.get("/assignments/<int(max=2147483647):assignment_id>/files/<path:path>")
def file(assignment_id: int, path: str) -> Response:
    """One of the files that students may have."""
    actor = auth.actor()
    with services().store.look() as session:
        data = overview.offered(session, seen(session, actor, assignment_id), path)
    response = Response(data, mimetype="application/octet-stream")
    response.headers.set("Content-Disposition", "attachment", filename=path.rpartition("/")[2])
    return response


def seen(session: Session, actor: Actor, assignment_id: int) -> tables.Assignment:
    """An assignment this reader may know of. Raises NotFound for all others."""
    found = versions.by_id(session, assignment_id)
    require_seen(actor, found)
    return found


def require_seen(actor: Actor, found: tables.Assignment) -> None:
    """Go on if this reader may know of an assignment, or raise NotFound."""
    _allow(actor, found.course_id, found.visible)


def _allow(actor: Actor, course_id: int, visible: bool) -> None:
    subject = Subject(course_id)
    if not may(actor, "assignment.see", subject) or not (visible or may(actor, "class.see", subject)):
        raise NotFound("There is no such assignment.")


def about(actor: Actor, assignment_id: int, problem: str = "") -> dict[str, Any]:
    """What the page of an assignment and its hand-in form show."""
    with services().store.look() as session:
        looked = overview.look(session, assignment_id, actor.user_id, partial(_allow, actor))
        waiting = uploads.of_user(session, actor.user_id, assignment_id) if looked.uploaded else []
    shown = looked.shown
    return {
        "assignment": shown,
        "attempts": looked.attempts,
        "waiting": waiting[0] if waiting else None,
        "problem": problem,
        "actor": actor,
        "staff": intake.trusted(actor, shown.course_id),
        "may_hand_in": can_hand_in(actor, shown),
        "form_key": intake.form_key(request.form.get("key", "")) or intake.new_key(),
        "server": services().config.server,
        "allowed": ALLOWED_FILES,
        "data_endings": ", ".join(DATA),
        "endings": [*KINDS, *(DATA if services().config.server.max_data_mb else ()), ".zip"],
    }


def endpoints() -> Collection[str]:
    """What pages there are, for templates that link to those of others."""
    return current_app.view_functions.keys()


def can_hand_in(actor: Actor, shown: Overview) -> bool:
    """Whether the form is of any use now."""
    trusted = intake.trusted(actor, shown.course_id)
    return shown.ready and not shown.archived and (trusted or shown.door.open)
