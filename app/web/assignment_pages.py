"""What pages of one assignment share: who may see it, its head, and how forms name it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from flask import request
from sqlalchemy.orm import Session

from app.web import auth, authoring_steps, parsing
from app.web.authoring_steps import Missing, StepLink
from app.web.services import services
from grading.assignments.editor.steps import lacking
from grading.documents import ALLOWED_FILES
from grading.documents.files import DATA, KINDS
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor, Subject, may
from grading.domain.shared_messages import NO_SUCH_ASSIGNMENT
from grading.store import tables
from grading.store.assignments import versions
from grading.store.submissions import pending_uploads
from grading.store.views import assignment as assignment_view
from grading.store.views import authoring
from grading.store.views.assignment import Overview

ANY = "<int(max=2147483647):assignment_id>"


def load_visible(session: Session, actor: Actor, assignment_id: int) -> tables.Assignment:
    """An assignment this reader may know of. Raises NotFound for all others."""
    found = versions.load_assignment(session, assignment_id)
    require_seen(actor, found)
    return found


def require_seen(actor: Actor, found: tables.Assignment) -> None:
    """Go on if this reader may know of an assignment, or raise NotFound."""
    _allow(actor, found.course_id, found.visible)


def _allow(actor: Actor, course_id: int, visible: bool) -> None:
    subject = Subject(course_id)
    if not may(actor, "assignment.see", subject) or not (visible or may(actor, "class.see", subject)):
        raise NotFound(NO_SUCH_ASSIGNMENT)


def about(actor: Actor, assignment_id: int, problem: str = "", field: str = "") -> dict[str, Any]:
    """What the page of an assignment and its submission form show; `problem` is about `field`, if any."""
    with services().store.read_autocommit() as session:
        loaded = assignment_view.load_page(session, assignment_id, actor.user_id, partial(_allow, actor))
        waiting = (
            pending_uploads.find_pending(session, actor.user_id, assignment_id) if loaded.uploaded else []
        )
    view = loaded.shown
    return {
        "assignment": view,
        "attempts": loaded.attempts,
        "waiting": waiting[0] if waiting else None,
        "problem": problem,
        "problem_field": field,
        "actor": actor,
        "staff": parsing.trusted(actor, view.course_id),
        "may_submit": can_submit(actor, view),
        "form_key": parsing.form_key(request.form.get("key", "")) or parsing.new_key(),
        "server": services().config.server,
        "allowed": ALLOWED_FILES,
        "data_endings": ", ".join(DATA),
        "endings": [*KINDS, *(DATA if services().config.server.max_data_mb else ()), ".zip"],
    }


@dataclass(frozen=True)
class Head:
    """What stands above every page: the assignment, the version that is written on, and the steps."""

    id: int
    course_id: int
    title: str
    slug: str
    course: str
    course_title: str
    visible: bool
    number: int
    """Of the newest version."""
    draft: bool
    counting: int | None
    counting_id: int | None
    steps: list[StepLink]
    missing: list[Missing]


def changeable(
    session: Session, actor: Actor, assignment_id: int, action: str = "assignment.change"
) -> tables.Assignment:
    """An assignment this reader may do that with. Raises NotFound or Forbidden."""
    found = versions.load_assignment(session, assignment_id)
    require_change(actor, found, action)
    return found


def require_change(actor: Actor, found: tables.Assignment, action: str) -> None:
    """Go on if this reader may do that with an assignment. Raises NotFound or Forbidden."""
    require_seen(actor, found)
    auth.require(actor, action, Subject(found.course_id))


def head(session: Session, assignment: tables.Assignment, now: versions.VersionState | None = None) -> Head:
    """What stands above every page of it; `now` where it is known what is written on."""
    state = now or versions.newest_state(session, assignment.id)
    lacks = lacking(authoring.load_written(session, assignment))
    return Head(
        id=assignment.id,
        course_id=assignment.course_id,
        title=assignment.title,
        slug=assignment.slug,
        course=assignment.course.slug,
        course_title=assignment.course.title,
        visible=assignment.visible,
        number=state.number,
        draft=state.draft,
        counting=state.counting,
        counting_id=state.counting_id,
        steps=authoring_steps.step_links(assignment.id, lacks),
        missing=authoring_steps.missing(assignment.id, lacks),
    )


def whole(name: str) -> int | None:
    """A whole number of the form or the address, if it is one."""
    return parsing.whole_number(request.form.get(name, request.args.get(name, "")))


def can_submit(actor: Actor, view: Overview) -> bool:
    """Whether the form is of any use now."""
    trusted = parsing.trusted(actor, view.course_id)
    return view.ready and not view.archived and (trusted or view.policy.open)
