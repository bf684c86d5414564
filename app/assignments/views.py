"""The page of an assignment: task, files, rubric, late rule, and how its reader stands."""

from __future__ import annotations

from collections.abc import Collection

from flask import Blueprint, Response, current_app, render_template

from app.web import auth
from app.web.assignment_pages import about, seen
from app.web.services import services
from grading.store.views import assignment as assignment_view

pages = Blueprint("assignments", __name__)


@pages.get("/assignments/<int(max=2147483647):assignment_id>")
def assignment(assignment_id: int) -> str:
    """All of it."""
    return render_template("assignments/assignment.html", **about(auth.actor(), assignment_id))


@pages.get("/assignments/<int(max=2147483647):assignment_id>/files/<path:path>")
def file(assignment_id: int, path: str) -> Response:
    """One of the files that students may have."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        data = assignment_view.load_offered_file(session, seen(session, actor, assignment_id), path)
    response = Response(data, mimetype="application/octet-stream")
    response.headers.set("Content-Disposition", "attachment", filename=path.rpartition("/")[2])
    return response


@pages.app_template_global()
def endpoints() -> Collection[str]:
    """What pages there are, for templates that link to those of others."""
    return current_app.view_functions.keys()
