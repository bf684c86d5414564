"""The page that answers how many grades of an assignment may be released unread."""

from __future__ import annotations

from flask import Blueprint, render_template

from app.trust.staff import for_staff
from app.web import auth
from app.web.assignment_pages import ANY
from app.web.services import services
from grading.store.views import submission_lists

pages = Blueprint("guarantee", __name__)


@pages.get(f"/assignments/{ANY}/trust")
def show(assignment_id: int) -> str:
    """How many grades may be released unread, why not more, and what changed."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = for_staff(session, actor, assignment_id)
        line = submission_lists.assignment_line(found, found.course)
    return render_template("trust/guarantee.html", assignment=line)
