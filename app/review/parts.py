"""The parts of a review page that stay as long as nothing they are made of changes, kept as HTML.

Who may see them is asked before, at each request. All that they show is in their key.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from flask import current_app, render_template, request
from flask.sansio.app import App
from markupsafe import Markup

from app.reports import rendering
from app.reports.flags import place_words
from app.review.detail import Given, pane
from app.web.i18n import current
from app.web.template_helpers import form_token
from grading.shared.cache import Remembered, mark
from grading.store.views.submission import HandedIn, SubmissionView

MOST_KEPT = 32 * 1024 * 1024
"""Characters of all parts together."""


@dataclass(frozen=True)
class _Kept:
    parts: Remembered[Markup]
    token: Markup
    """Stands in kept parts where the token of a form comes; nobody can know it, so nobody can write it."""


def remember(app: App) -> None:
    """Keep parts with this app."""
    app.extensions["grader-review-parts"] = _Kept(
        Remembered(MOST_KEPT), Markup(f"<!--{secrets.token_hex(16)}-->")  # noqa: S704 - made here
    )  # fmt: skip


def _kept() -> _Kept:
    return cast("_Kept", current_app.extensions["grader-review-parts"])


def remembered(key: str, make: Callable[[], Markup]) -> Markup:
    """The part with this key, made unless it is known; without a key it is not kept."""
    found = _kept().parts.find(key) if key else None
    if found is None:
        found = make()
        if key:
            _kept().parts.put(key, len(found), found)
    return found


def body(given: Given, here: Mapping[str, Any], saved: tuple[str, ...], said: Mapping[str, Any]) -> Markup:
    """The right pane; with what could not be saved (`said`) it is of this answer only, else it is kept."""
    room = rendering.Room()
    shown = {
        "view": given.view,
        "grade": given.view.grade,
        "here": here,
        "kept": saved,
        "staff": True,
        "place_words": place_words,
    }
    if said:
        return _body(given, room, {**shown, **said})
    key, token = _key(given, here, saved), _kept().token
    found = _kept().parts.find(key)
    if found is None:
        blank = {"problem": "", "stale": False, "meanwhile": (), "draft": {}}
        found = _body(given, room, {**shown, **blank, "form_token": lambda: token})
        if room.coloured():  # else it may lack colours
            _kept().parts.put(key, len(found), found)
    return Markup(str(found).replace(token, form_token()))  # noqa: S704 - a token in place of ours


def documents(view: SubmissionView, handed_in: HandedIn) -> Markup:
    """What was handed in, without anything that was said about it."""
    room, kept = rendering.Room(), _kept().parts
    key = mark("documents", current(), request.root_path, view.id, handed_in.mark)
    found = kept.find(key)
    if found is None:
        shown = rendering.hand_in(handed_in.documents, None, staff=True, room=room)
        given = {"view": view, "report": None, "shown": shown, "staff": True, "notes": handed_in.notes}
        html = render_template("results/_part.html", part="results/_documents.html", **given)
        found = Markup(html)  # noqa: S704 - of a template that escapes
        if room.coloured():
            kept.put(key, len(found), found)
    return found


def _body(given: Given, room: rendering.Room, shown: dict[str, Any]) -> Markup:
    made = pane(given, room)
    html = render_template(
        "review/_body.html",
        pane=made,
        stamp=made.stamp,
        report=made.report,
        shown=made.shown,
        notes=made.notes,
        **shown,
    )
    return Markup(html)  # noqa: S704 - of a template that escapes


def _key(given: Given, here: Mapping[str, Any], saved: tuple[str, ...]) -> str:
    view, grade = given.view, given.view.grade
    numbers: tuple[object, ...] = ()
    if grade is not None:
        numbers = (grade.points, grade.points_so_far, grade.max_points, grade.final_points)
        numbers += (grade.adjustment, grade.credit, grade.mark)
    return mark(
        "body",
        current(),
        request.root_path,
        (view.id, view.round_id, view.state, view.failure),
        numbers,
        given.handed_in.mark,
        given.made,
        given.stamp,
        given.rubric,
        sorted(here.items()),
        saved,
    )
