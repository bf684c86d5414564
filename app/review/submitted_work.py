"""The submitted work of a review as cached HTML: files with lines, outputs, images and comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from flask import current_app, render_template, request
from flask.sansio.app import App
from markupsafe import Markup
from sqlalchemy.orm import Session

from app.reports import annotated_submission, result
from app.web.i18n import current
from grading.domain.document import Location
from grading.shared.cache import BoundedCache, mark
from grading.store.grades import change_history
from grading.store.grades.change_history import Made
from grading.store.views.submission import SubmissionView, SubmittedWork

MOST_KEPT = 32 * 1024 * 1024
"""Characters of all works together."""
SHOWN_KINDS = ("add", "remark", "hide")
"""Changes that the work shows."""


@dataclass(frozen=True)
class Work:
    """The work of a submission, and where it has what evidence points to."""

    html: Markup
    places: Mapping[Location, str]
    mark: str
    """Equal for equal work."""


def remember(app: App) -> None:
    """Keep works with this app."""
    cache: BoundedCache[Work] = BoundedCache(MOST_KEPT)
    app.extensions["grader-review-works"] = cache


def rendered_work(
    session: Session, view: SubmissionView, submitted: SubmittedWork, made: Sequence[Made], stamp: str
) -> Work:
    """The work with its comments, made unless it is known."""
    cache = cast("BoundedCache[Work]", current_app.extensions["grader-review-works"])
    key = _key(view, submitted, made, stamp)
    found = cache.find(key)
    if found is None:
        room = annotated_submission.Room()
        found = _made(session, view, submitted, room, key)
        if room.coloured():  # else it may lack colours
            cache.put(key, len(found.html), found)
    return found


def _made(
    session: Session,
    view: SubmissionView,
    submitted: SubmittedWork,
    room: annotated_submission.Room,
    key: str,
) -> Work:
    grade = view.grade
    pictures = result.image_numbers(session, view.id, submitted.documents)
    rendered = annotated_submission.render_submission(
        submitted.documents,
        grade.report if grade else None,
        grade.original if grade else None,
        execution=submitted.execution,
        staff=True,
        pictures=pictures,
        room=room,
    )
    html = render_template(
        "review/_work.html",
        view=view,
        shown=rendered,
        notes=submitted.notes,
        staff=True,
        reviewing=True,
        many_pictures=sum(map(len, pictures.values())) > result.AT_ONCE,
    )
    return Work(Markup(html), rendered.places, key)  # noqa: S704 - of a template that escapes


def _key(view: SubmissionView, submitted: SubmittedWork, made: Sequence[Made], stamp: str) -> str:
    shown = [one for one in made if one.kind in SHOWN_KINDS and one.undone_at is None]
    return mark(
        "work",
        current(),
        request.root_path,
        (view.id, view.round_id),
        view.grade.original_mark if view.grade else "",
        submitted.mark,
        shown,
        stamp if len(made) >= change_history.MOST else "",  # older changes are not listed
    )
